"""Tables that are filled from what stands in them already."""

import numpy as np

SIZES = {
    "knapsack": 60,
    "knapsack_rows": 3900,
    "knapsack_lists": 170,
    "coin_change": 50_000,
    "coin_ways": 50_000,
    "hmm_forward": 750,
    "hmm_forward_rows": 23_000,
    "viterbi": 2100,
    "dynamic_time_warping": 640,
    "matrix_chain": 150,
    "increasing_subsequence": 1700,
    "partitions": 3200,
    "pascal_modulo": 1200,
    "longest_palindrome": 2500,
    "egg_drop": 320,
    "grid_paths": 730,
    "maximal_square": 630,
}


def knapsack(n, capacity=3_000):
    random = np.random.default_rng(1)
    weights, values = random.integers(1, 100, n), random.integers(1, 100, n)
    best = np.zeros((n + 1, capacity + 1), dtype=int)
    for i in range(1, n + 1):
        for w in range(capacity + 1):
            if weights[i - 1] <= w:
                best[i, w] = max(best[i - 1, w], best[i - 1, w - weights[i - 1]] + values[i - 1])
            else:
                best[i, w] = best[i - 1, w]
    return best[n, capacity]


def knapsack_rows(n, capacity=50_000):
    random = np.random.default_rng(2)
    weights, values = random.integers(1, 1000, n), random.integers(1, 100, n)
    best = np.zeros(capacity + 1, dtype=int)
    for w, v in zip(weights, values):
        best[w:] = np.maximum(best[w:], best[:-w] + v)
    return best[capacity]


def knapsack_lists(n, capacity=3_000):
    random = np.random.default_rng(3)
    weights, values = random.integers(1, 100, n).tolist(), random.integers(1, 100, n).tolist()
    best = [0] * (capacity + 1)
    for i in range(n):
        for w in range(capacity, weights[i] - 1, -1):
            best[w] = max(best[w], best[w - weights[i]] + values[i])
    return best[capacity]


def coin_change(n):
    coins = np.array([1, 5, 10, 25, 50])
    best = np.full(n + 1, n + 1)
    best[0] = 0
    for amount in range(1, n + 1):
        for coin in coins:
            if coin <= amount:
                best[amount] = min(best[amount], best[amount - coin] + 1)
    return best[n]


def coin_ways(n):
    ways = np.zeros(n + 1, dtype=np.int64)
    ways[0] = 1
    for coin in [1, 2, 5, 10, 20, 50]:
        for amount in range(coin, n + 1):
            ways[amount] += ways[amount - coin]
            ways[amount] %= 1_000_000_007
    return ways[n]


def _model(n, states, seed):
    random = np.random.default_rng(seed)
    start = random.random(states)
    move, show = random.random((states, states)), random.random((states, 4))
    start /= start.sum()
    move /= move.sum(axis=1, keepdims=True)
    show /= show.sum(axis=1, keepdims=True)
    return start, move, show, random.integers(0, 4, n)


def hmm_forward(n, states=16):
    start, move, show, seen = _model(n, states, 4)
    alpha = np.zeros((n, states))
    likelihood = 0.0
    for s in range(states):
        alpha[0, s] = start[s] * show[s, seen[0]]
    for t in range(1, n):
        total = 0.0
        for s in range(states):
            for r in range(states):
                alpha[t, s] += alpha[t - 1, r] * move[r, s]
            alpha[t, s] *= show[s, seen[t]]
            total += alpha[t, s]
        for s in range(states):
            alpha[t, s] /= total
        likelihood += np.log(total)
    return likelihood, alpha


def hmm_forward_rows(n, states=16):
    start, move, show, seen = _model(n, states, 5)
    alpha = np.zeros((n, states))
    alpha[0] = start * show[:, seen[0]]
    for t in range(1, n):
        alpha[t] = (alpha[t - 1] @ move) * show[:, seen[t]]
        alpha[t] /= alpha[t].sum()
    return alpha


def viterbi(n, states=16):
    start, move, show, seen = _model(n, states, 6)
    start, move, show = np.log(start), np.log(move), np.log(show)
    score = np.zeros((n, states))
    back = np.zeros((n, states), dtype=int)
    score[0] = start + show[:, seen[0]]
    for t in range(1, n):
        for s in range(states):
            best, where = -np.inf, 0
            for r in range(states):
                value = score[t - 1, r] + move[r, s]
                if value > best:
                    best, where = value, r
            score[t, s] = best + show[s, seen[t]]
            back[t, s] = where
    path = np.zeros(n, dtype=int)
    path[n - 1] = np.argmax(score[n - 1])
    for t in range(n - 2, -1, -1):
        path[t] = back[t + 1, path[t + 1]]
    return path


def dynamic_time_warping(n):
    random = np.random.default_rng(7)
    x, y = random.random(n), random.random(n)
    cost = np.full((n + 1, n + 1), np.inf)
    cost[0, 0] = 0
    for i in range(1, n + 1):
        for j in range(1, n + 1):
            d = abs(x[i - 1] - y[j - 1])
            cost[i, j] = d + min(cost[i - 1, j], cost[i, j - 1], cost[i - 1, j - 1])
    return cost[n, n]


def matrix_chain(n):
    sizes = np.random.default_rng(8).integers(5, 50, n + 1)
    m = np.zeros((n, n), dtype=np.int64)
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            m[i, j] = np.iinfo(np.int64).max
            for k in range(i, j):
                cost = m[i, k] + m[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
                if cost < m[i, j]:
                    m[i, j] = cost
    return m[0, n - 1]


def increasing_subsequence(n):
    x = np.random.default_rng(9).integers(0, 10_000, n)
    length = np.ones(n, dtype=int)
    for i in range(1, n):
        for j in range(i):
            if x[j] < x[i] and length[j] + 1 > length[i]:
                length[i] = length[j] + 1
    return max(length)


def partitions(n):
    ways = [1] + [0] * n
    for k in range(1, n + 1):
        for i in range(k, n + 1):
            ways[i] += ways[i - k]
    return ways[n]


def pascal_modulo(n):
    c = np.zeros((n, n), dtype=np.int64)
    for i in range(n):
        c[i, 0] = 1
        for j in range(1, i + 1):
            c[i, j] = (c[i - 1, j - 1] + c[i - 1, j]) % 1009
    return c


def longest_palindrome(n):
    text = "".join("ab"[k] for k in np.random.default_rng(10).integers(0, 2, n))
    table = np.zeros((n, n), dtype=bool)
    best = 1
    for i in range(n - 1, -1, -1):
        table[i, i] = True
        for j in range(i + 1, n):
            if text[i] == text[j] and (j - i < 2 or table[i + 1, j - 1]):
                table[i, j] = True
                best = max(best, j - i + 1)
    return best


def egg_drop(n, eggs=8):
    trials = np.zeros((eggs + 1, n + 1), dtype=int)
    for i in range(1, eggs + 1):
        trials[i, 1] = 1
    for j in range(1, n + 1):
        trials[1, j] = j
    for i in range(2, eggs + 1):
        for j in range(2, n + 1):
            trials[i, j] = 1_000_000
            for x in range(1, j + 1):
                worst = 1 + max(trials[i - 1, x - 1], trials[i, j - x])
                if worst < trials[i, j]:
                    trials[i, j] = worst
    return trials


def grid_paths(n):
    cost = np.random.default_rng(11).integers(1, 10, (n, n))
    for i in range(n):
        for j in range(n):
            if i == 0 and j == 0:
                continue
            elif i == 0:
                cost[i, j] += cost[i, j - 1]
            elif j == 0:
                cost[i, j] += cost[i - 1, j]
            else:
                cost[i, j] += min(cost[i - 1, j], cost[i, j - 1])
    return cost[-1, -1]


def maximal_square(n):
    grid = np.random.default_rng(12).random((n, n)) < 0.9
    size = np.zeros((n, n), dtype=np.int32)
    largest = 0
    for i in range(n):
        for j in range(n):
            if grid[i, j]:
                if i == 0 or j == 0:
                    size[i, j] = 1
                else:
                    size[i, j] = 1 + min(size[i - 1, j], size[i, j - 1], size[i - 1, j - 1])
                if size[i, j] > largest:
                    largest = size[i, j]
    return largest
