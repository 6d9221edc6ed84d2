"""`python -m benchmarks.statements`: ordinary statements in loops, in NumPy and lazyfuse by turns.

One statement at a time, as programs repeat them: on rows, columns and elements, with masks and
`out=`, products, concatenations, sorts, indices. Nothing is chosen for what lazyfuse does well. A
figure is the speed beside NumPy's: the median of the loops' times, values asked for at the end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy

import lazyfuse
from benchmarks.libraries import compiled_ahead

SIZES = (100, 1_000, 10_000, 40_000, 100_000, 1_000_000)
SECONDS = 0.004  # of a loop in NumPy, about

# Beside `np`: square matrices m and q, vectors v and w of as many elements, whole numbers p of the
# same length (a permutation) and s (few different ones), a row r and a column c of the matrix, the
# number of rows n, the turn k, a row to look at, i, and a structured array z with fields u and v.
STATEMENTS: dict[str, tuple[str, ...]] = {
    "rows and columns": (
        "m[i] = q[i] * 2 + q[i - 1]",
        "m[:, i] = q[:, i] * 2 + q[:, i - 1]",
        "m[i] /= m[i].sum()",
        "m[i] += r",
        "m[i, :] -= m[i - 1, :] * 0.5",
        "m[i, 1:-1] = 0.5 * (q[i, 2:] + q[i, :-2])",
        "t = m[i].max() - m[i].min()",
        "t = q[i] @ q[:, i]",
        "t = np.dot(q[i], r)",
        "t = np.linalg.norm(q[i])",
        "m[i], m[i - 1] = m[i - 1].copy(), m[i].copy()",
        "m[0, :] = 0.0; m[-1, :] = 0.0; m[:, 0] = 0.0; m[:, -1] = 1.0",
        "m[0, :] = m[1, :]; m[:, -1] = m[:, -2]",
        "m[i, :i] -= q[i, i] * q[:i, i]",
        "m[i][r > 0.5] = 0.0",
        "t = [x[0] for x in m]",
        "t = np.concatenate((m[i], r))",
        "t = np.stack((m[i], m[i - 1]))",
    ),
    "elements": (
        "m[i, k % n] = 1.5",
        "m[i, i] += q[i, i - 1] * 0.5",
        "t = m[i, k % n] + v[i]",
        "v[k] = w[k] * 2.0",
        "t = float(v[i])",
        "v[k] = np.sqrt(w[k]) + 1.0",
        "t = sum(v[:50])",
        "v[k], v[i] = v[i], v[k]",
    ),
    "whole arrays": (
        "x = v * 2 + w; t = float(x[0])",
        "v += w; v *= 0.5",
        "v[:] = w * 0.25 - v",
        "v[1:-1] = 0.5 * (w[2:] + w[:-2])",
        "m[1:-1, 1:-1] = 0.25 * (q[2:, 1:-1] + q[:-2, 1:-1] + q[1:-1, 2:] + q[1:-1, :-2])",
        "np.multiply(v, w, out=x)",
        "np.add(x, v, out=x); np.subtract(x, w, out=x)",
        "t = float((v * w).sum())",
        "x = np.sqrt(v * v + w * w)",
        "x = np.exp(-w) * v",
        "x = np.where(v > w, v, w)",
        "x = np.maximum(v, 0.5) - np.minimum(w, 0.5)",
        "x = np.clip(v, 0.2, 0.8)",
        "x = (v - v.mean()) / v.std()",
        "x = m - m.mean(axis=0)",
        "x = m / m.sum(axis=1, keepdims=True)",
        "x = m * r + c",
        "x = abs(v - w).max()",
        "x = v.copy(); x[:10] = 0.0",
        "x = np.zeros_like(v); x += w",
        "x = v.astype(np.float32)",
        "x = m.T + q",
        "x = np.roll(v, 1) - v",
        "x = np.diff(v)",
        "x = v ** 2 + w ** 3",
        "x = v[:-1:2] + w[1::2]",
        "x = m.reshape(-1) + v",
        "t = bool(np.any(v > 2.0))",
        "t = np.allclose(v, w)",
    ),
    "reductions and orders": (
        "x = m.sum(axis=0)",
        "x = m.sum(axis=1)",
        "x = m.argmax(axis=1)",
        "t = v.argmin()",
        "x = np.cumsum(v)",
        "x = np.cumsum(m, axis=0)",
        "x = np.sort(v)",
        "x = np.argsort(v)",
        "x = np.median(v)",
        "t = np.count_nonzero(v > 0.5)",
        "x = np.unique(s)",
        "x = np.bincount(s)",
        "x = np.searchsorted(w, v[:100])",
    ),
    "masks and indices": (
        "v[v > 0.9] = 0.5",
        "v[v < w] *= 0.5",
        "x = v[w > 0.5]",
        "t = v[w > 0.5].sum()",
        "x = v[p]",
        "v[p[:100]] = 0.5",
        "x = np.take(v, p)",
        "np.add.at(x, s, v)",
        "x = np.nonzero(v > 0.5)[0]",
        "m[[0, i]] = m[[i, 0]]",
        "x = m[p[:10] % n]",
        "m[w[:n] > 0.5] = 0.25",
    ),
    "products and joins": (
        "x = m @ r",
        "x = r @ m",
        "t = v @ w",
        "x = np.outer(r, r)",
        "x = np.concatenate((v, w))",
        "x = np.append(v, 1.0)",
        "x = np.vstack((m, r))",
        "x = np.stack((v, w), axis=1)",
        "x = np.array([v[0], v[1], v[2]])",
    ),
}
MOVES = (
    "m = m + 0.1 * (np.roll(m, 1, 0) + np.roll(m, -1, 0) + np.roll(m, 1, 1) + np.roll(m, -1, 1)"
    " - 4 * m)",
    "x = np.concatenate([v[1:], v[:1]]) - v",
    "x = v[::2] + v[1::2]",
    "x = 0.5 * (np.roll(v, -1) + v); v = v - 0.1 * (x - np.roll(x, 1))",
    "x = np.pad(m, 1, mode='edge'); x = x[2:, 1:-1] + x[:-2, 1:-1] - 2 * m",
    "x = np.pad(m, 1, mode='wrap') * 0.5",
    "x = np.gradient(v)",
    "x = np.diff(v * w)",
    "x = np.concatenate([m * 2, q + 1]) * 0.5",
    "x = np.stack([v * w, v + w], axis=-1)",
    "x = (v * w)[::-1] + v",
    "x = np.tile(m, (2, 1)) * 2",
    "x = np.flip(m + q, 1) * m",
    "x = np.delete(v, 3) * 2",
    "x = np.insert(m, 1, 0, axis=0) * 2",
    "x = np.repeat(v, 2) * 0.5",
    "x = np.roll(m, 7) + m",
    "x = np.convolve(v * 0.5, [1, 2, 1], 'valid')",
    "z['u'] += 0.1 * (z['v'] - z['u']); z['v'][1:] = z['u'][:-1] * 0.5",
)
"""Results whose elements lie elsewhere in their operands: `--moves`."""


def names(np: Any, size: int) -> dict[str, Any]:
    """What a statement may name; see `STATEMENTS`."""
    random = numpy.random.default_rng(7)
    n = max(4, round(size**0.5))
    m, q, r = random.random((n, n)), random.random((n, n)), random.random(n)
    v, w = random.random(n * n), random.random(n * n)
    p, s = random.permutation(n * n), random.integers(0, 16, n * n)
    arrays = {"m": m, "q": q, "r": r, "c": r[:, None], "v": v, "w": w, "x": v * 0.5, "p": p, "s": s}
    found = {name: np.array(each) for name, each in arrays.items()}
    found["z"] = np.ones(n * n, [("u", "f8"), ("v", "f8")])
    return {"np": np, "n": n, "i": n // 2, "k": 0, "t": 0.0, **found}


def loop(np: Any, text: str, size: int) -> Callable[[int], float]:
    """A function that runs a statement that many times and returns the seconds it took."""
    scope = names(np, size)
    body = f"for k in range(turns):\n    {text}"
    code = compile(body, "<statement>", "exec")

    def run(turns: int) -> float:
        scope["turns"] = min(turns, size)
        began = time.perf_counter()
        exec(code, scope)
        for name in "mvxt":
            numpy.asarray(scope[name])
        numpy.asarray(scope["z"]["u"])
        return (time.perf_counter() - began) / scope["turns"]

    return run


def measured(text: str, size: int, seconds: float) -> tuple[float, float]:
    """The median times of a statement in NumPy and in lazyfuse, run in turns."""
    theirs, ours = loop(numpy, text, size), loop(lazyfuse, text, size)
    turns = max(3, min(size, int(SECONDS / max(theirs(3), 1e-7))))
    ended = time.perf_counter() + seconds
    while time.perf_counter() < ended:
        ours(turns)
    compiled_ahead(lambda: ours(turns))
    first, second = [], []
    ended = time.perf_counter() + seconds
    while len(first) < 5 or time.perf_counter() < ended:
        first.append(theirs(turns))
        second.append(ours(turns))
    return statistics.median(first), statistics.median(second)


def summary(ratios: Sequence[float]) -> str:
    """How a list of ratios is told."""
    low = sum(each < 0.9 for each in ratios)
    return f"{statistics.geometric_mean(ratios):5.2f}, {low} of {len(ratios)} below 0.9"


def main(given: Sequence[str]) -> None:
    """Measure, print a table of ratios, and write them to a file if one is named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.statements", description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="elements, with commas")
    parser.add_argument("--moves", action="store_true", help="statements of moves instead")
    parser.add_argument("--only", default="", help="statements that contain one of these, by '|'")
    parser.add_argument("--seconds", type=float, default=0.15, help="per statement, size and part")
    parser.add_argument("--json", help="file for the figures: nanoseconds in NumPy and in lazyfuse")
    options = parser.parse_args(given)
    sizes = [int(float(word)) for word in options.sizes.split(",")]
    print(" ".join(f"{size:>8.0e}" for size in sizes) + "  speed beside NumPy's")
    found: dict[str, list[tuple[float, float]]] = {}
    for group, texts in ({"moves": MOVES} if options.moves else STATEMENTS).items():
        chosen = [text for text in texts if any(word in text for word in options.only.split("|"))]
        for text in chosen:
            found[text] = [measured(text, size, options.seconds) for size in sizes]
            ratios = [first / second for first, second in found[text]]
            print(" ".join(f"{each:8.2f}" for each in ratios) + f"  {text}", flush=True)
        if chosen:
            print(f"-- {group}")
    for at, size in enumerate(sizes):
        print(f"{size:8.0e}: {summary([each[at][0] / each[at][1] for each in found.values()])}")
    if options.json:
        figures = {
            text: [[round(1e9 * seconds) for seconds in pair] for pair in each]
            for text, each in found.items()
        }
        Path(options.json).write_text(json.dumps({"sizes": sizes, "ns": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
