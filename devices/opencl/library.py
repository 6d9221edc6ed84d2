"""Operations that libraries do on an OpenCL device: scans, sorts, matrix products, transforms.

Owns `Library`. pyopencl does scans, compaction and sorts (`pyopencl.scan`,
`pyopencl.algorithm`), CLBlast products through pyclblast, VkFFT transforms through pyvkfft. Each
serves where it is installed. This module converts arrays, checks lengths and gives one error type.

Arrays are C-contiguous: meta arrays of the device's memory, or host arrays where memory is shared.
Work is enqueued in order with the launches; where memory is shared it is done on return.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from .. import late_imports
from ..base import Array, DeviceError
from ..caches import Group
from . import sort_keys
from .failures import faults
from .queue import Queue

Found = TypeVar("Found")

LONGEST = 2**31 - 1  # the libraries count elements in 32 bits
_APPS = 16  # shapes whose transforms are kept: each holds tables on the device
_NORMS = {"backward": 1, "ortho": "ortho"}

SCANS = {"add": ("a + b", "0"), "multiply": ("a * b", "1")}
"""Expression and neutral element of each operation that can be accumulated exactly."""


_built: Group[Library] = Group(
    "devices.opencl.library.built", lambda each: len(each._built), None, None,
    "one for each kernel of pyopencl's and dtype; those of the driver have no end",
)  # fmt: skip
_transforms: Group[Library] = Group(
    "devices.opencl.library.transforms", lambda each: len(each._transforms), _APPS,
    lambda each: each._transforms.clear(),
)  # fmt: skip


class Library:
    """The libraries of one device. Refusals and failures are `DeviceError`.

    `find` gives the buffer and offset of an array, `empty` a new array on the device.
    """

    def __init__(
        self,
        queue: Queue,
        find: Callable[[Array], tuple[Any, int]],
        empty: Callable[[tuple[int, ...], np.dtype[Any]], Array],
        shared: bool,
        name: str,
    ) -> None:
        self.name = name
        self._queue = queue
        self._find = find
        self._empty = empty
        self._shared = shared
        self._alignment = max(queue.device.mem_base_addr_align // 8, 1)
        self._built: dict[Any, Any] = {}
        self._transforms: dict[Any, Any] = {}
        _built.add(self)
        _transforms.add(self)

    # -- scans ----------------------------------------------------------------------------------

    def accumulate(self, name: str, array: Array, dtype: np.dtype[Any]) -> Array:
        """The running sums or products of integers in C order, wrapping around as NumPy's do."""
        if array.dtype.kind not in "biu" or dtype.kind not in "iu":
            raise _refusal(name, f"integers, got {array.dtype} into {dtype}; parallel sums round")
        made = self._empty((array.size,), dtype)
        if array.size:
            inner = np.dtype(f"u{dtype.itemsize}")  # unsigned: overflow is defined to wrap
            scan = self._kernel(
                ("accumulate", name, array.dtype, inner),
                lambda: self._scan(inner, [("x", _plain(array)), ("y", inner)], "x[i]", SCANS[name],
                                   "y[i] = item;"),
            )  # fmt: skip
            self._run(lambda: scan(self._flat(array), self._flat(made, inner)), made, array)
        return made

    def compact(self, array: Array, mask: Array) -> Array:
        """The elements of an array where a mask of its shape is true, in C order."""
        dtype = _bits(array.dtype)
        return self._compact(("select", dtype), array, mask, dtype, "x[i]")

    def positions(self, mask: Array) -> Array:
        """The indices, in C order, of the true elements of a mask."""
        return self._compact(("places",), mask, mask, np.dtype(np.intp), "i")

    def _compact(
        self, key: Any, array: Array, mask: Array, dtype: np.dtype[Any], item: str
    ) -> Array:
        """As `pyopencl.algorithm.copy_if`, for arrays at any offset in their buffers."""
        out_dtype = dtype if item == "i" else array.dtype
        room = self._empty((mask.size,), out_dtype)
        if not mask.size:
            return room
        source = np.dtype(np.uint8) if item == "i" else dtype
        count = np.dtype(np.uint32)
        arguments = [("mask", np.dtype(np.uint8)), ("x", source), ("y", dtype), ("n", count)]
        scan = self._kernel(
            key,
            lambda: self._scan(count, arguments, "mask[i] ? 1 : 0", SCANS["add"],
                f"if (prev_item != item) y[item - 1] = {item}; if (i + 1 == N) n[0] = item;"),
        )  # fmt: skip
        number = np.zeros(1, np.uint32)

        def run() -> None:
            cl = late_imports.module("pyopencl")
            total = late_imports.module("pyopencl.array").empty(self._queue.commands, 1, count)
            arrays = self._flat(mask, np.dtype(np.uint8)), self._flat(array, source)
            scan(*arrays, self._flat(room, dtype), total)
            cl.enqueue_copy(self._queue.commands, number, total.data)

        self._run(run, room, array, mask)
        return self._cut(room, int(number[0]))

    def _cut(self, room: Array, length: int) -> Array:
        """Copy the first elements to memory of their own, so that the whole array can be freed."""
        made = self._empty((length,), room.dtype)
        if length:
            self._run(lambda: self._move(self._flat(room), made), made, room)
        return made

    # -- sorts ----------------------------------------------------------------------------------

    def sort(self, array: Array) -> Array:
        """The elements in ascending order, stable; NaN last, zeros of either sign equal."""
        return self._sorted(array, ())

    def argsort(self, array: Array) -> Array:
        """The stable order of the elements, as `numpy.argsort`."""
        return self._sorted(array, (np.dtype(np.intp),))

    def _sorted(self, array: Array, others: tuple[np.dtype[Any], ...]) -> Array:
        """The elements sorted, or, with the dtype of places in `others`, these places."""
        made = self._empty((array.size,), others[0] if others else array.dtype)
        if array.size:
            key = sort_keys.key_of(array.dtype)
            radix = self._kernel(("sort", array.dtype, others), lambda: self._radix(key, others))

            def run() -> None:
                commands, arrays = self._queue.commands, late_imports.module("pyopencl.array")
                places = [arrays.arange(commands, array.size, dtype=each) for each in others]
                values = self._flat(array, key.stored)
                found, _ = radix(values, *places, queue=commands, key_bits=key.bits)
                self._move(found[-1], made)

            self._run(run, made, array)
        return made

    # -- products -------------------------------------------------------------------------------

    def product(self, first: Array, second: Array) -> Array:
        """The product of two matrices of one inexact dtype, by CLBlast."""
        dtype = first.dtype
        if dtype.char not in "fdFD" or second.dtype != dtype or not first.ndim == second.ndim == 2:
            what = f"{dtype}{list(first.shape)} and {second.dtype}{list(second.shape)}"
            raise _refusal("matmul", f"two matrices of one of f4, f8, c8, c16, got {what}")
        (m, k), n = first.shape, second.shape[1]
        if not m * n * k:
            raise _refusal("matmul", "elements, got none")
        library = _module("pyclblast")
        first, second, made = self._aligned(first), self._aligned(second), self._new((m, n), dtype)

        def run() -> None:
            arrays = [self._matrix(array) for array in (first, second, made)]
            library.gemm(
                self._queue.commands, m, n, k, *[matrix for matrix, _ in arrays], k, n, n,
                a_offset=arrays[0][1], b_offset=arrays[1][1], c_offset=arrays[2][1],
            )  # fmt: skip

        self._run(run, made, first, second)
        return made

    # -- transforms -----------------------------------------------------------------------------

    def transform(self, array: Array, axes: tuple[int, ...], inverse: bool, norm: str) -> Array:
        """A complex Fourier transform along the given axes, by VkFFT; `norm` as in NumPy."""
        if array.dtype.char not in "FD":
            raise _refusal("fft", f"complex64 or complex128, got {array.dtype}")
        if not array.size or len(set(axes)) < len(axes):
            raise _refusal("fft", f"elements and different axes, got {array.shape} along {axes}")
        scale = _scale(norm)
        make = _module("pyvkfft.opencl").VkFFTApp
        array, made = self._aligned(array), self._new(array.shape, array.dtype)

        def run() -> None:
            app = self._app(make, array, axes, scale)
            source, target = self._shaped(array), self._shaped(made)
            (app.ifft if inverse else app.fft)(source, target)

        self._run(run, made, array)
        return made

    def _app(self, make: Any, array: Array, axes: tuple[int, ...], scale: Any) -> Any:
        key = (array.shape, array.dtype, axes, scale)
        found = self._transforms.pop(key, None)
        if found is None:
            found = make(
                array.shape, array.dtype, self._queue.commands, axes=axes, inplace=False, norm=scale
            )
            while len(self._transforms) >= _APPS:
                del self._transforms[next(iter(self._transforms))]
        self._transforms[key] = found
        return found

    # -- glue -----------------------------------------------------------------------------------

    def _kernel(self, key: Any, make: Callable[[], Any]) -> Any:
        """A kernel of pyopencl, built once."""
        with self._queue.lock:
            found = self._built.get(key)
            if found is None:
                # permanent, as in `Queue.build`: a temporary filter would affect all threads
                talk = late_imports.module("pyopencl").CompilerWarning
                warnings.filterwarnings("ignore", category=talk, module="pyopencl")
                found = self._built[key] = self._guarded("build", make)
            return found

    def _run(self, work: Callable[[], None], *arrays: Array) -> None:
        """Enqueue work; keep all arrays alive until it is done."""
        if any(array.size > LONGEST for array in arrays):
            raise _refusal("library", f"at most {LONGEST} elements")
        with self._queue.lock:
            self._guarded("launch", work)
            self._guarded("finish", self._end)

    def _end(self) -> None:
        commands = self._queue.commands
        (commands.finish if self._shared else commands.flush)()

    def _guarded(self, doing: str, work: Callable[[], Found]) -> Found:
        self._queue.check()
        try:
            faults.strike(doing)
            return work()
        except self._queue.errors as error:
            raise self._queue.failure(error, doing, afterwards=doing == "finish") from error
        except (ImportError, OSError, RuntimeError, ValueError, MemoryError) as error:
            if isinstance(error, DeviceError):
                raise
            raise DeviceError(f"[{doing}] library: {str(error).strip().splitlines()[0]}") from error

    def _scan(
        self,
        dtype: np.dtype[Any],
        arguments: list[tuple[str, np.dtype[Any]]],
        item: str,
        rule: tuple[str, str],
        output: str,
    ) -> Any:
        ctype = late_imports.module("pyopencl.tools").dtype_to_ctype(dtype)
        return _module("pyopencl.scan").GenericScanKernel(
            self._queue.context, dtype, _vectors(arguments), f"({ctype})({item})", rule[0], rule[1],
            output,
        )  # fmt: skip

    def _radix(self, key: sort_keys.Key, others: tuple[np.dtype[Any], ...]) -> Any:
        arguments = [("x", key.stored), *[("places", dtype) for dtype in others]]
        return _module("pyopencl.algorithm").RadixSort(
            self._queue.context, _vectors(arguments), key.text, [name for name, _ in arguments],
            key_dtype=key.dtype,
        )  # fmt: skip

    def _aligned(self, array: Array) -> Array:
        """The array, or a copy, at an address where the driver could begin a buffer.

        Libraries load vectors, which fault on host memory with less alignment than buffers have.
        """
        if self._shared:
            address: int = array.__array_interface__["data"][0]
            if address % self._alignment == 0:
                return array
            self._queue.wait()  # a launch may still be writing the values
        elif not self._find(array)[1]:
            return array
        copy = self._new(array.shape, array.dtype)
        if self._shared:
            np.copyto(copy, array)
        else:
            self._run(lambda: self._move(self._flat(array), copy), copy, array)
        return copy

    def _new(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A new array, aligned as buffers are."""
        if not self._shared:
            return self._empty(shape, dtype)
        count, more = math.prod(shape), self._alignment // dtype.itemsize
        room = self._empty((count + more,), dtype)
        address: int = room.__array_interface__["data"][0]
        start = -address % self._alignment // dtype.itemsize
        return room[start : start + count].reshape(shape)

    def _flat(self, array: Array, dtype: np.dtype[Any] | None = None) -> Any:
        """A one-dimensional pyopencl array over an array."""
        buffer, offset = self._find(array)
        return late_imports.module("pyopencl.array").Array(
            self._queue.commands, (array.size,), dtype or array.dtype, data=buffer, offset=offset
        )

    def _shaped(self, array: Array) -> Any:
        buffer, offset = self._find(array)
        return late_imports.module("pyopencl.array").Array(
            self._queue.commands, array.shape, array.dtype, data=buffer, offset=offset
        )

    def _matrix(self, array: Array) -> tuple[Any, int]:
        """A pyopencl array over a matrix, and the element of its buffer where it begins."""
        found = self._shaped(array)
        return found, found.offset // array.itemsize

    def _move(self, found: Any, made: Array) -> None:
        """Copy a library's result to an array of ours."""
        buffer, offset = self._find(made)
        late_imports.module("pyopencl").enqueue_copy(
            self._queue.commands, buffer, found.base_data, byte_count=made.nbytes,
            src_offset=found.offset, dst_offset=offset,
        )  # fmt: skip


def _module(name: str) -> Any:
    try:
        return late_imports.module(name)
    except (ImportError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise DeviceError(f"[library] {name}: {reason}; install it") from error


def _vectors(arguments: list[tuple[str, np.dtype[Any]]]) -> list[Any]:
    vector = late_imports.module("pyopencl.tools").VectorArg
    return [vector(dtype, name, with_offset=True) for name, dtype in arguments]


def _plain(array: Array) -> np.dtype[Any]:
    return np.dtype(np.uint8) if array.dtype.kind == "b" else array.dtype


def _bits(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A dtype of the same size that any device can copy."""
    if dtype.itemsize == 16:
        pair: np.dtype[Any] = late_imports.module("pyopencl.cltypes").ulong2
        return pair
    return np.dtype(f"u{dtype.itemsize}")


def _scale(norm: str) -> Any:
    """VkFFT's value for NumPy's name of a normalisation."""
    if norm not in _NORMS:
        raise _refusal("fft", f'norm "backward" or "ortho", got {norm!r}')
    return _NORMS[norm]


def _refusal(name: str, expected: str) -> DeviceError:
    return DeviceError(f"[{name}] library: expected {expected}")
