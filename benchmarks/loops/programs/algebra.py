"""Matrices, points, sorting, searching, roots."""

import math

import numpy as np

SIZES = {
    "matrix_product": 49,
    "matrix_product_brackets": 60,
    "tridiagonal": 50_000,
    "elimination": 250,
    "elimination_elements": 110,
    "cholesky_elements": 210,
    "power_iteration": 1800,
    "jacobi_sums": 1300,
    "horner": 110_000,
    "horner_reversed": 200_000,
    "kmeans": 11_000,
    "kmeans_rows": 40_000,
    "nearest": 480,
    "nearest_rows": 250,
    "bubble_sort": 1600,
    "insertion_sort": 2400,
    "shell_sort": 21_000,
    "quicksort": 41_000,
    "merge": 200_000,
    "binary_search": 61_000,
    "bisection": 34_000,
    "newton": 85_000,
    "newton_function": 37_000,
    "gradient_descent": 360_000,
    "perceptron": 320,
    "polygon_area": 440_000,
    "points_in_polygon": 3400,
    "cross_products": 82_000,
    "quaternions": 28_000,
    "haversine": 320_000,
    "interpolated": 35_000,
    "transposed": 1100,
    "norms": 100_000,
    "lookup_in_a_dict": 1_300_000,
    "nested_lists": 160,
}


def matrix_product(n):
    random = np.random.default_rng(1)
    a, b = random.random((n, n)), random.random((n, n))
    c = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            for k in range(n):
                c[i, j] += a[i, k] * b[k, j]
    return c


def matrix_product_brackets(n):
    random = np.random.default_rng(2)
    a, b = random.random((n, n)), random.random((n, n))
    c = np.zeros((n, n))
    for i in range(len(a)):
        for j in range(len(b[0])):
            total = 0
            for k in range(len(b)):
                total += a[i][k] * b[k][j]
            c[i][j] = total
    return c


def tridiagonal(n):
    random = np.random.default_rng(3)
    a, c, d = random.random(n), random.random(n), random.random(n)
    b = 3 + random.random(n)
    cp, dp, x = np.zeros(n), np.zeros(n), np.zeros(n)
    cp[0] = c[0] / b[0]
    dp[0] = d[0] / b[0]
    for i in range(1, n):
        m = b[i] - a[i] * cp[i - 1]
        cp[i] = c[i] / m
        dp[i] = (d[i] - a[i] * dp[i - 1]) / m
    x[-1] = dp[-1]
    for i in reversed(range(n - 1)):
        x[i] = dp[i] - cp[i] * x[i + 1]
    return x


def elimination(n):
    random = np.random.default_rng(4)
    a, b = random.random((n, n)), random.random(n)
    for k in range(n - 1):
        pivot = k + np.argmax(np.abs(a[k:, k]))
        if pivot != k:
            a[[k, pivot]] = a[[pivot, k]]
            b[k], b[pivot] = b[pivot], b[k]
        for i in range(k + 1, n):
            factor = a[i, k] / a[k, k]
            a[i, k:] -= factor * a[k, k:]
            b[i] -= factor * b[k]
    x = np.zeros(n)
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - np.dot(a[i, i + 1 :], x[i + 1 :])) / a[i, i]
    return x


def elimination_elements(n):
    random = np.random.default_rng(5)
    a, b = random.random((n, n)) + n * np.eye(n), random.random(n)
    for k in range(n):
        for i in range(k + 1, n):
            factor = a[i, k] / a[k, k]
            for j in range(k, n):
                a[i, j] -= factor * a[k, j]
            b[i] -= factor * b[k]
    x = np.zeros(n)
    for i in range(n - 1, -1, -1):
        total = b[i]
        for j in range(i + 1, n):
            total -= a[i, j] * x[j]
        x[i] = total / a[i, i]
    return x


def cholesky_elements(n):
    m = np.random.default_rng(6).random((n, n))
    a = m @ m.T + n * np.eye(n)
    low = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            total = sum(low[i, k] * low[j, k] for k in range(j))
            if i == j:
                low[i, j] = math.sqrt(a[i, i] - total)
            else:
                low[i, j] = (a[i, j] - total) / low[j, j]
    return low


def power_iteration(n):
    a = np.random.default_rng(7).random((n, n))
    v = np.ones(n)
    value = 0.0
    for _ in range(30):
        w = np.zeros(n)
        for i in range(n):
            w[i] = np.dot(a[i], v)
        value = np.sqrt(np.sum(w * w))
        v = w / value
    return value, v


def jacobi_sums(n):
    random = np.random.default_rng(8)
    a, b = random.random((n, n)) + n * np.eye(n), random.random(n)
    x = np.zeros(n)
    for _ in range(40):
        new = np.zeros(n)
        for i in range(n):
            s1 = np.dot(a[i, :i], x[:i])
            s2 = np.dot(a[i, i + 1 :], x[i + 1 :])
            new[i] = (b[i] - s1 - s2) / a[i, i]
        x = new
    return x


def horner(n):
    coefficients = np.array([1.0, -2.0, 0.5, 3.0, -1.0, 0.25])
    x = np.linspace(-1, 1, n)
    y = np.zeros(n)
    for i in range(n):
        value = 0.0
        for c in coefficients:
            value = value * x[i] + c
        y[i] = value
    return y


def horner_reversed(n):
    coefficients = [1.0, -2.0, 0.5, 3.0, -1.0, 0.25]
    y = np.zeros(n)
    for i, x in enumerate(np.linspace(-1, 1, n)):
        value = 0.0
        for c in reversed(coefficients):
            value = value * x + c
        y[i] = value
    return y


def kmeans(n, k=8):
    random = np.random.default_rng(9)
    points, centres = random.random((n, 2)), random.random((k, 2))
    labels = np.zeros(n, dtype=int)
    for _ in range(3):
        for i in range(n):
            best, where = float("inf"), -1
            for c in range(k):
                d = (points[i, 0] - centres[c, 0]) ** 2 + (points[i, 1] - centres[c, 1]) ** 2
                if d < best:
                    best, where = d, c
            labels[i] = where
        for c in range(k):
            mine = points[labels == c]
            if len(mine):
                centres[c] = mine.mean(axis=0)
    return labels, centres


def kmeans_rows(n, k=8):
    random = np.random.default_rng(10)
    points, centres = random.random((n, 2)), random.random((k, 2))
    labels = np.zeros(n, dtype=int)
    for i in range(n):
        distances = np.sqrt(((points[i] - centres) ** 2).sum(axis=1))
        labels[i] = np.argmin(distances)
    return labels


def nearest(n):
    points = np.random.default_rng(11).random((n, 3))
    out = np.zeros(n, dtype=np.intp)
    for i in range(n):
        least = 1e9
        for j in range(n):
            if i == j:
                continue
            d = 0.0
            for k in range(3):
                d += (points[i, k] - points[j, k]) ** 2
            if d < least:
                least = d
                out[i] = j
    return out


def nearest_rows(n):
    points = np.random.default_rng(12).random((n, 3))
    d = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            d[i, j] = np.sqrt(np.sum((points[i] - points[j]) ** 2))
    return d


def bubble_sort(n):
    a = np.random.default_rng(13).random(n)
    for i in range(n):
        swapped = False
        for j in range(0, n - i - 1):
            if a[j] > a[j + 1]:
                a[j], a[j + 1] = a[j + 1], a[j]
                swapped = True
        if not swapped:
            break
    return a


def insertion_sort(n):
    a = np.random.default_rng(14).integers(0, 10_000, n)
    for i in range(1, len(a)):
        key = a[i]
        j = i - 1
        while j >= 0 and a[j] > key:
            a[j + 1] = a[j]
            j -= 1
        a[j + 1] = key
    return a


def shell_sort(n):
    a = np.random.default_rng(15).random(n)
    gap = n // 2
    while gap > 0:
        for i in range(gap, n):
            temp = a[i]
            j = i
            while j >= gap and a[j - gap] > temp:
                a[j] = a[j - gap]
                j -= gap
            a[j] = temp
        gap //= 2
    return a


def _partition(a, low, high):
    pivot = a[high]
    i = low - 1
    for j in range(low, high):
        if a[j] <= pivot:
            i += 1
            a[i], a[j] = a[j], a[i]
    a[i + 1], a[high] = a[high], a[i + 1]
    return i + 1


def _quicksort(a, low, high):
    if low < high:
        p = _partition(a, low, high)
        _quicksort(a, low, p - 1)
        _quicksort(a, p + 1, high)


def quicksort(n):
    a = np.random.default_rng(16).random(n)
    _quicksort(a, 0, n - 1)
    return a


def merge(n):
    random = np.random.default_rng(17)
    a, b = np.sort(random.random(n)), np.sort(random.random(n))
    out = np.empty(2 * n)
    i = j = k = 0
    while i < n and j < n:
        if a[i] <= b[j]:
            out[k] = a[i]
            i += 1
        else:
            out[k] = b[j]
            j += 1
        k += 1
    while i < n:
        out[k] = a[i]
        i, k = i + 1, k + 1
    while j < n:
        out[k] = b[j]
        j, k = j + 1, k + 1
    return out


def binary_search(n):
    random = np.random.default_rng(18)
    values, wanted = np.sort(random.random(10_000)), random.random(n)
    places = np.zeros(n, dtype=int)
    for q in range(n):
        low, high = 0, len(values)
        while low < high:
            mid = (low + high) // 2
            if values[mid] < wanted[q]:
                low = mid + 1
            else:
                high = mid
        places[q] = low
    return places


def bisection(n):
    roots = np.zeros(n)
    for i in range(n):
        a, b = 0.0, 2.0
        target = i / n
        while b - a > 1e-12:
            m = (a + b) / 2
            if m * math.exp(m) < target:
                a = m
            else:
                b = m
        roots[i] = (a + b) / 2
    return roots


def newton(n):
    roots = np.zeros(n)
    for i in range(1, n):
        x = float(i)
        for _ in range(50):
            new = 0.5 * (x + i / x)
            if abs(new - x) < 1e-12 * x:
                break
            x = new
        roots[i] = x
    return roots


def _f(x, e, m):
    return x - e * np.sin(x) - m


def _df(x, e):
    return 1 - e * np.cos(x)


def newton_function(n, e=0.6):
    anomalies = np.linspace(0, 3, n)
    found = np.zeros(n)
    for i in range(n):
        x = anomalies[i]
        step = 1.0
        while abs(step) > 1e-10:
            step = _f(x, e, anomalies[i]) / _df(x, e)
            x -= step
        found[i] = x
    return found


def gradient_descent(n):
    random = np.random.default_rng(19)
    x = random.random(200)
    y = 3.0 * x + 0.5 + 0.01 * random.standard_normal(200)
    slope, offset = 0.0, 0.0
    for step in range(n):
        i = step % 200
        error = slope * x[i] + offset - y[i]
        slope -= 0.05 * error * x[i]
        offset -= 0.05 * error
        if step % 5000 == 4999:
            loss = np.mean((slope * x + offset - y) ** 2)
            if loss < 1e-12:
                break
    return slope, offset


def perceptron(n):
    random = np.random.default_rng(20)
    data = random.standard_normal((500, 4))
    labels = np.where(data @ np.array([1.0, -2.0, 0.5, 0.3]) > 0.1, 1, -1)
    w, b = np.zeros(4), 0.0
    for _ in range(n):
        for x, t in zip(data, labels):
            if t * (np.dot(w, x) + b) <= 0:
                w += 0.1 * t * x
                b += 0.1 * t
    return w, b


def polygon_area(n):
    angle = np.linspace(0, 2 * np.pi, n, endpoint=False)
    x, y = np.cos(angle), np.sin(angle)
    area = 0.0
    for i in range(n):
        j = (i + 1) % n
        area += x[i] * y[j] - x[j] * y[i]
    return abs(area) / 2


def points_in_polygon(n):
    random = np.random.default_rng(21)
    polygon = random.random((40, 2))
    xs, ys = random.random(n), random.random(n)
    inside = np.zeros(n, dtype=bool)
    for p in range(n):
        j = len(polygon) - 1
        for i in range(len(polygon)):
            xi, yi = polygon[i]
            xj, yj = polygon[j]
            if (yi > ys[p]) != (yj > ys[p]):
                if xs[p] < (xj - xi) * (ys[p] - yi) / (yj - yi) + xi:
                    inside[p] = not inside[p]
            j = i
    return inside


def cross_products(n):
    random = np.random.default_rng(22)
    a, b = random.random((n, 3)), random.random((n, 3))
    total = np.zeros(3)
    for i in range(n):
        c = np.zeros(3)
        c[0] = a[i, 1] * b[i, 2] - a[i, 2] * b[i, 1]
        c[1] = a[i, 2] * b[i, 0] - a[i, 0] * b[i, 2]
        c[2] = a[i, 0] * b[i, 1] - a[i, 1] * b[i, 0]
        total += c
    return total


def _multiply(p, q):
    w1, x1, y1, z1 = p
    w2, x2, y2, z2 = q
    return np.array([
        w1 * w2 - x1 * x2 - y1 * y2 - z1 * z2,
        w1 * x2 + x1 * w2 + y1 * z2 - z1 * y2,
        w1 * y2 - x1 * z2 + y1 * w2 + z1 * x2,
        w1 * z2 + x1 * y2 - y1 * x2 + z1 * w2,
    ])  # fmt: skip


def quaternions(n):
    turn = np.array([math.cos(0.01), math.sin(0.01), 0.0, 0.0])
    q = np.array([1.0, 0.0, 0.0, 0.0])
    for _ in range(n):
        q = _multiply(q, turn)
        q = q / np.sqrt(np.sum(q**2))
    return q


def haversine(n):
    random = np.random.default_rng(23)
    lat, lon = random.random(n) * 180 - 90, random.random(n) * 360 - 180
    out = np.zeros(n)
    for i in range(n):
        a, b = math.radians(lat[i]), math.radians(lon[i])
        s = math.sin((a - 0.9) / 2) ** 2 + math.cos(a) * math.cos(0.9) * math.sin(b / 2) ** 2
        out[i] = 2 * 6371 * math.asin(math.sqrt(s))
    return out


def interpolated(n):
    random = np.random.default_rng(24)
    xs, ys, wanted = np.sort(random.random(100)), random.random(100), random.random(n)
    out = np.zeros(n)
    for q in range(n):
        x = wanted[q]
        if x <= xs[0]:
            out[q] = ys[0]
        elif x >= xs[-1]:
            out[q] = ys[-1]
        else:
            k = 0
            while xs[k + 1] < x:
                k += 1
            t = (x - xs[k]) / (xs[k + 1] - xs[k])
            out[q] = ys[k] + t * (ys[k + 1] - ys[k])
    return out


def transposed(n):
    a = np.arange(n * n).reshape(n, n)
    for i in range(n):
        for j in range(i + 1, n):
            a[i, j], a[j, i] = a[j, i], a[i, j]
    return a


def norms(n):
    points = np.random.default_rng(25).random((n, 3))
    total = 0.0
    for p in points:
        total += np.linalg.norm(p)
    return total


def lookup_in_a_dict(n):
    table = {k: k * k % 97 for k in range(100)}
    values = np.random.default_rng(26).integers(0, 100, n)
    total = 0
    for v in values:
        total += table[int(v)]
    return total


def nested_lists(n):
    a = [[(i * j) % 7 + 0.5 for j in range(n)] for i in range(n)]
    b = [[(i + j) % 5 - 0.5 for j in range(n)] for i in range(n)]
    c = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(n):
            for k in range(n):
                c[i][j] += a[i][k] * b[k][j]
    return np.array(c)
