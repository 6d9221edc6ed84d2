"""Three loops over elements and rows: the distance of two texts, dithering, an LU decomposition.

    lazyfuse examples/loops.py [size] [--times]

Written as one would write them in Python. The launcher compiles them where they stand; `--times`
shows what each of five calls takes.
"""

import sys
import time

import numpy as np


def distance(a, b):
    """Levenshtein's distance of two texts, given as numbers."""
    d = np.zeros((len(a) + 1, len(b) + 1), np.int64)
    d[:, 0] = np.arange(len(a) + 1)
    d[0, :] = np.arange(len(b) + 1)
    for i in range(len(a)):
        for j in range(len(b)):
            cost = 0 if a[i] == b[j] else 1
            d[i + 1, j + 1] = min(d[i, j + 1] + 1, d[i + 1, j] + 1, d[i, j] + cost)
    return d[-1, -1]


def dither(image):
    """Error diffusion of Floyd and Steinberg, in place; the mean of what it gives."""
    height, width = image.shape
    for y in range(height - 1):
        for x in range(1, width - 1):
            old = image[y, x]
            new = 1.0 if old > 0.5 else 0.0
            error = old - new
            image[y, x] = new
            image[y, x + 1] += error * 7 / 16
            image[y + 1, x - 1] += error * 3 / 16
            image[y + 1, x] += error * 5 / 16
            image[y + 1, x + 1] += error * 1 / 16
    return image.mean()


def factor(a):
    """LU decomposition in place; the sum of the diagonal."""
    n = a.shape[0]
    for i in range(n):
        for j in range(i):
            a[i, j] -= a[i, :j] @ a[:j, j]
            a[i, j] /= a[j, j]
        for j in range(i, n):
            a[i, j] -= a[i, :i] @ a[:i, j]
    return np.trace(a)


def main(size, shows_times):
    generator = np.random.default_rng(2024)
    texts = [generator.integers(0, 4, size) for _ in range(2)]
    image = generator.random((size // 2, size // 2))
    matrix = generator.random((size * 2 // 5,) * 2) + size * np.eye(size * 2 // 5)
    for name, run in (
        ("distance", lambda: distance(*texts)),
        ("brightness", lambda: dither(image.copy())),
        ("diagonal", lambda: factor(matrix.copy())),
    ):
        for _ in range(5 if shows_times else 1):
            begin = time.perf_counter()
            value = float(run())
            took = f" {1e3 * (time.perf_counter() - begin):9.1f} ms" if shows_times else ""
            print(f"{name:11} {value:12.4f}{took}")


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:] if each.isdigit()]
    main(numbers[0] if numbers else 200, "--times" in sys.argv)
