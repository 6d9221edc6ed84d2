"""Calls of every function of the standard, as text: `x` and `y` are arrays, `xp` the namespace.

Owns the tables: which dtypes a group of calls takes, and the calls. `names` tells which functions
a call uses; a test sees to it that none of the standard's is left out.
"""

from __future__ import annotations

import re
from typing import NamedTuple

REAL = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
INTEGER = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
EVERY = ("bool", *INTEGER, *REAL, *COMPLEX)


class Group(NamedTuple):
    """Calls for arrays of these dtypes; of two axes unless `axes` says otherwise."""

    dtypes: tuple[str, ...]
    calls: tuple[str, ...]
    axes: tuple[int, int] = (0, 3)
    smallest: int = 0  # elements along an axis
    finite: bool = False


def _each(names: str, pattern: str) -> tuple[str, ...]:
    return tuple(pattern.format(name) for name in names.split())


_DTYPES = (
    "xp.astype(x, xp.complex128)",
    "xp.astype(x, x.dtype, copy=False)",
    "xp.can_cast(x, x.dtype)",
    "xp.can_cast(x.dtype, x.dtype)",
    "xp.isdtype(x.dtype, 'integral')",
    "xp.isdtype(x.dtype, ('bool', 'numeric'))",
    "xp.result_type(x, x.dtype) == x.dtype",
)

_EQUAL = "equal not_equal"
_ORDERED = "less less_equal greater greater_equal maximum minimum"
_ARITHMETIC = "add subtract multiply"
_BITWISE = "bitwise_and bitwise_or bitwise_xor"
_LOGICAL = "logical_and logical_or logical_xor"
_OPERATORS = tuple(f"x {sign} y" for sign in "+ - * == !=".split())

_FLOATING = """acos acosh asin asinh atan atanh cos cosh exp log log10 log1p log2 reciprocal sin
sinh sqrt tan isfinite isinf isnan round square negative positive abs"""

ANY = Group(
    EVERY,
    (
        *_DTYPES,
        *_each(_EQUAL, "xp.{}(x, y)"),
        *_each("empty_like ones_like zeros_like", "xp.{}(x) * 0"),
        "xp.full_like(x, 1)",
        "xp.full_like(x, 1, dtype=xp.float32)",
        *_each("all any", "xp.{}(x)"),
        *_each("all any", "xp.{}(x, axis=(), keepdims=True)"),
        "xp.count_nonzero(x)",
        "xp.broadcast_to(x, (2, *x.shape))",
        "xp.broadcast_arrays(x, xp.ones((2, *([1] * x.ndim))))",
        "xp.broadcast_shapes(x.shape, (3, *x.shape))",
        "xp.concat([x, y], axis=None)",
        "xp.stack([x, y])",
        "xp.stack([x, y], axis=-1)",
        "xp.expand_dims(x, 0)",
        "xp.squeeze(xp.expand_dims(x, axis=-1), axis=-1)",
        "xp.flip(x)",
        "xp.permute_dims(x, tuple(reversed(range(x.ndim))))",
        "xp.reshape(x, (-1,))",
        "xp.reshape(x, (x.size, 1), copy=True)",
        "xp.roll(x, 1)",
        "xp.tile(x, (2, 1))",
        "xp.repeat(x, 2)",
        "xp.where(x == y, x, y)",
        "xp.where(x == y, x, 1)",
        "xp.asarray(x, copy=True)",
        "xp.from_dlpack(x)",
        "xp.unique_counts(x).counts",
        "xp.isin(x, y)",
        "x[...]",
        "x[None, ...]",
        "x[x == y]",
        "x.shape, x.ndim, x.size",
    ),
)

AXES = Group(
    EVERY,
    (
        "xp.concat([x, y])",
        "xp.concat((x, y), axis=-1)",
        "xp.flip(x, axis=0)",
        "xp.roll(x, (1, -1), axis=(0, -1))",
        "xp.moveaxis(x, 0, -1)",
        "xp.unstack(x)",
        "xp.unstack(x, axis=-1)",
        "xp.repeat(x, 3, axis=0)",
        "xp.take(x, xp.asarray([0, 0]), axis=0)",
        "xp.take_along_axis(x, xp.zeros(x.shape, dtype=xp.int64), axis=0)",
        "xp.nonzero(x)",
        "xp.all(x, axis=0)",
        "xp.any(x, axis=-1, keepdims=True)",
        "xp.count_nonzero(x, axis=0, keepdims=True)",
        "x[0]",
        "x[0, ...]",
        "x[..., -1]",
        "x[::-1]",
        "x[1:, ...]",
        "xp.unique_all(x).counts",
        "xp.unique_inverse(x).values",
    ),
    axes=(1, 3),
    smallest=1,
)

MATRICES = Group(
    EVERY[1:],
    (
        "xp.matrix_transpose(x)",
        "xp.linalg.matrix_transpose(x)",
        "x.mT",
        "xp.tril(x)",
        "xp.triu(x, k=1)",
        "xp.matmul(x, xp.matrix_transpose(y))",
        "xp.linalg.matmul(x, y.mT)",
        "x @ y.mT",
        "xp.tensordot(x, y, axes=x.ndim)",
        "xp.linalg.tensordot(x, y, axes=((0,), (0,)))",
        "xp.vecdot(x, y)",
        "xp.linalg.vecdot(x, y, axis=-1)",
        "xp.linalg.diagonal(x)",
        "xp.linalg.diagonal(x, offset=1)",
        "xp.linalg.trace(x)",
        "xp.linalg.trace(x, dtype=xp.complex128)",
        "xp.linalg.outer(x[:, 0], y[0, :])",
        "xp.meshgrid(x[:, 0], y[0, :], indexing='ij')",
        "xp.linalg.cross(x[:1, :1] + xp.zeros((2, 3)), y[:1, :1] + xp.ones((2, 3)))",
    ),
    axes=(2, 2),
    smallest=1,
    finite=True,
)

NUMBERS = Group(
    EVERY[1:],
    (
        *_each(_ARITHMETIC, "xp.{}(x, y)"),
        *_each("sum prod", "xp.{}(x)"),
        *_each("sum prod", "xp.{}(x, dtype=xp.complex64, keepdims=True)"),
        *_OPERATORS,
        "xp.pow(xp.abs(x), 2)",
        "xp.conj(x)",
        "xp.real(x)",
        "xp.imag(xp.astype(x, xp.complex64))",
        "xp.diff(x) if x.ndim else ()",
        "xp.diff(x, n=2, prepend=y, append=y) if x.ndim else ()",
        "xp.cumulative_sum(xp.reshape(x, (-1,)), include_initial=True)",
        "xp.cumulative_prod(xp.reshape(x, (-1,)))",
        "x + 1",
        "1 - x",
        "+x",
    ),
    finite=True,
)

ORDERED = Group(
    (*INTEGER, *REAL),
    (
        *_each(_ORDERED, "xp.{}(x, y)"),
        *_each("max min argmax argmin", "xp.{}(x)"),
        *_each("max min argmax argmin", "xp.{}(x, axis=0, keepdims=True)"),
        *_each("floor ceil trunc", "xp.{}(x)"),
        "xp.clip(x, min=1)",
        "xp.clip(x, max=2)",
        "xp.clip(x, min=0, max=3)",
        "xp.clip(x, xp.minimum(x, y), xp.maximum(x, y))",
        "xp.sort(xp.unique_values(x))",
        "xp.sort(x)",
        "xp.sort(x, axis=0, descending=True)",
        "xp.argsort(x)",
        "xp.argsort(x, axis=0, descending=True)",
        "xp.searchsorted(xp.sort(xp.reshape(x, (-1,))), y)",
        "xp.searchsorted(xp.reshape(x, (-1,)), y, side='right', "
        "sorter=xp.argsort(xp.reshape(x, (-1,))))",
        "xp.remainder(x, xp.where(y == 0, xp.ones_like(y), y))",
        "xp.floor_divide(x, xp.where(y == 0, xp.ones_like(y), y))",
        "x < y",
        "x >= 1",
        "x // xp.where(y == 0, xp.ones_like(y), y)",
    ),
    axes=(1, 3),
    smallest=1,
    finite=True,
)

FLOATING = Group(
    (*REAL, *COMPLEX),
    (
        *_each(_FLOATING, "xp.{}(x)"),
        "xp.divide(x, y)",
        "x / y",
        "xp.pow(x, y)",
        "x**2",
        "-x",
        "abs(x)",
        "xp.mean(x)",
        "xp.mean(x, axis=(), keepdims=True)",
        "xp.finfo(x.dtype).bits",
    ),
)

TAME = Group((*REAL, *COMPLEX), _each("expm1 sign tanh", "xp.{}(x)"), finite=True)
"""What array_api_strict, or the standard, has otherwise for complex infinities."""

REALS = Group(
    REAL,
    (
        *_each("expm1 sign tanh", "xp.{}(x)"),
        *_each("atan2 copysign hypot logaddexp nextafter", "xp.{}(x, y)"),
        "xp.signbit(x)",
        "xp.std(x)",
        "xp.var(x, correction=1.0, keepdims=True)",
        "xp.std(x, axis=())",
        "float(xp.finfo(x.dtype).eps), float(xp.finfo(x.dtype).max)",
    ),
)

WHOLE = Group(
    INTEGER,
    (
        *_each(_BITWISE, "xp.{}(x, y)"),
        "xp.bitwise_invert(x)",
        "xp.bitwise_left_shift(x, y & 3)",
        "xp.bitwise_right_shift(x, y & 3)",
        "x & y",
        "x | 1",
        "x ^ y",
        "~x",
        "x << (y & 3)",
        "x >> (y & 3)",
        "xp.iinfo(x.dtype).bits, xp.iinfo(x.dtype).max, xp.iinfo(x.dtype).min",
    ),
)

TRUTH = Group(
    ("bool",),
    (*_each(_LOGICAL, "xp.{}(x, y)"), *_each(_BITWISE, "xp.{}(x, y)"), "xp.logical_not(x)", "~x"),
)

FACTORS = Group(
    REAL,
    (
        "xp.linalg.det(a)",
        "xp.linalg.slogdet(a)",
        "xp.linalg.inv(a)",
        "xp.linalg.solve(a, a)",
        "xp.linalg.cholesky(a)",
        "xp.linalg.cholesky(a, upper=True)",
        "xp.linalg.eigvalsh(a)",
        "xp.linalg.eigh(a).eigenvalues",
        "xp.sort(xp.real(xp.astype(xp.linalg.eigvals(a), xp.complex128)))",
        "xp.sort(xp.real(xp.astype(xp.linalg.eig(a).eigenvalues, xp.complex128)))",
        "xp.linalg.svdvals(a)",
        "xp.linalg.svd(a).S",
        "xp.linalg.svd(a, full_matrices=False).S",
        "xp.abs(xp.linalg.qr(a).R)",
        "xp.linalg.qr(a, mode='complete').Q.shape",
        "xp.linalg.matrix_rank(a)",
        "xp.linalg.pinv(a)",
        "xp.linalg.matrix_power(a, 3)",
        "xp.linalg.matrix_norm(a)",
        "xp.linalg.matrix_norm(a, ord=1, keepdims=True)",
        "xp.linalg.vector_norm(a)",
        "xp.linalg.vector_norm(a, axis=0, ord=1)",
    ),
    axes=(2, 2),
    smallest=1,
    finite=True,
)

TRANSFORMS = Group(
    COMPLEX,
    (
        *_each("fft ifft hfft", "xp.fft.{}(x)"),
        "xp.fft.fft(x, n=5, axis=0, norm='ortho')",
        "xp.fft.irfft(x, n=4)",
        *_each("fftn ifftn", "xp.fft.{}(x)"),
        "xp.fft.fftn(x, s=(3,), axes=(0,))",
        "xp.fft.irfftn(x, s=(4,), axes=(0,))",
        *_each("rfft ihfft", "xp.fft.{}(xp.real(x))"),
        "xp.fft.rfftn(xp.real(x))",
        *_each("fftshift ifftshift", "xp.fft.{}(x)"),
        "xp.fft.fftshift(x, axes=0)",
    ),
    axes=(1, 2),
    smallest=2,
    finite=True,
)

GROUPS = {
    "any": ANY,
    "axes": AXES,
    "matrices": MATRICES,
    "numbers": NUMBERS,
    "ordered": ORDERED,
    "floating": FLOATING,
    "tame": TAME,
    "reals": REALS,
    "whole": WHOLE,
    "truth": TRUTH,
    "factors": FACTORS,
    "transforms": TRANSFORMS,
}

CREATION = (
    "xp.arange(5)",
    "xp.arange(1, stop=7, step=2, dtype=xp.float32)",
    "xp.asarray([[1, 2], [3, 4]])",
    "xp.asarray([True, False])",
    "xp.asarray(3.5)",
    "xp.asarray([1, 2j], dtype=xp.complex64)",
    "xp.empty((2, 3)).shape",
    "xp.ones((2, 3))",
    "xp.zeros(4, dtype=xp.int8)",
    "xp.full((2,), 3)",
    "xp.full((2,), True)",
    "xp.full(2, 1.5, dtype=xp.complex128)",
    "xp.eye(3)",
    "xp.eye(2, 3, k=1, dtype=xp.int16)",
    "xp.linspace(0, 1, 5)",
    "xp.linspace(0, 1, 5, endpoint=False, dtype=xp.float32)",
    "xp.fft.fftfreq(5)",
    "xp.fft.fftfreq(4, d=0.5, dtype=xp.float32)",
    "xp.fft.rfftfreq(6, dtype=xp.float32)",
    "xp.e, xp.pi, xp.inf, xp.newaxis",
    "xp.__array_namespace_info__().capabilities()",
)
"""Calls without an array."""


def names(call: str) -> set[str]:
    """The names of the standard that a call uses, "linalg.det" for those of extensions."""
    return set(re.findall(r"xp\.((?:(?:linalg|fft)\.)?\w+)", call))
