"""Functions of every topic, compared with NumPy: recorded, followed, host calls, at once."""
# ruff: noqa: E501  # one call a line

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyfuse
from tests.helpers.compare import both

A = np.random.default_rng(1).normal(size=(6, 8))
B = np.random.default_rng(2).normal(size=(6, 8))
N = np.random.default_rng(3).integers(-5, 6, (6, 8))
U = np.random.default_rng(4).integers(0, 5, (6, 8)).astype("u1")
C = A + 1j * B
HOLES = np.where(abs(A) < 0.4, np.nan, A)
SQUARE = A[:, :6] + 6 * np.eye(6)

Call = Callable[..., Any]
CALLS: dict[str, Call] = {
    # choosing values
    "where": lambda xp, a, b: [xp.where(a > b, a, b), xp.where(a > 0, 1, 0), xp.where(a, b[0], 2)],
    "where views": lambda xp, a, b: xp.where(a.T > 0, b.T, a.T),
    "where alone": lambda xp, a, b: xp.where(a > 0),
    "where errors": lambda xp, a, b: xp.where(a > 0, a),
    "clip": lambda xp, a, b: [xp.clip(a, -0.5, 0.5), xp.clip(a, None, b), xp.clip(a, b, None)],
    "clip method": lambda xp, a, b: [a.clip(0), a.clip(max=0), a.clip(-1, 1, out=a)],
    "clip nothing": lambda xp, a, b: [xp.clip(a), xp.clip(a, None, None), xp.clip(a, min=0, max=1)],
    "clip errors": lambda xp, a, b: xp.clip(a, 1),
    "round": lambda xp, a, b: [xp.round(a), xp.round(a, 2), a.round(-1), xp.around(a, 1)],
    "select": lambda xp, a, b: xp.select([a > 1, a > 0], [a, b], -1),
    "choose": lambda xp, a, b: xp.choose((a > 0).astype(int), [a, b]),
    "piecewise": lambda xp, a, b: xp.piecewise(a, [a < 0, a >= 0], [lambda x: -x, lambda x: x * 2]),
    "copyto": lambda xp, a, b: [xp.copyto(a, b), a, xp.copyto(a, 3, where=b > 0), a],
    "copyto casting": lambda xp, a, b: xp.copyto(xp.zeros((6, 8), int), a),
    "put": lambda xp, a, b: [xp.put(a, [0, 9], [1, 2]), a, xp.putmask(a, b > 0, b), a],
    "place": lambda xp, a, b: [xp.place(a, b > 0, [1, 2]), a, xp.fill_diagonal(a, 7), a],
    "nan_to_num": lambda xp, a, b: xp.nan_to_num(xp.where(a > 0, xp.nan, a), nan=-1),
    "isclose": lambda xp, a, b: [xp.isclose(a, b), xp.allclose(a, a), xp.array_equal(a, b)],
    "maximum of many": lambda xp, a, b: xp.maximum(xp.minimum(a, b), 0.1),
    "fix": lambda xp, a, b: [xp.fix(a), xp.isposinf(a), xp.isneginf(a), xp.sinc(a)],
    "real": lambda xp, a, b: [xp.real(a), xp.imag(a), xp.angle(a), xp.isreal(a), xp.real_if_close(a)],
    "unwrap": lambda xp, a, b: xp.unwrap(a * 5),
    "heaviside": lambda xp, a, b: [xp.heaviside(a, 0.5), xp.sign(a), xp.trunc(a), xp.nan_to_num(a)],
    # differences and products
    "diff": lambda xp, a, b: [xp.diff(a), xp.diff(a, 2, 0), xp.diff(a, prepend=0), xp.ediff1d(a)],
    "gradient": lambda xp, a, b: [xp.gradient(a), xp.gradient(a, 0.5, axis=1, edge_order=2)],
    "trapezoid": lambda xp, a, b: [xp.trapezoid(a), xp.trapezoid(a, dx=0.1, axis=0)],
    "cross": lambda xp, a, b: xp.cross(a[:, :3], b[:, :3]),
    "dot": lambda xp, a, b: [xp.dot(a, b.T), a @ b.T, xp.inner(a, b), xp.vdot(a, b), xp.outer(a, b)],
    "dot vectors": lambda xp, a, b: [xp.dot(a[0], b[1]), a[0] @ b[1], a @ b[0], xp.dot(a, 2)],
    "dot errors": lambda xp, a, b: xp.dot(a, b),
    "matmul errors": lambda xp, a, b: a @ b,
    "matmul stacks": lambda xp, a, b: xp.matmul(a.reshape(2, 3, 8), b.reshape(2, 8, 3)),
    "matmul out": lambda xp, a, b: xp.matmul(a, b.T, out=xp.zeros((6, 6))),
    "vecdot": lambda xp, a, b: [xp.vecdot(a, b), xp.matvec(a, b[0]), xp.vecmat(b[:, 0], a)],
    "tensordot": lambda xp, a, b: [xp.tensordot(a, b), xp.tensordot(a, b, ([0], [0]))],
    "einsum": lambda xp, a, b: [xp.einsum("ij,ij->i", a, b), xp.einsum("ij,kj", a, b, optimize=True)],
    "kron": lambda xp, a, b: xp.kron(a[:2], b[:2]),
    "average": lambda xp, a, b: [xp.average(a, weights=b * b), xp.average(a, 1, returned=True)],
    "cov": lambda xp, a, b: [xp.cov(a), xp.corrcoef(a, b)],
    "percentile": lambda xp, a, b: [xp.percentile(a, [25, 75]), xp.quantile(a, 0.3, axis=1)],
    "convolve": lambda xp, a, b: [xp.convolve(a[0], b[1]), xp.correlate(a[0], b[1], "same")],
    "interp": lambda xp, a, b: [xp.interp(a, [-1, 0, 1], [3, 4, 9]), xp.interp(0.5, [0, 1], [2, 3])],
    "interp errors": lambda xp, a, b: xp.interp(a, [0, 1], [1, 2, 3]),
    "polyval": lambda xp, a, b: [xp.polyval([1, 2, 3], a), xp.polyfit(a[0], b[0], 2)],
    # shapes
    "concatenate": lambda xp, a, b: [xp.concatenate([a, b]), xp.concatenate((a, b[:, :2]), axis=1)],
    "concatenate flat": lambda xp, a, b: xp.concatenate([a, b.T, [1, 2]], axis=None),
    "concatenate mixed": lambda xp, a, b: xp.concatenate([a.astype("c8"), xp.ones((1, 8), int)]),
    "concatenate turned": lambda xp, a, b: xp.concatenate([a.T, b.T], axis=1),
    "concatenate errors": lambda xp, a, b: xp.concatenate([a, b.T]),
    "concatenate nothing": lambda xp, a, b: xp.concatenate([]),
    "concatenate axis": lambda xp, a, b: xp.concatenate([a, b], axis=2),
    "concatenate out": lambda xp, a, b: xp.concatenate([a, b], out=xp.zeros((12, 8)), casting="no"),
    "stack": lambda xp, a, b: [xp.stack([a, b]), xp.stack([a, b], -1), xp.vstack([a, b[0]])],
    "hstack": lambda xp, a, b: [xp.hstack([a, b]), xp.dstack([a, b]), xp.column_stack([a, b[:, 0]])],
    "stack errors": lambda xp, a, b: xp.stack([a, b[0]]),
    "block": lambda xp, a, b: [xp.block([[a, b], [b, a]]), xp.append(a, b), xp.append(a, b, 1)],
    "tile": lambda xp, a, b: [xp.tile(a, 2), xp.tile(a, (2, 1)), xp.repeat(a, 3), xp.repeat(a, 2, 1)],
    "repeat unevenly": lambda xp, a, b: xp.repeat(a, [1, 0, 2, 1, 1, 3], axis=0),
    "repeat errors": lambda xp, a, b: xp.repeat(a, 2, axis=5),
    "roll": lambda xp, a, b: [xp.roll(a, 3), xp.roll(a, -1, 0), xp.roll(a, (1, 2), (0, 1))],
    "flip": lambda xp, a, b: [xp.flip(a), xp.fliplr(a), xp.flipud(a), xp.rot90(a), xp.rot90(a, 2)],
    "transpose": lambda xp, a, b: [xp.transpose(a), xp.swapaxes(a, 0, 1), xp.moveaxis(a, 0, -1)],
    "expand": lambda xp, a, b: [xp.expand_dims(a, 1), xp.squeeze(a[None]), xp.atleast_3d(a)],
    "reshape": lambda xp, a, b: [xp.reshape(a, (8, 6)), xp.ravel(a.T), xp.ravel(a, "F"), xp.resize(a, 5)],
    "reshape errors": lambda xp, a, b: xp.reshape(a, (5, 5)),
    "split": lambda xp, a, b: [xp.split(a, 2), xp.array_split(a, 4, 1), xp.hsplit(a, [3]), xp.unstack(a)],
    "split errors": lambda xp, a, b: xp.split(a, 5),
    "broadcast": lambda xp, a, b: [xp.broadcast_to(a, (2, 6, 8)), xp.broadcast_arrays(a, b[0])],
    "diagonal": lambda xp, a, b: [xp.diagonal(a), xp.diag(a, 1), xp.diag(a[0]), xp.trace(a)],
    "triangles": lambda xp, a, b: [xp.tril(a), xp.triu(a, 1), xp.tri(3), xp.vander(a[0], 3)],
    "pad": lambda xp, a, b: [xp.pad(a, 2), xp.pad(a, ((1, 0), (2, 2)), "edge"), xp.pad(a, 1, "wrap")],
    "pad by function": lambda xp, a, b: xp.pad(a, 1, lambda v, w, i, k: v.__setitem__(0, 9.0)),
    "windows": lambda xp, a, b: xp.lib.stride_tricks.sliding_window_view(a, 3, 1).mean(-1),
    "meshgrid": lambda xp, a, b: [xp.meshgrid(a[0], b[0]), xp.ix_([0, 2], [1, 3]), xp.indices((2, 3))],
    "delete": lambda xp, a, b: [xp.delete(a, 1, 0), xp.insert(a, 2, 5.0, 1), xp.trim_zeros(a[0])],
    # order and search
    "sort": lambda xp, a, b: [xp.sort(a), xp.sort(a, 0), xp.sort(a, None), xp.sort(a, kind="stable")],
    "argsort": lambda xp, a, b: [xp.argsort(a), xp.argsort(a, 0, stable=True), xp.lexsort((a[0], b[0]))],
    "sort in place": lambda xp, a, b: [a.sort(0), a, a[1].sort(), a],
    "sort errors": lambda xp, a, b: xp.sort(a, axis=4),
    "partition": lambda xp, a, b: [xp.partition(a, 2)[:, 2], xp.argpartition(a, 2).shape],
    "searchsorted": lambda xp, a, b: [xp.searchsorted([-1.0, 0, 1], a), xp.digitize(a, [-1.0, 0, 1])],
    "unique": lambda xp, a, b: [xp.unique(xp.round(a)), xp.unique(a > 0, return_counts=True)],
    "nonzero": lambda xp, a, b: [xp.nonzero(a > 0), xp.flatnonzero(a > 0), xp.argwhere(a > 0)],
    "take": lambda xp, a, b: [xp.take(a, [3, 1]), xp.take(a, [1, 0], 1), xp.take(a, 50, mode="wrap")],
    "take errors": lambda xp, a, b: xp.take(a, [60]),
    "take along": lambda xp, a, b: xp.take_along_axis(a, xp.argsort(a, 1), 1),
    "compress": lambda xp, a, b: [xp.compress([True, False, True], a, 0), xp.extract(a > 0, a)],
    "isin": lambda xp, a, b: [xp.isin(xp.round(a), [0, 1]), xp.intersect1d(a, b), xp.union1d(a, b)],
    "histogram": lambda xp, a, b: [xp.histogram(a, 5), xp.bincount((a * a).astype(int).ravel())],
    "cumsum": lambda xp, a, b: [xp.cumsum(a), xp.cumsum(a, 1), xp.cumsum(a > 0, 0), a.cumprod(1)],
    # callbacks
    "apply": lambda xp, a, b: xp.apply_along_axis(lambda x: x[::2] + xp.sum(x), 1, a),
    "apply over": lambda xp, a, b: xp.apply_over_axes(xp.sum, a, [0, 1]),
    "from function": lambda xp, a, b: xp.fromfunction(lambda i, j: i * xp.ones_like(j), (2, 3)),
    "vectorize": lambda xp, a, b: xp.vectorize(lambda x, y: x if x > y else y)(a, b),
    "iterate": lambda xp, a, b: [[float(x) for x in xp.nditer(a)], list(xp.ndindex(2, 2))],
    "enumerate": lambda xp, a, b: [(i, float(x)) for i, x in xp.ndenumerate(a[:2])],
    # creation
    "zeros": lambda xp, a, b: [xp.zeros((2, 3)), xp.ones(4, "i4"), xp.full((2, 2), 7), xp.eye(3)],
    "full": lambda xp, a, b: [xp.full((2, 8), a[0]), xp.full(3, a.sum()), xp.full(2, "x")],
    "like": lambda xp, a, b: [xp.zeros_like(a.T), xp.ones_like(a, int), xp.full_like(a, 3, shape=4)],
    "like order": lambda xp, a, b: [xp.zeros_like(a.T).flags.f_contiguous, xp.ones((2, 3), order="F").T],
    "ranges": lambda xp, a, b: [xp.arange(5), xp.arange(0, 1, 0.3), xp.linspace(0, 1, 7), xp.logspace(0, 1, 3)],
    "array": lambda xp, a, b: [xp.array([a, b]), xp.array(a, "f4"), xp.array(a, ndmin=4), xp.array(3)],
    "array of scalars": lambda xp, a, b: xp.array([a.sum(), b.max(), 1]),
    "asarray": lambda xp, a, b: [xp.asarray(a) is a, xp.asarray(a, order="F"), xp.asanyarray([1, a[0, 0]])],
    "require": lambda xp, a, b: [xp.require(a, "f4", "F"), xp.ascontiguousarray(a.T), xp.copy(a)],
    "creation errors": lambda xp, a, b: xp.zeros((2, -1)),
    "creation dtype": lambda xp, a, b: xp.full(3, "x", float),
    "array errors": lambda xp, a, b: xp.array([[1, 2], [3]]),
    "tricks": lambda xp, a, b: [xp.r_[a[0], 1:3, 5], xp.c_[a[0], b[0]], xp.mgrid[:2, :3], xp.s_[1:2]],
    # other namespaces
    "linalg": lambda xp, a, b: [xp.linalg.norm(a), xp.linalg.norm(a, axis=1), xp.linalg.norm(a, 1)],
    "linalg errors": lambda xp, a, b: xp.linalg.inv(a),
    "factorizations": lambda xp, a, b: [abs(xp.linalg.qr(a).R), xp.linalg.svd(a).S],
    "fft": lambda xp, a, b: [xp.fft.fft(a), xp.fft.irfft(xp.fft.rfft(a)), xp.fft.fftshift(a)],
    "emath": lambda xp, a, b: [xp.emath.sqrt(a), xp.emath.log(a)],
    "masked": lambda xp, a, b: xp.ma.masked_less(a, 0).filled(-1),
    "masked sum": lambda xp, a, b: float(xp.ma.array(a, mask=b > 0).sum()),
    "polynomials": lambda xp, a, b: [xp.polynomial.Polynomial([1, 2])(a), xp.poly1d([1, 2])(2)],
    "strings": lambda xp, a, b: [xp.strings.upper(xp.array(["a", "b"])), xp.char.add(["a"], "c")],
}  # fmt: skip

INEXACT = {"sinc", "angle", "unwrap", "average", "cov", "fix", "real", "kron", "linalg", "emath"}


@pytest.mark.parametrize("name", CALLS)
def test_floats(name: str) -> None:
    both(CALLS[name], A, B, ulps=32 if name in INEXACT else 0, warned=False)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kind", ["i", "u", "c", "nan"])
def test_other_dtypes(name: str, kind: str) -> None:
    pairs = {"i": (N, N[::-1]), "u": (U, U[::-1]), "c": (C, C[::-1]), "nan": (HOLES, A)}
    both(CALLS[name], *pairs[kind], ulps=64 if kind == "c" or name in INEXACT else 0, warned=False)


def test_square_matrices() -> None:
    calls: tuple[Call, ...] = (
        lambda xp, a: [xp.linalg.inv(a), xp.linalg.det(a), xp.linalg.solve(a, a[0])],
        lambda xp, a: [xp.linalg.cholesky(a @ a.T), xp.linalg.eigh(a + a.T)[0]],
        lambda xp, a: [xp.linalg.matrix_power(a, 3), xp.linalg.multi_dot([a, a, a])],
        lambda xp, a: [xp.linalg.slogdet(a), xp.linalg.matrix_rank(a), xp.trace(a)],
    )
    for call in calls:
        both(call, SQUARE)


def test_recorded_and_not_evaluated() -> None:
    x = lazyfuse.ones((400, 300)) + 1
    recorded = {
        "where": lazyfuse.where(x > 0, x, 0),
        "clip": lazyfuse.clip(x, 0, 1),
        "round": lazyfuse.round(x, 2),
        "diff": lazyfuse.diff(x),
        "roll": lazyfuse.roll(x, 1, 0),
        "stack": lazyfuse.stack([x, x]),
        "concatenate": lazyfuse.concatenate([x, x[1:]], 0),
        "repeat": lazyfuse.repeat(x, 2),
        "matmul": x @ x.T,
        "dot": lazyfuse.dot(x, x.T),
        "sort": lazyfuse.sort(x),
        "searchsorted": lazyfuse.searchsorted([1.0, 2.0], x),
        "interp": lazyfuse.interp(x, [0, 1], [1, 2]),
        "isclose": lazyfuse.isclose(x, x),
        "gradient": lazyfuse.gradient(x, axis=0),
        "outer": lazyfuse.outer(x[0], x[:, 0]),
        "zeros": lazyfuse.zeros(1 << 16),
        "full": lazyfuse.full(1 << 16, x[0, 0]),
        "windows": lazyfuse.lib.stride_tricks.sliding_window_view(x, 3, 0).sum(-1),
    }
    for name, result in recorded.items():
        node = result._node if result._node is not None else result._storage.node
        assert node.value is None, name


def test_views_are_views() -> None:
    def call(xp: Any, x: Any) -> Any:
        for view in (
            xp.transpose(x), xp.flip(x), xp.squeeze(x), xp.split(x, 2)[1], xp.moveaxis(x, 0, 1),
            xp.expand_dims(x, 0), xp.rot90(x), xp.atleast_3d(x), xp.reshape(x, -1), xp.real(x),
            xp.lib.stride_tricks.sliding_window_view(x, 2, 0, writeable=True),
        ):  # fmt: skip
            view += 1
        assert not xp.broadcast_to(x, (2, 6, 8)).flags.writeable
        return x

    both(call, A)


@pytest.mark.parametrize(
    "call",
    [
        lambda xp, x: xp.unique(x, return_counts=True),
        lambda xp, x: xp.histogram(x, bins=3),
        lambda xp, x: tuple(xp.linalg.slogdet(x @ x.T + 9)),
        lambda xp, x: xp.gradient(x),
        lambda xp, x: xp.divmod(x, 2),
    ],
)
def test_several_results(call: Any) -> None:
    both(call, np.arange(12.0).reshape(3, 4) % 5)


def test_a_view_function_may_give_an_object() -> None:
    """`flip` without axes reads the element: of an array of objects no number."""
    assert lazyfuse.flip(lazyfuse.asarray(None)) is None
    assert lazyfuse.flip(lazyfuse.asarray("text", dtype=object)) == "text"
