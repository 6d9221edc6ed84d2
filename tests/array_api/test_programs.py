"""Small programs written against the standard give equal results in every namespace."""

from __future__ import annotations

from typing import Any

import array_api_strict as strict
import numpy
import pytest

import lazyfuse
import lazyfuse.array_api as xp
from tests.array_api.comparing import as_numpy, check_same


def softmax_regression(np: Any, size: int) -> Any:
    """A few steps of gradient descent; the loss of each."""
    x = np.reshape(np.linspace(-1, 1, 3 * size), (size, 3))
    labels = np.astype(np.sum(x, axis=1) > 0, np.int64)
    target = np.astype(labels[:, None] == np.arange(2), x.dtype)
    weights = np.zeros((3, 2))
    losses = []
    for _ in range(5):
        scores = x @ weights
        scores = scores - np.max(scores, axis=1, keepdims=True)
        likely = np.exp(scores) / np.sum(np.exp(scores), axis=1, keepdims=True)
        losses.append(-np.mean(np.log(np.sum(likely * target, axis=1))))
        weights -= 0.5 * (x.mT @ (likely - target)) / size
    return np.stack(losses), weights


def nearest_centres(np: Any, size: int) -> Any:
    """Lloyd's iteration for clusters, with masks and counts."""
    x = np.concat([np.linspace(-2, -1, size), np.linspace(0, 1, size), np.linspace(4, 6, size)])
    centres = np.asarray([-1.0, 0.5, 3.0])
    for _ in range(4):
        nearest = np.argmin(np.abs(x[:, None] - centres), axis=1)
        means = [np.mean(x[nearest == k]) for k in range(3)]
        centres = np.stack(means)
    found = np.unique_counts(nearest)
    return centres, nearest, np.sort(found.counts, descending=True)


def power_iteration(np: Any, size: int) -> Any:
    """The largest eigenvalue of a symmetric matrix, by norms and products."""
    n = 40
    i = np.arange(n, dtype=np.float64)
    a = np.exp(-np.abs(i[:, None] - i)) + np.eye(n)
    v = np.ones(n) / n**0.5
    for _ in range(30):
        v = a @ v
        v = v / np.linalg.vector_norm(v)
    largest = np.vecdot(v, a @ v)
    return largest, np.max(np.linalg.eigvalsh(a)), np.linalg.slogdet(a).logabsdet


def smoothing(np: Any, size: int) -> Any:
    """A filter in the frequencies, then the places where the signal changes sign."""
    t = np.linspace(0, 6, size, endpoint=False)
    signal = np.sin(t * 9) + 0.3 * np.cos(t * 80)
    spectrum = np.fft.rfft(signal)
    far = np.fft.rfftfreq(size, d=6 / size) > 4.0
    spectrum[far] = 0
    smooth = np.fft.irfft(spectrum, n=size)
    crossings = np.nonzero(np.signbit(smooth[1:]) != np.signbit(smooth[:-1]))[0]
    return smooth, crossings, np.any(far)


def life(np: Any, size: int) -> Any:
    """Conway's game on a torus, in integers and booleans."""
    n = 24
    cells = np.reshape(np.arange(n * n) * 7 % 11 < 4, (n, n))
    shifts = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]
    for _ in range(6):
        counts = sum(
            (np.roll(np.astype(cells, np.int8), shift, axis=(0, 1)) for shift in shifts),
            start=np.zeros((n, n), dtype=np.int8),
        )
        cells = (counts == 3) | (cells & (counts == 2))
    return cells, np.count_nonzero(cells), np.cumulative_sum(np.count_nonzero(cells, axis=1))


def table_look_up(np: Any, size: int) -> Any:
    """Interpolation by searchsorted and take, limits by clip, gaps by where."""
    table = np.linspace(0, 3, 16) ** 2
    x = np.clip(np.linspace(-1, 10, size), min=0.0, max=8.9)
    place = np.clip(np.searchsorted(table, x, side="right") - 1, 0, 14)
    low, high = np.take(table, place), np.take(table, place + 1)
    part = (x - low) / (high - low)
    steps = np.astype(np.floor(x // 0.5), np.int32)
    return np.where(part > 0.5, high, low), part, np.isin(steps, np.asarray([3, 4], dtype=np.int32))


PROGRAMS = (softmax_regression, nearest_centres, power_iteration, smoothing, life, table_look_up)


@pytest.mark.parametrize("size", [60, 9000], ids=["small", "recorded"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs(program: Any, size: int) -> None:
    want = as_numpy(program(strict, size))
    for namespace in (xp, lazyfuse):
        found = program(namespace, size)
        what = f"{program.__name__} in {namespace.__name__}"
        check_same(as_numpy(found), want, what, atol=1e-9)


def test_the_namespace_comes_from_the_array() -> None:
    def program(x: Any) -> Any:
        np = x.__array_namespace__(api_version="2024.12")
        return np.mean((x - np.mean(x)) ** 2)

    x = numpy.linspace(0, 1, 11)
    found = [float(program(each)) for each in (xp.asarray(x), lazyfuse.asarray(x), x)]
    assert numpy.allclose(found, x.var())
