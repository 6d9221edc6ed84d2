"""Loops over elements as textbooks write them, and what they are given."""

import numpy as np


def jacobi(a, b):
    n = len(a)
    for _ in range(10):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                b[i, j] = 0.2 * (a[i, j] + a[i, j - 1] + a[i, j + 1] + a[i + 1, j] + a[i - 1, j])
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                a[i, j] = b[i, j]


def product(a, b, c):
    n = len(a)
    for i in range(n):
        for j in range(n):
            s = 0.0
            for k in range(n):
                s += a[i, k] * b[k, j]
            c[i, j] = s


def axpy(x, y):
    for _ in range(50):
        for i in range(len(x)):
            y[i] = y[i] + 0.5 * x[i]


def count(x):
    s = 0
    for _ in range(50):
        for i in range(len(x)):
            if x[i] > 0.5:
                s += 1
    return s


def distance(a, b, d):
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            c = 0 if a[i - 1] == b[j - 1] else 1
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + c)
    return d[len(a), len(b)]


def prefix(x, y):
    s = 0.0
    for _ in range(20):
        for i in range(len(x)):
            s += x[i]
            y[i] = s


def convolve(x, k, y):
    for i in range(len(x) - len(k) + 1):
        s = 0.0
        for j in range(len(k)):
            s += x[i + j] * k[j]
        y[i] = s


def paths(d):
    n = len(d)
    for k in range(n):
        for i in range(n):
            for j in range(n):
                t = d[i, k] + d[k, j]
                if t < d[i, j]:
                    d[i, j] = t


def histogram(v, h):
    for i in range(len(v)):
        h[v[i]] += 1


def extremes(x, y):
    low, high = x[0], x[0]
    for _ in range(50):
        for i in range(len(x)):
            y[i] = x[i] * x[i] - 1.0
            if x[i] < low:
                low = x[i]
            if x[i] > high:
                high = x[i]
    return low, high


NAMES = [
    "jacobi", "product", "axpy", "count", "distance", "prefix", "convolve", "paths", "histogram",
    "extremes",
]  # fmt: skip


def made(name):
    """The arguments of a program."""
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 5_000))
    a, b = rng.random((2, 150, 150))
    return {
        "jacobi": (a, b),
        "product": (a[:90, :90].copy(), b[:90, :90].copy(), np.zeros((90, 90))),
        "axpy": (x, y),
        "count": (x,),
        "distance": (
            rng.integers(0, 4, 300), rng.integers(0, 4, 300),
            np.add.outer(np.arange(301), np.arange(301)),
        ),
        "prefix": (x, y),
        "convolve": (x, rng.random(16), y),
        "paths": (a[:90, :90].copy(),),
        "histogram": (rng.integers(0, 100, 20_000), np.zeros(100, np.int64)),
        "extremes": (x, y),
    }[name]  # fmt: skip
