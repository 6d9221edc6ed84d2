"""Calls that come round: what Python decides about one, as a template for C (native/tape/).

Which nodes a call records follows from its function, from the dtypes, shapes and layouts of its
operands, and from its other arguments: `native/tape/layout.c` puts all of these in words. So a call
that was met a few times is traced once. The function is called with operands that have no values
(stand-ins), and what it records becomes a template: C makes the same nodes on other operands from
then on, and runs no Python. A function that asks a stand-in for a value has no template.

Owns the making of templates; stand_ins.py has the stand-ins.
"""

from __future__ import annotations

import functools
import itertools
import math
import types
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from lazyfuse.arrays import base
from lazyfuse.arrays.ndarray import (
    OURS,
    alone,
    layout_in_storage,
    ndarray,
    on_storage,
    options,
)
from lazyfuse.arrays.scalars import make_scalar, numbers_stay, scalar
from lazyfuse.arrays.storage import CANONICAL, Storage
from lazyfuse.codegen.graph.node import Node, topological
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.table import ops
from lazyfuse.codegen.table.op import Op
from lazyfuse.interop import fallback
from lazyfuse.runtime.events import numpy_calls
from lazyfuse.runtime.layout.meta_arrays import ORIGIN, packed_layout
from lazyfuse.runtime.numerics.errstate import SourceLocation
from lazyfuse.runtime.scheduling.stand_ins import Looked, stand_in, tracing

AN_ARRAY, A_NUMBER, A_PART, AN_OPERAND, NOTHING, A_TUPLE, A_LIST, SHARED = range(8)  # as in tape.h
MOST_VALUES: Final = 64  # of a template, as in tape.h
MOST_NOTED: Final = 1024  # operations of a call, as in notes.c
LARGEST: Final = 1 << 12
"""Bytes of a constant that a template keeps."""
VAST: Final = 1 << 27
"""Elements from which a recorded result asks whether there is memory (flush.VAST)."""


class _Refused(Exception):
    """A call has done something that no template says."""


class _Trace:
    """The operands of one call: their stand-ins, in the order in which C meets them."""

    def __init__(self) -> None:
        self.operands: list[Any] = []
        self.nodes: list[Node] = []  # of each operand, what stands for its values
        self.eager: set[int] = set()  # which operands are: recorded work reads copies of them
        self._made: dict[int, Any] = {}
        self._storages: dict[int, Storage] = {}

    def given(self, value: Any) -> Any:
        """An argument with stand-ins in place of arrays."""
        kind = type(value)
        if kind in OURS:
            if id(value) not in self._made:
                self._made[id(value)] = made = self._array(value)
                self.operands.append(made)
            return self._made[id(value)]
        if kind is tuple or kind is list:
            return kind([self.given(each) for each in value])
        return value

    def _array(self, x: Any) -> Any:
        node = x._node
        if x._eager is not None:
            shape, dtype = x._eager.shape, CANONICAL[x._eager.dtype]
            node = Node(ops.LEAF, (), None, shape, dtype, None, None)
            self.eager.add(len(self.operands))
        if node is not None:
            self.nodes.append(stand_in(node))
            return (alone if type(x) is ndarray else make_scalar)(self.nodes[-1])
        storage = self._storages.get(id(x._storage))
        if storage is None:
            storage = Storage(stand_in(x._storage.node))
            self._storages[id(x._storage)] = storage
        self.nodes.append(storage.node)
        root = None if x._base is None else alone(stand_in(x._storage.node))
        return on_storage(storage, x._view, ORIGIN, root)

    def writes(self) -> list[tuple[int, Node]]:
        """Which operands have got other values."""
        found = []
        met = set()
        for at, (x, before) in enumerate(zip(self.operands, self.nodes, strict=True)):
            holder = x if x._storage is None else x._storage
            now = x._node if x._storage is None else x._storage.node
            if now is not before and id(holder) not in met:
                if at in self.eager:
                    raise _Refused
                found.append((at, now))
            met.add(id(holder))
        return found


def called_name(theirs: Any, before: dict[str, int], noted: list[Any]) -> str | bool | None:
    """The name under which NumPy's calls of a function are counted; True: they are not; None: C is
    not to make them. For C.

    `before`: how often NumPy's functions had run before a call of ours; `noted`: each operation
    that it recorded and ran, and its argument. NumPy gives the bits of exact ones.
    """
    name = getattr(theirs, "__name__", None)
    if name is None or name in fallback.WRITTEN or name in fallback.CALLBACKS:
        return None
    if noted:
        each = zip(noted[::2], noted[1::2], strict=True)
        exact = len(noted) <= 2 * MOST_NOTED and all(itertools.starmap(_is_numpys, each))
        return _public_name(theirs) if exact else None
    ran = [each for each, n in numpy_calls.by_name().items() if n > before.get(each, 0)]
    if not ran:  # None: done in another way than NumPy's
        return True if numpy_calls.is_done() else None
    return ran[0] if len(ran) == 1 else _public_name(theirs)


def _public_name(theirs: Any) -> str:
    """The name under which calls are counted of a function, or of what it is in NumPy's modules."""
    for home in (np, np.linalg, np.fft):
        public = getattr(home, theirs.__name__, None)
        if getattr(public, "__wrapped__", public) is theirs:
            return numpy_calls.name_of(public)
    return numpy_calls.name_of(theirs)


def _is_numpys(op: Op, arg: Any) -> bool:
    """Whether NumPy's function gives the bits of an operation in any kernel."""
    if op.kind == "map":
        return op.is_exact(arg.ins[0])
    return op.kind != "host" and op.pure


def traced(
    function: Callable[..., Any], args: tuple[Any, ...], names: Any, numbers: tuple[int, ...]
) -> Any:
    """The template of a call, for C; None: it has none. `names`: of its last arguments, or None.

    `numbers`: places of arguments that may be other numbers of their sign and type the next time.
    The call is traced with others, too: constants that follow them are theirs. False: these numbers
    decide more than constants.
    """
    found = _traced(function, args, names)
    if found is None or not numbers:
        return found
    given, others = list(args), [_other(args[at], place) for place, at in enumerate(numbers)]
    for at, number in zip(numbers, others, strict=True):
        given[at] = number
    again = _traced(function, tuple(given), names)
    try:
        same = again is not None and found[1:] == again[1:] and len(found[0]) == len(again[0])
        mine = [args[at] for at in numbers]
        return same and (tuple(map(_slot(mine, others), found[0], again[0])), *found[1:])
    except (_Refused, ValueError):  # parts of arrays have no truth
        return False


def _other(number: Any, place: int) -> Any:
    """Another number of the same type and sign: its whole part is another one, too."""
    more = math.copysign(5.0078125 + place / 1024, number)
    return type(number)(float(number) * 1.3125 + more)


def _slot(mine: list[Any], others: list[Any]) -> Callable[[Node, Node], Any]:
    """What a template has in place of a node with a value: it, or a number of the call. Whole
    numbers and truths hold less than the number, and NumPy may warn of what they lose.
    """

    def slot(node: Node, again: Node) -> Any:
        one, other = node.value, again.value
        assert one is not None
        assert other is not None
        alike = one.dtype is other.dtype and one.shape == other.shape
        is_precise = one.dtype.kind in "fc"
        if alike and one.tobytes() == other.tobytes():
            if is_precise or not any(np.any(one == _cast(number, one)) for number in mine):
                return node
            raise _Refused
        for at, (number, changed) in enumerate(zip(mine, others, strict=True)):
            is_one = node.op is again.op in (ops.SCALAR, ops.LEAF) and one.size == 1
            if not (is_one and alike and is_precise and node.perm is None):
                continue
            if one == _cast(number, one) and other == _cast(changed, one):
                return at, node.dtype, node.shape
        raise _Refused

    return slot


def _cast(number: Any, like: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.asarray(number).astype(like.dtype)


def _traced(function: Callable[..., Any], args: tuple[Any, ...], names: Any) -> Any:
    trace = _Trace()
    try:
        values = [trace.given(each) for each in args]
        named = dict(zip(names, values[-len(names) :], strict=True)) if names else {}
        first = values[: len(values) - len(named)]
        with tracing(trace.nodes), numbers_stay():
            result = function(*first, **named)
        return _template(trace, result, function)
    except (Exception, Looked):
        return None


def _template(trace: _Trace, result: Any, function: Any) -> Any:
    writes = trace.writes()
    roots = [node for _, node in writes]
    shown = _result(trace, result, roots, function is base.HOOKS.get_item)
    places: dict[int, int] = {}
    for at, node in enumerate(trace.nodes):
        places.setdefault(id(node), at)
    numbers: list[Node] = []
    steps: list[tuple[Any, ...]] = []
    named: dict[int, tuple[str]] = {}
    order = [node for node in topological(roots) if id(node) not in places]
    for node in order:
        if node.value is not None:
            if node.value.nbytes > LARGEST or _overflows(node):
                raise _Refused
            places[id(node)] = len(trace.nodes) + len(numbers)
            numbers.append(node)
    for node in order:
        if node.value is None:
            src = tuple([places[id(source)] for source in node.src])
            _check(node)
            places[id(node)] = len(trace.nodes) + len(numbers) + len(steps)
            where = node.location
            placed: Any = where is not None
            if isinstance(where, SourceLocation):  # nodes with one such place report as one
                placed = named.setdefault(id(where), (where.name,)) if where.name else True
            steps.append((node.op, src, node.arg, node.shape, node.dtype, node.perm, placed))
    if len(trace.nodes) + len(numbers) + len(steps) > MOST_VALUES:
        raise _Refused
    placed_writes = tuple([(at, places[id(node)]) for at, node in writes])
    return tuple(numbers), tuple(steps), placed_writes, _numbered(shown, places, len(trace.nodes))


def _result(trace: _Trace, x: Any, roots: list[Node], picks: bool) -> tuple[Any, ...]:
    """What a call gives: its kind, and the node, operand or parts. Adds its nodes to `roots`."""
    if x is None:
        return NOTHING, 0
    if type(x) is tuple or type(x) is list:
        parts = [_result(trace, each, roots, picks) for each in x]
        return (A_TUPLE if type(x) is tuple else A_LIST), parts
    if type(x) not in OURS:
        raise _Refused
    for at, operand in enumerate(trace.operands):
        if x is operand:
            return AN_OPERAND, at
    node = x._node
    storage = x._storage
    if node is None and storage is None:
        raise _Refused  # of dynamic size, or eager
    if node is None:
        for at, operand in enumerate(trace.operands):
            if operand._storage is storage:
                root = operand if operand._base is None else operand._base
                if x._base is not root or x._view.size < options.eager_below or at in trace.eager:
                    raise _Refused  # who reads small parts counts them
                return A_PART, at, x._view
        node = storage.node
        whole = layout_in_storage(x) is packed_layout(node.shape, node.perm)
        if not whole or x._view.dtype != node.dtype or not x._view.flags.writeable:
            raise _Refused
    if x._base is not None or (picks and size_of(node.shape) < options.eager_below):
        raise _Refused
    roots.append(node)
    return (A_NUMBER if type(x) is scalar else AN_ARRAY), node


def _numbered(shown: tuple[Any, ...], places: dict[int, int], given: int) -> tuple[Any, ...]:
    kind, of = shown[0], shown[1]
    if kind in (A_TUPLE, A_LIST):
        return kind, tuple([_numbered(each, places, given) for each in of])
    if kind not in (AN_ARRAY, A_NUMBER):
        return shown
    place = places[id(of)]
    if place < given:  # an operand's: whether a copy shares it depends on who has made it
        if kind != AN_ARRAY:
            raise _Refused
        return SHARED, place
    return kind, place


def _overflows(node: Node) -> bool:
    """Whether NumPy may have warned that a number is too large for its dtype."""
    return node.op is ops.SCALAR and node.dtype.kind in "fc" and bool(np.any(np.isinf(node.value)))  # type: ignore[arg-type]


def _check(node: Node) -> None:
    """Raise unless a node is the same for all operands of these kinds."""
    if node.resident is not None or size_of(node.shape) >= VAST:
        raise _Refused
    if node.op is ops.LEAF or (node.op is ops.HOST and not _is_plain(node.arg.function)):
        raise _Refused


def _is_plain(function: Any, depth: int = 0) -> bool:
    """Whether a function, or what it is made of, holds no array of ours and no node."""
    if isinstance(function, functools.partial):
        parts = (function.func, *function.args, *function.keywords.values())
    elif isinstance(function, types.FunctionType):
        cells = [each.cell_contents for each in function.__closure__ or ()]
        parts = (*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    elif type(function) in (tuple, list):
        parts = tuple(function)
    elif type(function) is dict:
        parts = tuple(function.values())
    else:
        plain = (str, int, float, complex, type, type(None), np.dtype, np.generic, np.ufunc, slice)
        in_c = (types.BuiltinFunctionType, types.MethodDescriptorType)
        return (
            isinstance(function, (*plain, *in_c))
            or getattr(function, "__module__", "").partition(".")[0] == "numpy"
        )
    return depth < 4 and all(_is_plain(each, depth + 1) for each in parts)
