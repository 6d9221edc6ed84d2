"""Statements of every kind, compiled where they stand: what they leave is what Python leaves.

Each program marks the loops that have to run compiled by `# compiled`.
"""

from __future__ import annotations

import copy
import math
import os
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

import lazyfuse
from lazyfuse.loops import take_over
from tests.helpers.loop_programs import _told as told
from tests.helpers.loop_programs import code_of, compiled_at_once

RNG = np.random.default_rng(7)
A = RNG.normal(size=(20, 10))
V = RNG.normal(size=50)
P = RNG.integers(1, 60, 50)
C = V + 1j * V[::-1]
POINTS = RNG.normal(size=(20, 3))
PAIRS = RNG.integers(0, 20, (40, 2))
IMAGE = RNG.integers(0, 255, (20, 3)).astype("u1")
MORE = [POINTS, PAIRS, IMAGE]
WIDER = (
    "unpacked",
    "picked elements and axes",
    "recursion",
    "several axes",
    "views of several axes",
)

PROGRAMS = {
    "items": """
        def f(a, b, A):
            s = 0.0
            t = 0
            for i, x in enumerate(a):  # compiled
                s += x * i
            for i, (x, y) in enumerate(zip(a, b), start=3):  # compiled
                s -= x * y + i
            for x, y in zip(a, b[5:]):  # compiled
                t = max(t, y)
            for k in range(9):
                j = 6
                for j in reversed(range(j)):
                    s = s * 0.5 + j
                    if j == 3:
                        print_ = str(s)
            for k in reversed(range(10, 40, 3)):  # compiled
                t = t * 2 % 1001 + k
            for x in reversed(a):  # compiled
                s = s * 0.5 + x
            for row in A:  # compiled
                for j, x in enumerate(row):
                    s += x * j
                for x, y in zip(row, a[2:]):
                    s = s - x * y
            for i, row in enumerate(A):  # compiled
                s += row[i % 10]
                row[0] = s
            for i in range(20):  # compiled
                for di in (-1, 0, 1):
                    for dx, dy in ((1, 0), (-1, 2)):
                        t += di * dx + dy
                for j in range(40, -20, -i - 1):
                    t += j * i
                    if j == 13 and i == 2:
                        str(j)
                for k, j in enumerate(range(0, 50, i + 1), start=2):
                    t -= k * j
            return s, t, i, x, y, k, j, row, A
    """,
    "functions": """
        def gcd(a, b):
            while b:
                a, b = b, a % b
            return a
        def is_prime(n):
            if n < 2:
                return False
            for d in range(2, n):
                if d * d > n:
                    break
                if n % d == 0:
                    return False
            else:
                return True
            return True
        def norm(row, p=2):
            s = 0.0
            for x in row:
                s += x ** p
            return math.sqrt(abs(s))
        def turned(x, y, *, by=0.1):
            return x * by - y, x + y * by
        def field(p, s=10):
            x, y, z = p
            return np.array([s * (y - x), 28.0 * x - y - x * z, x * y])
        def moved(t, y):
            out = np.zeros(3)
            out[0] = y[1] * t
            return out
        def f(a, b, A):
            k = 3
            def poly(x, c=0.5):
                return k * x + c
            s = count = 0
            for i in range(1, 50):  # compiled
                s += gcd(i * 12, 900)
                if is_prime(i):
                    count += 1
            x, y, t = 1.0, 0.5, 0.0
            for i in range(50):  # compiled
                x, y = turned(x, y)
                t += poly(a[i])
            for i in range(len(A)):  # compiled
                t += norm(A[i]) + norm(row=A[i], p=3)
            for i in range(len(A) - 1):  # compiled
                A[i + 1, :3] = A[i, :3] + field(A[i, :3]) * 0.001
                v = moved(0.1, A[i]) * 2 + moved(0.2, A[i])
                A[i + 1, :3] += v
            return s, count, x, y, t, v, A
    """,
    "else": """
        def f(a, b, A):
            s = 0
            for i in range(20):  # compiled
                for j in range(i, 20):
                    if j * j == 49:
                        break
                    s += j
                else:
                    s += 1000
                    if i == 11:
                        print_ = str(i)
                k = 0
                while k < i:
                    k += 1
                    if k == 5:
                        s += 7
                        break
                else:
                    s -= 3
                    A[i, 0] = s
            while True:  # compiled
                s //= 2
                if s < 3:
                    break
            return s, k, j, A
    """,
    "numpys functions": """
        def f(a, b, A):
            s = t = 0.0
            for i in range(len(a)):  # compiled
                s += np.exp(a[i]) - np.sin(a[i]) * np.cos(a[i] * i) + np.arctan2(a[i], 2)
                s += np.hypot(a[i], 0.5) + np.log(abs(a[i]) + 1) + np.floor(a[i])
                t += np.maximum(a[i], 0.0) + np.power(2.0, a[i]) + np.round(a[i])
                t += np.clip(t, -1, 1) + np.float32(0.3) + np.log1p(0.25) + np.sqrt(b[i])
                k = np.minimum(b[i], 3)
                g = np.isnan(a[i])
                w = np.int16(round(a[i]))
                t = math.log10(abs(t) + 1) + math.gcd(i, 12) + math.radians(t)
            return s, t, k, g, w
    """,
    "integers or floats": """
        def pick(x):
            if x < 0:
                return 0
            return x * 2
        def f(a, b, A):
            C = np.zeros((20, 20))
            for i in range(10):  # compiled
                for j in range(10):
                    total = 0
                    for k in range(i):
                        total += A[i, k] * A[k + 2, j]
                    C[i, j] = total
                    m = max(0, A[i, j])
                    q = 0 if A[i, j] < 0.5 else A[i, j] * 2
                    w = pick(A[i, j]) * 0.5
                    h = 1
                    for k in range(j % 3):
                        h = h * 0.5
                    t = 5 if total > 1 else a[i]
                    if i == 4 and j == 5:
                        str(total)
            return C, total, m, q, w, h, t
    """,
    "rows": """
        def f(a, b, A):
            s = 0.0
            for i in range(len(A)):  # compiled
                A[i] = np.exp(A[i]) * 0.1 + np.maximum(A[i], 0.25)
                A[i, :5] = np.where(A[i, :5] > 0.5, A[i, :5] * 2, 0.0)
                s += np.abs(A[i] - a[:10]).sum() + np.sum(np.sin(a[::2]))
                n = np.sum(A[i] > 0.3)
                m = (A[i] < 0.9).any()
                m2 = np.all(A[i] > 0.0)
                s += a[a > 0.1].sum() + np.linalg.norm(A[i])
                s += (a[:10] * 2) @ (A[i] + 1)
                A[i] = A[i] ** 2 + np.sqrt(abs(A[i])) - A[i] % 0.3
                s += (b[:10] // 3).sum() * 0.25
                A[i][2] = s
            return s, n, m, m2, A
    """,
    "arrays of its own": """
        def f(a, b, A):
            s = 0.0
            F = np.zeros((20, 10))
            for i in range(20):
                for j in range(20):  # compiled
                    if i != j:
                        d = A[j] - A[i]
                        r2 = d @ d + 0.01
                        F[i] += d / (r2 * np.sqrt(r2))
            prev = np.zeros(31)
            cur = np.zeros(31)
            for i in range(1, 30):  # compiled
                for j in range(1, 31):
                    cur[j] = max(prev[j - 1] * 0.5, cur[j - 1]) + i * j
                prev, cur = cur, prev
            for i in range(40):  # compiled
                v = np.zeros(3)
                v[0] = a[i]
                v[1:] = i
                w = np.array([a[i], 2.0, np.tanh(s)])
                v += w * 0.5
                u = v.copy()
                u *= 2
                m = u > 1
                x = np.tanh(u * 0.01)
                old = x
                y = np.ones(i % 4)
                s = s * 0.25 + v.sum() + u @ w + m.sum() + x[0] + y.sum() + old[-1]
                k = np.zeros(2, dtype=int)
                k[i % 2] += i
            x = a[:5]
            y = x
            for i in range(40):  # compiled
                x = x * 0.9 + a[i]
                if i % 7 == 3:
                    y = x
                x[0] += y[1]
                if i == 25:
                    print_ = str(i)
            return s, F, d, prev, cur, v, w, u, m, x, y, k, old, x is y
    """,
    "complex": """
        def f(a, b, A, c):
            out = np.zeros((20, 20), dtype=int)
            for i in range(20):  # compiled
                for j in range(20):
                    z = 0j
                    k = complex(i * 0.1 - 1.5, j * 0.1 - 1)
                    m = 0
                    while abs(z) < 2 and m < 50:
                        z = z * z + k
                        m += 1
                    out[i, j] = m
            s = t = 0j
            for i in range(20):  # compiled
                t += c[i] * np.exp(2j * c[i].real) / (c[i] + 2) - c[i] ** 2
                s = s * s + (1.5 + 0.5j) / (s + 3 - 1j) - s.conjugate() * 2 + s ** 2 * 0.1
                s = s / abs(s) if s != 0 else 1j
                u = s * a[i] - a[i] * s
                c[i] = s
            for i in range(1, 20):  # compiled
                c[:i] = c[:i] * c[i] + c[1 : i + 1]
                q = c[i]
                y = -q
                w = y.imag
            return out, z, s, t, c, q, y, w, u
    """,
    "lists": """
        def f(a, b, A):
            out, places, flags, given = [], [], [], []
            x = 1.0
            for i in range(60):  # compiled
                x = 3.7 * x * (1 - x) if i % 2 else 0.3
                out.append(x)
                if i % 3 == 0:
                    places.append(i)
                    flags.append(i > 10)
                given.append(a[i % 50])
                if i == 40:
                    k = len(out)
                if out[-1] > 0.5:
                    x = out[-1] * 0.5
            many = []
            for i in range(40000):  # compiled
                many.append(i * 0.5)
            return out, places, flags, given, k, x, many
    """,
    "limits": """
        def f(a, b, A):
            least, small, roots = 0, 0, 0
            for i in range(60):  # compiled
                roots += math.isqrt(i * i + i) + math.isqrt(i)
                small += i * 1e-17 < np.finfo(float).eps
                least = min(least, np.iinfo(np.int32).min + i)
                full = np.full(5, 0.5 * i)
                whole = np.full(3, i)
                first = np.full(2, a[0])
                roots += int(full.sum()) + int(whole[1])
            return roots, small, least, full, whole, first
    """,
    "sequences": """
        def f(a, b, A):
            xs, whole = [float(x) for x in a], [int(x) for x in b]
            grid = [[i * j for j in range(7)] for i in range(9)]
            point, raw = (1.5, -2.0, 0.25), bytes(range(256))
            text = "some text, \u00e9\u4e00 123" * 3
            buffer = bytearray(b"abcdef" * 9)
            s, t, seen = 0.0, 0, []
            for i in range(len(xs)):  # compiled
                s += xs[i] * point[i % 3] - xs[-i]
                xs[i] *= 0.5
                whole[i] += raw[i] + buffer[i]
                xs[-1], xs[i] = xs[i], xs[-1]
            for i in range(9):  # compiled
                row = grid[i]
                for j in range(len(row)):
                    t += row[j] * grid[i][j]
                    grid[i][j] -= i
                for x in row:
                    t ^= x
                row[i % 7] = t
            for row in grid:  # compiled
                for x in row:
                    t += x
            for i, c in enumerate(text):  # compiled
                if "a" <= c <= "z":
                    t += ord(c) - ord("a")
                elif c in "0123456789":
                    t += int(c) * i
                elif c == text[i - 1] or c not in "\u00e9,":
                    seen.append(i)
            for x, k in zip(xs, raw):  # compiled
                s += x * k
            for k in raw:  # compiled
                t = (t + k) % 65521
            for x in whole:  # compiled
                t += x
            for k in buffer:  # compiled
                t += k
            xs.append(1)
            for x in xs:  # compiled
                s += x
            for x in whole:
                if len(whole) < 80:
                    whole.append(x + 1)
                t += x
            last = text[5]
            for i in range(40):  # compiled
                if text[i] == last:
                    last = text[i + 1]
            return s, t, xs, whole, grid, row, seen, c, k, x, last
    """,
    "attributes": """
        class Simulation:
            g = 9.81
            def __init__(self, n):
                self.dt, self.n = 0.01, n
                self.x, self.v = np.linspace(0, 1, n), np.zeros(n)
                self.trace = []
            def step(self):
                for i in range(self.n):  # compiled
                    self.v[i] += self.dt * (self.g - self.x[i])
                    self.x[i] += self.v[i] * self.dt
                    self.trace.append(self.x[i])
            def total(self):
                self.s = 0.0
                for i in range(len(self.x)):  # compiled
                    self.s += self.x[i]
                return self.s
            def renewed(self):
                r, s = self.v, 0.0
                for i in range(30):  # compiled
                    self.v = self.v + i
                    r = self.v
                    self.v = self.x * 0.5
                    s += r[0] - self.v[1]
                    r[0] += 1.0
                return s, r
        def f(a, b, A):
            made = Simulation(30)
            for k in range(5):
                made.step()
            return made.renewed(), made.v, made.x, made.v, made.total(), made.s, made.trace
    """,
    "several axes": """
        def f(a, b, A, points, pairs, image):
            s = 0.0
            n = 0
            path = np.abs(A[:10]) * 9
            for k in range(10):  # compiled
                path[:] = np.minimum(path[:], np.add.outer(path[:, k], path[k, :]))
            B = np.zeros_like(A)
            for t in range(8):  # compiled
                B[1:-1, 1:-1] = 0.2 * (A[1:-1, 1:-1] + A[1:-1, :-2] + A[2:, 1:-1] - A[:-2, 1:-1])
                A[1:-1, 1:-1] -= B[1:-1, 1:-1] ** 2
                A[:, 0] = A[:, 1]
                A[-1] = 0
            cube = np.arange(120.0).reshape(4, 5, 6)
            for t in range(6):  # compiled
                old = cube.copy()
                new = np.zeros((4, 5))
                cube[1:-1, 1:, ::2] = old[2:, 1:, ::2] * 0.5 + old[:-2, :-1, 1::2]
                cube[t % 4] *= 0.25
                new += old[:, :, t] + a[:5]
                s += new[1, 2] + old.max()
            out = np.zeros((18, 8))
            for i in range(18):  # compiled
                for j in range(8):
                    out[i, j] = (A[i:i + 3, j:j + 3] * np.ones((3, 3))).sum()
                    n += (A[i:i + 3, j:j + 3] > 0.5).sum()
                    if np.any(A[i:i + 2, j:j + 2] < -1.0):
                        n -= 1
            for k in range(8):  # compiled
                A += a[:20, None] * b[None, :10]
                A[:, 1:] = np.where(A[:, 1:] > 0.1, np.sqrt(np.abs(A[:, :-1])), a[:20, np.newaxis])
                A[:] = A - a[:10]
                image[k:k + 4, :] = image[:4] // 2
            turned = np.asfortranarray(A)
            for k in range(4):
                turned[1:, 1:] = turned[:-1, :-1] + k
                both = turned + 1.0
            for k in range(6):
                A[k:, k:] = A[: -k or None, : -k or None] * abs(a[k])
            return s, n, path, A, B, cube, old, new, out, image, turned, both, both.strides
    """,
    "picked elements and axes": """
        def f(a, b, A, points, pairs, image):
            labels = np.zeros(20, dtype=int)
            s = 0.0
            n = 0
            e = np.array([3, 1, 3, -2])
            b = b * 0.013
            for i in range(20):  # compiled
                d = ((points[i, :2] - points[:8, :2]) ** 2).sum(axis=1)
                labels[i] = np.argmin(np.sqrt(d))
                s += np.linalg.norm(points[:9] - points[i], axis=1)[1] + A.mean(axis=0)[2]
                n += np.sum(A > 0.3, axis=0)[i % 10] + image.max(axis=1)[i % 20]
                n += ((A[:, 0] > s) ^ (A[:, 1] > 0.0) & (A[:, i % 9] < 0.5)).sum()
            for i in range(9):  # compiled
                a[e] += 0.5
                a[e[1:]] = a[e[:-1]] * b[i]
                b[b > 0.9] *= 0.5
                b[np.abs(b) < a[i]] = a[np.abs(b) < a[i]] - 1.0
                A[[i, 1]] = A[[1, -i]]
                A[e] -= A[:, 1:5].sum(axis=1)[e[0]]
                image[i, :] = (image[i, ::-1] > 99) | (image[i] < 20)
                s += A.min(axis=0)[3] - A.max(axis=-1)[4] + a[labels[:5]].sum()
            for i in range(9):  # compiled
                n += np.count_nonzero(A[i] > 0.2) + np.count_nonzero(A > 0.1, axis=0)[i]
            for i in range(9):
                s += np.count_nonzero(A[i]) + np.count_nonzero(A, axis=0)[i]
            for i in range(12):
                s += np.linalg.norm(labels[:, None] * pairs[:20] * 2**30, axis=1)[i]
            for i in range(40):
                a[e + i] = s
            return s, n, labels, a, b, A, image
    """,
    "views of several axes": """
        def turned(p, q):
            x, y, z = p
            q[0] = x
            return np.array([y - q[1], z * q[2] - x, q[0]])
        def table(x, n):
            made = np.zeros((n, 3))
            made[1:] += x
            made[0, 1] = n
            return made
        def f(a, b, A, points, pairs, image):
            s = 0.0
            cube = np.arange(120.0).reshape(4, 5, 6) * a[0]
            for plane in cube:  # compiled
                plane[1:, 0] *= 0.5
                for row in plane:
                    s += row[1] - row.sum()
                part = plane[1:4, 2:]
                last = plane[-1]
            for k in range(5):  # compiled
                block = A[k:k + 3, 2:5]
                block += block[1] * 0.25
                inner = block[1:, :2]
                inner[0, k % 2] = k
                edge = inner[:, 0]
                s += edge[1] + inner[-1, -1]
                both = block[0, 0] + inner[0, 0]
            q = a[:3] * 0.5
            for k in range(9):  # compiled
                q = turned(q, a[k] + b[:3] * 0.01)
                s += q[1]
            for k in range(2, 6):  # compiled
                made = table(a[k], k)
                A[:k, :3] -= made[:k] * 0.125
                a[:3] = np.array([s])
            return s, cube, A, a, plane, part, last, block, inner, edge, both, made, row, q
    """,
    "recursion": """
        def grown(x):
            y = x * x * x
            return (y + y) % 1000003
        def fib(n):
            return n if n < 2 else fib(n - 1) + fib(n - 2)
        def deep(n):
            return 0 if n == 0 else 1 + deep(n - 1)
        def power(x, n):
            if n == 0:
                return 1.0
            y = power(x, n // 2)
            return y * y if n % 2 == 0 else x * y * y
        def even(n):
            return True if n == 0 else odd(n - 1)
        def odd(n):
            return False if n == 0 else even(n - 1)
        def pair(n):
            if n == 0:
                return 0, 1.0
            a, b = pair(n - 1)
            return a + n, b * 0.5
        def fill(grid, i, j, n):
            if i < 0 or j < 0 or i >= n or j >= 3 or grid[i, j] > 9:
                return
            grid[i, j] += 5
            fill(grid, i - 1, j, n)
            fill(grid, i, j + 1, n)
            fill(grid, i + 1, j, n)
        def find(p, i):
            if p[i] == i:
                return i
            p[i] = find(p, p[i])
            return p[i]
        def sort(a, low, high):
            if low < high:
                i = low
                for j in range(low, high):
                    if a[j] < a[high]:
                        a[i], a[j] = a[j], a[i]
                        i += 1
                a[i], a[high] = a[high], a[i]
                sort(a, low, i - 1)
                sort(a, i + 1, high)
        def f(a, b, A, points, pairs, image):
            s = 0
            t = 0.0
            places = np.maximum(np.arange(40) - 1, 0)
            k, n = 0, 1
            for i in range(100):  # compiled
                k, n = n, k + n
            s += k % n % 1000
            for i in range(1660000, 1668000, 500):  # compiled
                s += grown(i)
            for i in range(20):  # compiled
                s += fib(i % 9) + even(i)
                c, x = pair(i)
                t += power(a[i], i) + x
                s -= c
            for i in range(15):  # compiled
                fill(image, i % 4, i % 3, len(image))
                s += find(places, i)
                a[i] = -a[i]
                sort(a, 0, 30)
            for i in range(12):  # compiled
                s += deep(30 * i)
            for i in range(3):
                try:
                    s += deep(1000 * i * i)
                except RecursionError:
                    s -= 1
            return s, t, c, x, a, image, places
    """,
    "unpacked": """
        def f(a, b, A, points, pairs, image):
            s = 0
            best = 0
            t = 0.0
            for a, b in pairs:  # compiled
                s += a * 3 - b
            for k in range(len(pairs)):  # compiled
                i, j = pairs[k]
                s -= i * j
            for i in range(20):  # compiled
                red, green, blue = image[i]
                q, m = divmod(s, 7)
                s = s // 2 + q - m + int(red)
                if image[i, 0] > best:
                    best = image[i, 0]
                points[i] = t, 0.5, 1
                points[i][1] += q
                t += points[i][1]
            sieve = np.ones(201, dtype=bool)
            i = 2
            while i * i <= 200:  # compiled
                if sieve[i]:
                    for j in range(i * i, 201, i):
                        sieve[j] = False
                i += 1
            return s, best, red, green, blue, q, m, points, sieve, j
    """,
}


@pytest.mark.parametrize("ours", [False, True], ids=["numpy", "lazyfuse"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_leave_what_python_leaves(name: str, ours: bool) -> None:
    text = textwrap.dedent(PROGRAMS[name])
    given = [
        V,
        P,
        A,
        *({"complex": [C]} | dict.fromkeys(WIDER, MORE)).get(name, []),
    ]
    expected = run(text, False, given)
    before = len(take_over.loops)
    with compiled_at_once():
        assert run(text, True, given, ours) == expected
        loops = take_over.loops[before:]
    found = {each.node.lineno: each for each in loops}
    marked = [k for k, line in enumerate(text.split("\n"), 1) if line.endswith("# compiled")]
    assert marked
    for line in marked:
        assert found[line].compiled_turns, (text.split("\n")[line - 1], found[line].refused)


TEXTS = """
import hashlib
from lazyfuse.loops import entering
from tests.helpers.loop_programs import compiled_at_once
from tests.loops import test_statements as here

begin = entering.Version.__init__
def init(self, *given):
    begin(self, *given)
    print(hashlib.sha256(self.meant.text.encode()).hexdigest())
entering.Version.__init__ = init
with compiled_at_once():
    for name in ("items", "sequences", "attributes", "integers or floats"):
        here.run(here.textwrap.dedent(here.PROGRAMS[name]), True, [here.V, here.P, here.A])
"""


def test_texts_are_the_same_in_every_process() -> None:
    """Else the disk would never have them."""
    told = [
        subprocess.run(
            [sys.executable, "-c", TEXTS],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1]
    assert told[0].count("\n") > 20


def run(text: str, compiled: bool, given: list[Any], ours: bool = False) -> Any:
    """What a program returns, told by values and types; the last of three calls."""
    scope: dict[str, Any] = {"np": lazyfuse if ours else np, "math": math}
    exec(code_of(text, "<statements>", compiled), scope)
    for _ in range(3 if compiled else 1):
        copies = [lazyfuse.array(x) if ours else copy.copy(x) for x in given]
        found = scope["f"](*copies)
    return [told(each) for each in found]


@pytest.mark.parametrize(
    "name",
    ["exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh",
     "tanh", "arcsin", "arctan", "arcsinh", "sqrt", "cbrt", "square", "reciprocal", "absolute",
     "sign", "floor", "ceil", "rint", "trunc", "isfinite", "signbit", "negative", "degrees"],
)  # fmt: skip
def test_functions_have_numpys_bits(name: str) -> None:
    """Of numbers and of rows of several lengths and steps."""
    text = f"""
def f(x, n):
    out = []
    rows = np.zeros((n, n))
    for i in range(n):
        out.append(np.{name}(x[i]))
    for i in range(1, n):
        rows[i, :i] = np.{name}(x[:i])
        rows[: n // 2, i] = np.{name}(x[: n // 2 * 2 : 2])
    return out, rows
"""
    x = np.random.default_rng(3).random(40) * 0.9 + 0.05
    with compiled_at_once():
        expected, got = run(text, False, [x, 40]), run(text, True, [x, 40])
    assert got == expected
