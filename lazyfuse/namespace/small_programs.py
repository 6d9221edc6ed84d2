"""Calls on small arrays that come round, as programs that C runs at once (native/tape/small.c).

NumPy's functions are Python around a few ufuncs: of `std` on a hundred elements, Python is 95 %.
What a call records says which loops it needs. So a call that came often is traced as recorded ones
are (steps.py), and its template becomes a list of steps over memory: NumPy's own inner loops,
copies, selections. All sizes are known, and all strides. A call whose operations need anything
else, or whose first run has not NumPy's bits, stays NumPy's.

Owns the translation of templates, in the words that small.c reads.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import numpy as np

from lazyfuse.arrays import base
from lazyfuse.arrays.ndarray import OURS, options
from lazyfuse.codegen.graph.moves import assemble, seen
from lazyfuse.codegen.graph.shapes import contiguous_strides, size_of
from lazyfuse.codegen.lowering.loop_nest import Loop, merge
from lazyfuse.codegen.table import ops
from lazyfuse.namespace import steps

LOOP, COPY, SELECT, CAST = range(4)  # as in small.c
MEMORY, CONSTANTS, OPERANDS = range(3)  # what addresses begin at, as in small.c
MOST_AXES: Final = 8
MOST_RESULTS: Final = 8
MOST_STEPS: Final = 64
ROOM: Final = 1 << 19
"""Bytes of intermediate results: they are to stay in the cache of a core."""
WORK: Final = 1 << 18
"""Additions of one call, some 80 us; of more, blocks on all cores pay."""
_LINE: Final = 64
_BUFFER: Final = 8192  # elements that NumPy casts for one call of a loop
_CASTS: Final = "?bBhHiIlLqQf"  # to double, as in casts.c
_SUMS: Final = "fdlq"  # what NumPy adds by a loop of its own, in an order that this file knows
_CLIP: Final[Any] = np._core.umath.clip  # type: ignore[attr-defined]
_DTYPES: Final = "?bBhHiIlLqQfdFD"

Shape = tuple[int, ...]


class _Refused(Exception):
    """No program says what a call does."""


class _Slot(NamedTuple):
    """A value: where its first element lies, and its strides in bytes."""

    base: int
    offset: int
    shape: Shape
    strides: Shape
    dtype: np.dtype[Any]

    @property
    def is_packed(self) -> bool:
        own = zip(self.shape, self.strides, _packed(self.shape, self.dtype), strict=True)
        return all(length == 1 or stride == step for length, stride, step in own)


class _Program:
    """The steps of one template, and the memory that they use."""

    def __init__(self, operands: list[Any]) -> None:
        self.words: list[int] = []
        self.steps = 0
        self.work = 0.0
        self.ufuncs: list[np.ufunc] = []
        self.constants = bytearray()
        self.cells: list[int] = []
        self.results: list[list[int]] = []
        self.room = 0
        self.free: dict[int, list[int]] = {}
        self.operands = len(operands)
        self.values = [
            _Slot(OPERANDS + at, 0, x.shape, x.strides, x.dtype) for at, x in enumerate(operands)
        ]

    # ------------------------------------------------------------------------------ memory

    def memory(self, shape: Shape, dtype: np.dtype[Any]) -> _Slot:
        """New memory for a value."""
        size = _lines(shape, dtype)
        if self.free.get(size):
            offset = self.free[size].pop()
        else:
            offset = self.room
            self.room += size
        if self.room > ROOM:
            raise _Refused
        return _Slot(MEMORY, offset, shape, _packed(shape, dtype), dtype)

    def release(self, slot: _Slot) -> None:
        """The memory of a value that no later step reads."""
        self.free.setdefault(_lines(slot.shape, slot.dtype), []).append(slot.offset)

    def constant(self, value: Any) -> _Slot:
        """An array of numbers that the program holds."""
        value = np.ascontiguousarray(value).reshape(np.shape(value))
        self.constants += bytes(-len(self.constants) % 16)
        offset = len(self.constants)
        self.constants += value.tobytes()
        strides = _packed(value.shape, value.dtype)
        return _Slot(CONSTANTS, offset, value.shape, strides, value.dtype)

    def number(self, which: int, dtype: np.dtype[Any], shape: Shape) -> _Slot:
        """A number of the call, whose bytes C puts in place."""
        if dtype.char not in "fd":
            raise _Refused
        slot = self.memory(shape, dtype)
        self.cells += [which, dtype.num, slot.offset]
        return slot

    def result(self, shape: Shape, dtype: np.dtype[Any], is_number: bool) -> _Slot:
        """Memory of a result of the call."""
        at = len(self.results)
        if at == MOST_RESULTS or len(shape) > MOST_AXES:
            raise _Refused
        none = [0] * (MOST_AXES - len(shape))
        self.results.append([int(is_number), dtype.num, len(shape), *shape, *none])
        return _Slot(OPERANDS + self.operands + at, 0, shape, _packed(shape, dtype), dtype)

    # ------------------------------------------------------------------------------- steps

    def step(self, kind: int, which: int, at: int, shape: Shape, slots: Sequence[_Slot]) -> None:
        """A step over all elements of a shape; the last of `slots` is written."""
        strides = [_spread(slot, shape) for slot in slots]
        self.walk(kind, which, at, shape, slots, strides)

    def walk(
        self,
        kind: int,
        which: int,
        at: int,
        shape: Shape,
        slots: Sequence[_Slot],
        strides: Sequence[Shape],
        joins: bool = True,
    ) -> None:
        """The same with given strides; axes that are one in memory are joined."""
        loops = [Loop(n, False, tuple(own)) for n, *own in zip(shape, *strides, strict=True)]
        if joins:
            long = [loop for loop in loops if loop.size != 1]
            loops = merge(long) or [Loop(1, False, (0,) * len(slots))]
        if kind == COPY:  # in any order: the longest axis is that of the inner loop
            sizes = [loop.size for loop in reversed(loops)]
            loops.append(loops.pop(-1 - sizes.index(max(sizes))))
        if len(loops) > MOST_AXES or self.steps == MOST_STEPS:
            raise _Refused
        self.steps += 1
        self.words += [kind, which, at, len(slots), len(loops), *[loop.size for loop in loops]]
        for k, slot in enumerate(slots):
            self.words += [slot.base, slot.offset, *[loop.strides[k] for loop in loops]]

    def copy(self, value: _Slot, to: _Slot) -> None:
        """Copy a value, which may be broadcast."""
        if value.dtype is not to.dtype:
            raise _Refused
        self.step(COPY, to.dtype.itemsize, 0, to.shape, [value, to])

    def cast(self, value: _Slot, dtype: np.dtype[Any], to: _Slot | None = None) -> _Slot:
        """A value in another dtype: itself, or a new one."""
        if value.dtype is dtype:
            return value
        if value.shape and not any(value.strides):  # one element for all
            one = self.cast(value._replace(shape=(), strides=()), dtype)
            every = one._replace(shape=value.shape, strides=value.strides)
            if to is None:
                return every
            self.copy(every, to)
            return to
        if dtype.char != "d" or value.dtype.char not in _CASTS or not value.is_packed:
            raise _Refused
        to = to or self.memory(value.shape, dtype)
        size, item = size_of(value.shape), value.dtype.itemsize
        ends = [(item,), (dtype.itemsize,)]
        self.work += size
        self.walk(CAST, value.dtype.num, dtype.num, (size,), [value, to], ends, joins=False)
        return to

    def loop(self, ufunc: Any, dtypes: Sequence[np.dtype[Any]]) -> tuple[int, int, int]:
        """A ufunc's place, that of its loop for these dtypes, and how the loop may be called."""
        chars = [dtype.char for dtype in dtypes]
        name = "".join(chars[:-1]) + "->" + chars[-1]
        if ufunc is None or ufunc.nout != 1 or name not in ufunc.types:
            raise _Refused
        way = 2 if ufunc is _CLIP else 0
        if ways := base.loop_types(ufunc):
            way = min(ways[dtype.num] for dtype in dtypes[:-1])
        if not way:
            raise _Refused
        if ufunc not in self.ufuncs:
            self.ufuncs.append(ufunc)
        return self.ufuncs.index(ufunc), ufunc.types.index(name), way

    def map(self, op: Any, arg: Any, slots: list[_Slot], to: _Slot) -> None:
        """An operation on each element."""
        self.work += op.cost * size_of(to.shape)
        if op.name == "copy":
            self.copy(slots[0], to)
            return
        if op.name == "cast":
            if self.cast(slots[0], to.dtype, to) is not to:
                raise _Refused
            return
        given = slots
        slots = [self.cast(s, dtype) for s, dtype in zip(slots, arg.ins, strict=True)]
        if op.name == "where":
            condition, left, right = slots
            if condition.dtype.char != "?" or not left.dtype is right.dtype is to.dtype:
                raise _Refused
            self.step(SELECT, to.dtype.itemsize, 0, to.shape, [*slots, to])
            return
        ufunc = _CLIP if op.name in ("clip", "clip_each") else op.ufunc
        which, at, way = self.loop(ufunc, [*arg.ins, to.dtype])
        whole = all(s.shape in ((), to.shape) and s.is_packed for s in slots)
        if way == 1 and not (whole and slots == given):
            raise _Refused  # NumPy calls such a loop once, on all elements, or on what it casts
        self.step(LOOP, which, at, to.shape, [*slots, to])

    def reduce(self, op: Any, arg: Any, value: _Slot, to: _Slot) -> None:
        """A reduction, in NumPy's order: pairwise along the last axis, else row by row."""
        ufunc, axes, shape = op.ufunc, arg.axes, value.shape
        if value.dtype is not arg.accumulator and len(axes) == len(shape) == 1:
            if shape[0] > _BUFFER:
                raise _Refused  # NumPy adds what it casts at once
            value = self.cast(value, arg.accumulator)
        is_sum = op.ordered and op.start == "zero" and value.dtype.char in _SUMS
        is_join = bool(op.start) and value.dtype.kind != "c"
        if not (is_sum or is_join) or not value.is_packed or 0 in shape:
            raise _Refused
        if not value.dtype is arg.accumulator is to.dtype:
            raise _Refused
        if len(axes) == len(shape):
            outer, length, inner = 1, size_of(shape), 1
        elif len(axes) == 1:
            outer, length = size_of(shape[: axes[0]]), shape[axes[0]]
            inner = size_of(shape[axes[0] + 1 :])
        else:
            raise _Refused
        self.work += outer * length * inner
        item = value.dtype.itemsize
        steps = (length * inner * item, inner * item, item)  # of the operand
        kept = (inner * item, 0, item)  # of the result
        which, at, _ = self.loop(ufunc, [value.dtype] * 3)
        if is_sum:
            start = self.constant(np.asarray(_start(), value.dtype))
            self.walk(COPY, item, 0, (outer * inner,), [start, to], [(0,), (item,)])
            first = 0
        else:
            ends = [(steps[0], item), (kept[0], item)]
            self.walk(COPY, item, 0, (outer, inner), [value, to], ends)
            first = 1
        left = (outer, length - first, inner)
        value = value._replace(offset=value.offset + first * inner * item)
        if left[1]:
            most = 2 if inner == 1 else 3  # the innermost axis is that of a call of the loop
            own = [axes[:most] for axes in (kept, steps, kept)]
            self.walk(LOOP, which, at, left[:most], [to, value, to], own, joins=False)

    def moves(self, arg: Any, slots: list[_Slot], to: _Slot) -> None:
        """Elements of the sources, by a map of indices: copies of boxes."""
        self.work += size_of(to.shape)
        if any(not slot.is_packed or slot.dtype is not to.dtype for slot in slots):
            raise _Refused
        whole = np.empty(arg.space or to.shape, to.dtype)  # to see where boxes lie
        for piece in arg.pieces:
            source = slots[piece.source]
            stand = np.empty(source.shape, source.dtype)

            def note(target: Any, part: Any, source: _Slot = source, stand: Any = stand) -> None:
                value = source._replace(offset=source.offset + _address(part) - _address(stand))
                result = to._replace(offset=to.offset + _address(target) - _address(whole))
                own = [part.strides, target.strides]
                self.walk(COPY, to.dtype.itemsize, 0, target.shape, [value, result], own)

            assemble(whole, seen([((0,) * stand.ndim, stand)], stand.shape, piece), note)


def _spread(slot: _Slot, shape: Shape) -> Shape:
    """The strides of a value along the axes of a result."""
    lead = len(shape) - len(slot.shape)
    if lead < 0:
        raise _Refused
    own = []
    for length, stride, wanted in zip(slot.shape, slot.strides, shape[lead:], strict=True):
        if length not in (1, wanted):
            raise _Refused
        own.append(0 if length == 1 else stride)
    return (*(0,) * lead, *own)


def _packed(shape: Shape, dtype: np.dtype[Any]) -> Shape:
    return tuple([stride * dtype.itemsize for stride in contiguous_strides(shape, None)])


def _lines(shape: Shape, dtype: np.dtype[Any]) -> int:
    """Bytes of a value, in whole cache lines."""
    return -(-max(size_of(shape) * dtype.itemsize, 1) // _LINE) * _LINE


def _address(value: Any) -> int:
    found: int = value.__array_interface__["data"][0]
    return found


def _start() -> float:
    """What NumPy begins a sum of floats with: 0.0 or -0.0."""
    return float(np.array([-0.0]).sum())


def program(
    function: Callable[..., Any], args: tuple[Any, ...], names: Any, numbers: tuple[int, ...]
) -> tuple[bytes, tuple[np.ufunc, ...], bytes, Any] | None:
    """The program of a call, for C; None: it has none. The arguments are as for `steps.traced`."""
    with _recording():
        template = steps.traced(function, args, names, numbers)
    if not template:
        return None
    operands = {id(x): x for x in _arrays(args)}
    try:
        return _program(template, [x._eager for x in operands.values()])
    except (_Refused, LookupError, TypeError, ValueError):  # or what this file does not know
        return None


def is_same(one: Any, other: Any) -> bool:
    """Whether two results of a call are alike in kind, dtype, memory order, and each bit. For C."""
    if type(one) is not type(other):
        return False
    if type(one) is tuple:
        return len(one) == len(other) and all(map(is_same, one, other))
    if type(one) not in OURS:
        return isinstance(one, np.generic) and one.tobytes() == other.tobytes()
    a, b = one._eager, other._eager
    return (
        a is not None and b is not None and a.dtype is b.dtype and a.shape == b.shape
        and a.strides == b.strides and a.tobytes() == b.tobytes()
    )  # fmt: skip


@contextmanager
def _recording() -> Iterator[None]:
    """Meanwhile small arrays are recorded, too: in other threads as well, where it costs time."""
    limit = options.eager_below
    object.__setattr__(options, "eager_below", 0)
    try:
        yield
    finally:
        if options.eager_below == 0:  # else another thread has set it
            object.__setattr__(options, "eager_below", limit)


def _arrays(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if type(value) in OURS:
            yield value
        elif type(value) is tuple or type(value) is list:
            yield from _arrays(value)


def _program(template: Any, operands: list[Any]) -> tuple[bytes, tuple[np.ufunc, ...], bytes, Any]:
    numbers, nodes, writes, shown = template
    if writes:
        raise _Refused
    made = _Program(operands)
    for number in numbers:
        if type(number) is tuple:
            made.values.append(made.number(*number))
        else:
            made.values.append(made.constant(number.value))
    roots: dict[int, _Slot] = {}
    first = len(made.values)
    result = _results(made, shown, nodes, first, roots)
    last = _last_uses(nodes, first, made)
    for at, (op, src, arg, shape, dtype, perm, _) in enumerate(nodes):
        sources = [made.values[place] for place in src]
        if perm is not None or 0 in shape or dtype.char not in _DTYPES:
            raise _Refused
        if op is ops.VIEW:
            made.values.append(_window(sources[0], arg))
        else:
            slot = roots.pop(first + at, None) or made.memory(shape, dtype)
            _emit(made, op, arg, sources, slot)
            made.values.append(slot)
        if first + at in roots:  # a view
            made.copy(made.values[-1], roots.pop(first + at))
        for gone in last.get(at, ()):
            if made.values[gone].base == MEMORY:
                made.release(made.values[gone])
    if roots or made.work > WORK:
        raise _Refused
    head = [len(made.cells) // 3, len(made.results), made.steps]
    flat = [word for each in made.results for word in each]
    words = array("q", [*head, *made.cells, *flat, *made.words]).tobytes()
    return words, tuple(made.ufuncs), bytes(made.constants), result


def _results(made: _Program, shown: Any, nodes: Any, first: int, roots: dict[int, _Slot]) -> Any:
    """What a call gives: the number of a result, or a tuple; adds the memory of each root."""
    kind, of = shown[:2]
    if kind == steps.A_TUPLE:
        return tuple([_results(made, each, nodes, first, roots) for each in of])
    if kind not in (steps.AN_ARRAY, steps.A_NUMBER) or of < first or of in roots:
        raise _Refused
    shape, dtype = nodes[of - first][3:5]
    roots[of] = made.result(shape, dtype, kind == steps.A_NUMBER)
    return len(made.results) - 1


def _last_uses(nodes: Any, first: int, made: _Program) -> dict[int, list[int]]:
    """For each node, the values whose memory is free after it."""
    owners = list(range(first + len(nodes)))
    last: dict[int, int] = {}
    for at, (op, src, *_) in enumerate(nodes):
        if op is ops.VIEW:
            owners[first + at] = owners[src[0]]
        for place in src:
            last[owners[place]] = at
        last.setdefault(owners[first + at], at)
    found: dict[int, list[int]] = {}
    for owner, at in last.items():
        if owner >= first:
            found.setdefault(at, []).append(owner)
    return found


def _window(source: _Slot, layout: Any) -> _Slot:
    """A view of packed memory."""
    item = source.dtype.itemsize
    if not source.is_packed:
        raise _Refused
    strides = tuple([stride * item for stride in layout.strides])
    offset = source.offset + layout.offset * item
    return source._replace(offset=offset, shape=layout.shape, strides=strides)


def _emit(made: _Program, op: Any, arg: Any, sources: list[_Slot], to: _Slot) -> None:
    if op.kind == "map":
        made.map(op, arg, sources, to)
    elif op.kind == "reduce":
        made.reduce(op, arg, sources[0], to)
    elif op.kind == "index":
        made.moves(arg, sources, to)
    elif op is ops.FULL and sources:
        made.copy(sources[0], to)
    elif op.kind == "update":
        whole, value = sources
        made.copy(whole, to)
        made.copy(value, _window(to, arg))
    else:
        raise _Refused
