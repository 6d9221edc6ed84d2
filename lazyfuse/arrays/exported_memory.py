"""Operations on memory that other code may change at any time, done without a copy of it.

Recorded work must read a copy of such memory, made when it is recorded. One operation takes no
longer than that copy: eager_policy.py decides which of them NumPy does. Larger or inexact ones are
recorded on the memory itself and evaluated at once: this module owns how.

Owns also how arrays export that memory on Python 3.11, which has no `__buffer__` for Python
classes: a function in the type's slot passes the request on to the exported numpy array. The offset
of the slot is part of CPython's stable layout. A trial class checks it before the array gets the
function; where the check fails, the array gets none and `memoryview(x)` is refused. With the native
extension, native/arrays/array.c has that function.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import numpy as np

from lazyfuse.arrays import base, stretches
from lazyfuse.arrays import ndarray as array
from lazyfuse.arrays.base import COMPILED, NATIVE
from lazyfuse.arrays.ndarray import CANONICAL, OURS, ndarray, options
from lazyfuse.arrays.storage import Block, Export, Storage, leaf
from lazyfuse.codegen.graph.shapes import broadcast_all, size_of
from lazyfuse.codegen.table.op import Op
from lazyfuse.runtime.events import decisions, numpy_calls
from lazyfuse.runtime.layout.meta_arrays import held, packed_order, window
from lazyfuse.runtime.numerics import errstate
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.scheduling import evaluate
from lazyfuse.runtime.scheduling.evaluate import begin_quietly

LARGEST = 16
"""Elements of a result up to which NumPy is as fast as a launch, in units of `eager_below`."""


def may_be_visible(operands: tuple[Any, ...] | list[Any]) -> bool:
    """Whether an operand lies in memory that was exported at some time; most do not."""
    for x in operands:
        if type(x) is np.ndarray:
            return True
        if (
            type(x) is ndarray
            and (storage := x._storage) is not None
            and storage.exports is not None
        ):
            return True
    return False


def eager_limit(op: Op) -> int:
    """Up to how many elements NumPy does an operation, in units of `eager_below`."""
    return LARGEST // op.numpy_weight


def read_in_place(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`, which records an operation. If it would have to copy an argument, the
    result is evaluated now, on the memory itself.
    """
    private = privately(args) if may_be_visible(args) else None
    return function(*args) if private is None else finished(function(*private), private)


def read_in_stretch(function: Callable[..., Any], *args: Any) -> Any:
    """The same, for the operators that C calls: the result may stay pending (stretches.py)."""
    private = privately(args) if may_be_visible(args) else None
    if private is None:
        return function(*args)
    return finished_later(function(*private), args, private, sys._getframe(2))


def host_value(x: Any) -> tuple[Any, bool]:
    """An operand's value on the host (of a block: of the same geometry alone), or None; and whether
    other code may see its memory.
    """
    if type(x) is np.ndarray:
        return x, True
    if type(x) not in OURS:
        return None, False
    node, storage = x._node, x._storage
    if node is not None:
        return (node.value if node.resident is None else None), False
    if storage is None:
        return x._eager, False
    if storage.node.value is None or storage.node.resident is not None:
        return None, False
    return x._view, storage.shared()


def privately(args: tuple[Any, ...] | list[Any]) -> list[Any] | None:
    """Arguments of an operation, with private arrays over the same memory instead of those that it
    would have to copy, for use with `finished`; None: record it on copies.

    All values exist, or are pending in the open expression of stretches.py. The result has no more
    elements than the copies would have: a larger one, if it was recorded, might never be written.
    """
    if options.eager_below <= 1 or not (options.exported_at_once and errstate.is_default()):
        return None
    copied, needed = 0, False
    made: dict[int, Any] = {}
    shapes: list[tuple[int, ...]] = []
    private: list[Any] = []
    for x in args:
        if type(x) in OURS or type(x) is np.ndarray:
            value, seen = host_value(x)
            if value is None and stretches.is_open_result(x):
                shapes.append(x.shape)
                copied += size_of(x.shape)
                private.append(x)
                continue
            if value is None or value.dtype not in CANONICAL:
                return None
            shapes.append(value.shape)
            if seen and value.size >= options.eager_below:
                if value.nbytes > options.chunk_memory and not value.flags.writeable:
                    return None  # may be a file that is read in chunks: see `nodes.snapshot`
                copied, needed = copied + value.size, True
                own = stretches.private_of(x)
                if own is None and (own := made.get(id(x))) is None:
                    own = _private(value if type(x) is np.ndarray else array.real_view(x))
                    made[id(x)] = own
                if own is None:
                    return None
                x = own
        private.append(x)
    if not needed or not (devices.is_default_cpu() or devices.user_selected() is devices.cpu()):
        return None
    try:
        return private if size_of(broadcast_all(shapes)) <= copied else None
    except ValueError:
        return None  # the caller raises it


def _private(value: Any) -> Any:
    """An array of ours that treats `value` as its own memory; None if there is no such array.

    The caller holds the array until its use is over, else the memory would be donated to a result.
    """
    if not value.flags.aligned:
        return None
    packed, perm = packed_order(value)
    if packed:
        return array.alone(leaf(held(value, value), perm))
    found = window(value)
    if found is None:
        return None
    flat, origin = found
    return array.on_storage(Storage(leaf(held(flat, value), None)), value, origin, None)


def finished(result: Any, private: list[Any]) -> Any:
    """The result recorded on `private` memory, evaluated; the caller holds `private` meanwhile."""
    if type(result) in OURS and private:
        storage = result._storage
        node = result._node if storage is None else storage.node
        if node is not None and node.value is None:
            evaluate.evaluate([node], decisions.EXPORTED_OPERAND)
    return result


def finished_later(
    result: Any, operands: Sequence[Any], private: list[Any], frame: FrameType
) -> Any:
    """The same, or left pending where the expression of `frame` may go on (stretches.py)."""
    return result if stretches.begin(operands, private, frame) else finished(result, private)


def runs_exactly(op: Op, dtype: np.dtype[Any], first: bool) -> bool:
    """Whether an operation gives the same bits wherever it runs, with an operand of that dtype."""
    if dtype not in CANONICAL:
        return False
    if op.name == "where" and not first:
        return True  # `where` only chooses its values
    return op.is_exact_in_numpy(dtype)


def _exact_types(op: Op) -> bytes:
    """For each plain dtype, by its number: `eager_limit` where `runs_exactly`, else 0."""
    dtypes = sorted(map(np.dtype, "?bBhHiIlLqQfdgFD"), key=lambda each: each.num)
    return bytes([eager_limit(op) if runs_exactly(op, each, True) else 0 for each in dtypes])


class Lost:
    """The exception of the last request for a buffer, and the array that got the request.

    NumPy drops the exception (an interrupt, or a warning that is an error) and asks for something
    else, which then raises it.
    """

    found: tuple[Any, BaseException] | None = None


lost = Lost()

if base.COMPILED:  # native/arrays/exported.c does the same for operands with a known loop
    for _name, _value in {
        "exact_types": _exact_types,
        "export_rule": decisions.EXPORT,
        "leaf": leaf,
        "leaf_memory": Block,
        "lost": lost,
        "real_view": array.real_view,
        "reduce_rows": tuple([base.REDUCTIONS[name][0] for name in ("sum", "max", "min")]),
        "room": lambda: devices.room(),
        "root": Export,
        "run_counts": numpy_calls.table,
    }.items():
        base.NATIVE.bind(_name, _value)


# -------------------------------------------------------------- the buffer protocol on Python 3.11

_AS_BUFFER = 20 * ctypes.sizeof(ctypes.c_void_p)  # PyTypeObject.tp_as_buffer
_GetBuffer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)

_kept: list[Any] = []  # callbacks that slots point at


def install(kind: type, memory_of: Callable[[Any], Any]) -> bool:
    """Make instances of `kind` (a Python class) export the buffer of `memory_of(instance)`."""
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 12):
        return False
    if not evaluate.IS_MAIN:  # there, 3.11 waits for ever where ctypes calls Python
        return False
    if COMPILED and NATIVE.buffer(memory_of):  # C can pass exceptions on
        return True

    class Trial:
        pass

    _put(Trial, lambda instance: b"trial")
    try:
        if bytes(memoryview(Trial())) != b"trial":  # type: ignore[arg-type]
            return False
    except TypeError:
        return False
    _put(kind, memory_of)
    return True


def _put(kind: type, memory_of: Callable[[Any], Any]) -> None:
    ask = ctypes.pythonapi["PyObject_GetBuffer"]
    ask.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
    ask.restype = ctypes.c_int

    def get_buffer(instance: Any, view: int, flags: int) -> int:
        real = None
        try:
            real = memory_of(instance)
            return ask(real, view, flags)  # type: ignore[no-any-return]
        except (BufferError, ValueError) as error:  # mostly a dtype without a buffer format
            # ctypes cannot pass it on: the caller gets a SystemError
            if real is None and error.__class__ is not BufferError:
                lost.found = instance, error
            return -1
        except BaseException as error:  # no call here: a signal handler may raise after each
            lost.found = instance, error
            return -1

    callback = _GetBuffer(begin_quietly(get_buffer))
    _kept.append(callback)
    procs = ctypes.c_void_p.from_address(id(kind) + _AS_BUFFER).value
    if procs:
        slot = ctypes.c_void_p.from_address(procs)
        slot.value = ctypes.cast(callback, ctypes.c_void_p).value
