"""The names of the array API standard, 2025.12, and the parameters of its functions.

Owns the tables; a line is `(parameters): names`. Imports nothing of lazyfuse.
"""

from __future__ import annotations

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")

VALUES = """e inf nan newaxis pi bool int8 int16 int32 int64 uint8 uint16 uint32 uint64
float32 float64 complex64 complex128""".split()
"""Constants and dtypes."""

MAIN = """
(x, /): abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1
(x, /): floor imag isfinite isinf isnan log log10 log1p log2 logical_not matrix_transpose
(x, /): negative nonzero positive real reciprocal round sign signbit sin
(x, /): sinh sqrt square tan tanh trunc unique_all unique_counts unique_inverse unique_values
(x1, x2, /): add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor
(x1, x2, /): copysign divide equal floor_divide greater greater_equal hypot less
(x1, x2, /): less_equal logaddexp logical_and logical_or logical_xor matmul maximum
(x1, x2, /): minimum multiply nextafter not_equal pow remainder subtract
(x, /, min=None, max=None): clip
(x, /, *, axis=None, keepdims=False): all any argmax argmin count_nonzero max mean min
(x, /, *, axis=None, dtype=None, keepdims=False): prod sum
(x, /, *, axis=None, correction=0.0, keepdims=False): std var
(x, /, *, axis=None, dtype=None, include_initial=False): cumulative_prod
(x, /, *, axis=None, dtype=None, include_initial=False): cumulative_sum
(x, /, *, axis=-1, descending=False, stable=True): argsort sort
(x, /, *, axis=-1, n=1, prepend=None, append=None): diff
(x, /, *, dtype=None, device=None): empty_like ones_like zeros_like
(x, /, fill_value, *, dtype=None, device=None): full_like
(x, /, *, k=0): tril triu
(x, /, *, axis=None): flip
(x, /, *, axis=0): unstack
(x, /, axis): expand_dims squeeze
(x, /, axes): permute_dims
(x, /, shape): broadcast_to
(x, /, shape, *, copy=None): reshape
(x, /, shift, *, axis=None): roll
(x, repeats, /, *, axis=None): repeat
(x, repetitions, /): tile
(x, source, destination, /): moveaxis
(x, indices, /, *, axis=None): take
(x, indices, /, *, axis=-1): take_along_axis
(x, dtype, /, *, copy=True, device=None): astype
(x, /, *, device=None, copy=None): from_dlpack
(x1, x2, /, *, axes=2): tensordot
(x1, x2, /, *, axis=-1): vecdot
(x1, x2, /, *, invert=False): isin
(x1, x2, /, *, side='left', sorter=None): searchsorted
(condition, x1, x2, /): where
(arrays, /, *, axis=0): concat stack
(*arrays): broadcast_arrays
(*arrays, indexing='xy'): meshgrid
(*shapes): broadcast_shapes
(*arrays_and_dtypes): result_type
(obj, /, *, dtype=None, device=None, copy=None): asarray
(start, /, stop=None, step=1, *, dtype=None, device=None): arange
(start, stop, /, num, *, dtype=None, device=None, endpoint=True): linspace
(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None): eye
(shape, *, dtype=None, device=None): empty ones zeros
(shape, fill_value, *, dtype=None, device=None): full
(from_, to, /): can_cast
(type, /): finfo iinfo
(dtype, kind): isdtype
(): __array_namespace_info__
"""

LINALG = """
(x, /): det eig eigh eigvals eigvalsh inv matrix_transpose slogdet svdvals
(x1, x2, /): matmul outer solve
(x1, x2, /, *, axis=-1): cross vecdot
(x1, x2, /, *, axes=2): tensordot
(x, n, /): matrix_power
(x, /, *, upper=False): cholesky
(x, /, *, offset=0): diagonal
(x, /, *, offset=0, dtype=None): trace
(x, /, *, keepdims=False, ord='fro'): matrix_norm
(x, /, *, axis=None, keepdims=False, ord=2): vector_norm
(x, /, *, rtol=None): matrix_rank pinv
(x, /, *, mode='reduced'): qr
(x, /, *, full_matrices=True): svd
"""

FFT = """
(x, /, *, n=None, axis=-1, norm='backward'): fft ifft rfft irfft hfft ihfft
(x, /, *, s=None, axes=None, norm='backward'): fftn ifftn rfftn irfftn
(n, /, *, d=1.0, dtype=None, device=None): fftfreq rfftfreq
(x, /, *, axes=None): fftshift ifftshift
"""

ARRAYS = frozenset(
    """x x1 x2 obj fill_value min max indices repeats condition sorter prepend append rtol
    arrays arrays_and_dtypes from_ type start stop""".split()
)
"""Parameters that may be arrays or sequences of arrays."""


def functions(table: str) -> dict[str, str]:
    """The functions of a table: name -> parameters."""
    found = {}
    for line in table.strip().splitlines():
        parameters, _, names = line.partition("): ")
        found.update(dict.fromkeys(names.split(), f"{parameters})"))
    return found
