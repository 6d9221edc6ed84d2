"""Graphs as matrices, lists of edges and compressed rows."""

import numpy as np

SIZES = {
    "union_find": 100_000,
    "union_find_in_place": 100_000,
    "dijkstra": 1000,
    "prim": 400,
    "bellman_ford": 10_000,
    "floyd_warshall": 70,
    "floyd_warshall_rows": 250,
    "breadth_first": 320,
    "pagerank": 10_000,
    "csr_matvec": 20_000,
    "csr_matvec_slices": 55_000,
    "topological": 50_000,
    "triangles": 310,
}


def _find(parent, i):
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


def union_find(n):
    pairs = np.random.default_rng(1).integers(0, n, (n, 2))
    parent = np.arange(n)
    sets = n
    for a, b in pairs:
        ra, rb = _find(parent, a), _find(parent, b)
        if ra != rb:
            parent[ra] = rb
            sets -= 1
    return sets


def union_find_in_place(n):
    random = np.random.default_rng(2)
    first, second = random.integers(0, n, n), random.integers(0, n, n)
    parent = np.arange(n)
    size = np.ones(n, dtype=int)
    sets = n
    for k in range(n):
        a = first[k]
        while parent[a] != a:
            a = parent[a]
        b = second[k]
        while parent[b] != b:
            b = parent[b]
        if a != b:
            if size[a] < size[b]:
                a, b = b, a
            parent[b] = a
            size[a] += size[b]
            sets -= 1
    return sets, size.max()


def dijkstra(n):
    random = np.random.default_rng(3)
    weights = random.random((n, n)) * 100
    distance = np.full(n, np.inf)
    done = np.zeros(n, dtype=bool)
    distance[0] = 0
    for _ in range(n):
        u, best = -1, np.inf
        for i in range(n):
            if not done[i] and distance[i] < best:
                u, best = i, distance[i]
        if u == -1:
            break
        done[u] = True
        for v in range(n):
            if not done[v]:
                d = distance[u] + weights[u, v]
                if d < distance[v]:
                    distance[v] = d
    return distance


def prim(n):
    points = np.random.default_rng(4).random((n, 2))
    nearest = [float("inf")] * n
    used = [False] * n
    nearest[0] = 0.0
    total = 0.0
    for _ in range(n):
        u = -1
        for i in range(n):
            if not used[i] and (u == -1 or nearest[i] < nearest[u]):
                u = i
        used[u] = True
        total += nearest[u]
        for v in range(n):
            dx = points[u, 0] - points[v, 0]
            dy = points[u, 1] - points[v, 1]
            d = (dx * dx + dy * dy) ** 0.5
            if not used[v] and d < nearest[v]:
                nearest[v] = d
    return total


def bellman_ford(n):
    random = np.random.default_rng(5)
    edges = 4 * n
    source, target = random.integers(0, n, edges), random.integers(0, n, edges)
    weight = random.random(edges)
    distance = np.full(n, np.inf)
    distance[0] = 0.0
    for turn in range(n - 1):
        changed = False
        for e in range(edges):
            if distance[source[e]] + weight[e] < distance[target[e]]:
                distance[target[e]] = distance[source[e]] + weight[e]
                changed = True
        if not changed:
            break
    return turn, distance


def floyd_warshall(n):
    d = np.random.default_rng(6).random((n, n)) * 10
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if d[i, k] + d[k, j] < d[i, j]:
                    d[i, j] = d[i, k] + d[k, j]
    return d


def floyd_warshall_rows(n):
    d = np.random.default_rng(7).random((n, n)) * 10
    for k in range(n):
        for i in range(n):
            d[i] = np.minimum(d[i], d[i, k] + d[k])
    return d


def breadth_first(n):
    walls = np.random.default_rng(8).random((n, n)) < 0.3
    walls[0, 0] = False
    steps = np.full((n, n), -1)
    queue = np.zeros((n * n, 2), dtype=int)
    head, tail = 0, 1
    steps[0, 0] = 0
    directions = [(0, 1), (1, 0), (0, -1), (-1, 0)]
    while head < tail:
        i, j = queue[head, 0], queue[head, 1]
        head += 1
        for di, dj in directions:
            a, b = i + di, j + dj
            if 0 <= a < n and 0 <= b < n and not walls[a, b] and steps[a, b] < 0:
                steps[a, b] = steps[i, j] + 1
                queue[tail, 0], queue[tail, 1] = a, b
                tail += 1
    return steps


def _sparse(n, seed):
    random = np.random.default_rng(seed)
    counts = random.integers(1, 8, n)
    starts = np.concatenate(([0], np.cumsum(counts)))
    return starts, random.integers(0, n, starts[-1]), random.random(starts[-1])


def pagerank(n):
    starts, targets, _ = _sparse(n, 9)
    rank = np.full(n, 1.0 / n)
    for _ in range(5):
        new = np.full(n, 0.15 / n)
        for i in range(n):
            share = 0.85 * rank[i] / (starts[i + 1] - starts[i])
            for k in range(starts[i], starts[i + 1]):
                new[targets[k]] += share
        rank = new
    return rank


def csr_matvec(n):
    indptr, indices, data = _sparse(n, 10)
    x = np.random.default_rng(11).random(n)
    for _ in range(3):
        y = np.zeros(n)
        for i in range(n):
            total = 0.0
            for k in range(indptr[i], indptr[i + 1]):
                total += data[k] * x[indices[k]]
            y[i] = total
        x = y / y.max()
    return x


def csr_matvec_slices(n):
    indptr, indices, data = _sparse(n, 12)
    x = np.random.default_rng(13).random(n)
    y = np.zeros(n)
    for i in range(n):
        begin, end = indptr[i], indptr[i + 1]
        y[i] = np.dot(data[begin:end], x[indices[begin:end]])
    return y


def topological(n):
    starts, targets, _ = _sparse(n, 14)
    degree = np.zeros(n, dtype=int)
    for i in range(n):
        for k in range(starts[i], starts[i + 1]):
            if targets[k] > i:
                degree[targets[k]] += 1
    order = np.zeros(n, dtype=int)
    tail = 0
    for i in range(n):
        if degree[i] == 0:
            order[tail] = i
            tail += 1
    head = 0
    while head < tail:
        i = order[head]
        head += 1
        for k in range(starts[i], starts[i + 1]):
            t = targets[k]
            if t > i:
                degree[t] -= 1
                if degree[t] == 0:
                    order[tail] = t
                    tail += 1
    return order


def triangles(n):
    adjacent = np.random.default_rng(15).random((n, n)) < 0.5
    count = 0
    for i in range(n):
        for j in range(i + 1, n):
            if adjacent[i, j]:
                for k in range(j + 1, n):
                    if adjacent[j, k] and adjacent[i, k]:
                        count += 1
    return count
