"""Dynamic-size selections: `x[mask]` keeps its mask until the program needs its size or values.

Owns `MaskSelection`, the fourth state of an array, and what continues with it as one masked pass
over the whole of `x`: elementwise operations with numbers and with selections of the same mask,
reductions, masks of masks, and assignments back through the mask. Every other operation extracts
the values (compact.py) and continues with them. ndarray.py and operators.py call this module
through the hooks that scalars.py fills.

No operation sees an element that the mask drops: one that could raise a floating-point exception
gets 1 instead, a reduction its identity. Sums of floats follow NumPy's pairwise tree over the
values that are kept.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

import numpy as np

from lazyfuse import config
from lazyfuse.arrays import index_keys, operators, recording
from lazyfuse.arrays import ndarray as array
from lazyfuse.arrays.conversion import real_operand
from lazyfuse.arrays.ndarray import (
    CANONICAL,
    SELECTIONS,
    caller,
    cast_node,
    concrete_value,
    from_node,
    gather,
    geometry,
    materialise,
    ndarray,
    new,
    node_of,
    wrap,
)
from lazyfuse.arrays.nodes import constant
from lazyfuse.arrays.operators import PLAIN, dtype_of, operand_node
from lazyfuse.arrays.recording import find_loop, reduce_node, shape_of, step
from lazyfuse.arrays.storage import Records, leaf
from lazyfuse.codegen.graph.node import HostCall, Node
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.table import ops, promotion
from lazyfuse.codegen.table.op import Op, Verdict
from lazyfuse.codegen.table.ops import TABLE
from lazyfuse.kernels import compact
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.numerics import errstate
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.scheduling import evaluate
from lazyfuse.runtime.scheduling.eager_rules import MASKED_ELEMENTS, small

if TYPE_CHECKING:
    from lazyfuse.kernels.compact import CountedMask


_WHERE = TABLE["where"]
_AND = TABLE["logical_and"]
_ADD = TABLE["reduce:add"]
_INTP = np.dtype(np.intp)
_BOOL = np.dtype(bool)

# Highest cost of an operation: on all elements it must not cost more than extracting the kept ones.
COSTLY = 5.0
# Most selections without values at the same time: each keeps the whole of its source alive.
LIMIT = 16
# Fewer elements are extracted in less time than a plan is looked up, or than several threads take.
# Booleans, which are counted or select again, and values that are written back wait nevertheless.
WORTH = MASKED_ELEMENTS
# 1 divided by more than this cannot overflow.
_TINY = {"f": 1e-30, "d": 1e-300}


class MaskedOperation(NamedTuple):
    """An elementwise operation on selections of one mask and on numbers.

    `careful`: it can raise floating-point exceptions, so it gets 1 where the mask drops an element.
    """

    op: Op
    loop: promotion.Loop
    operands: tuple[MaskSelection | Node, ...]
    careful: bool


class MaskSelection:
    """A selection without a size yet: from a node, or from an operation on other selections.

    `mask` is true where an element is kept; `value` has its shape and memory order. `made` is the
    node of the kept values, once the program needed them. Nothing else changes.
    """

    __slots__ = ("counted", "dtype", "made", "mask", "operation", "value", "where")

    def __init__(
        self,
        value: Node | None,
        mask: Node,
        counted: MaskCount | None = None,
        work: MaskedOperation | None = None,
    ) -> None:
        self.value = value
        self.mask = mask
        self.counted = counted or MaskCount()
        self.operation = work
        self.dtype = work.loop.out if work is not None else value.dtype  # type: ignore[union-attr]
        self.made: Node | None = None
        self.where = caller()

    def known(self) -> CountedMask | None:
        """The counts of the mask, if they are known."""
        kept = self.counted.counts
        return kept if kept is not None and kept.whole is self.mask.value else None

    def count(self) -> CountedMask:
        """The counts of the mask, which is evaluated for them."""
        found = self.known()
        if found is None:
            with evaluate.held():
                evaluate.evaluate([self.mask], decisions.SELECTION_SIZE)
                assert self.mask.value is not None
                found = self.counted.counts = compact.kept(self.mask.value)
        return found

    def everything(self, built: dict[int, Node] | None = None) -> Node:
        """A node of the values for all elements, meaningless where the mask drops them.

        A new node each time: one that this object held would be stored. `built`: the nodes of this
        call, by id of the selection.
        """
        if self.operation is None:
            assert self.value is not None
            return self.value
        built = {} if built is None else built
        node = built.get(id(self))
        if node is None:
            op, loop, operands, careful = self.operation
            nodes = []
            for each in operands:
                if isinstance(each, MaskSelection):
                    source = each.everything(built)
                    nodes.append(each.chosen(1, source) if careful else source)
                else:
                    nodes.append(each)
            shape, perm = self.mask.shape, self.mask.perm
            node = Node(op, tuple(nodes), loop, shape, loop.out, perm, self.where)
            built[id(self)] = node
        return node

    def chosen(self, other: Any, value: Node | None = None) -> Node:
        """The values for all elements, with the number `other` where the mask drops them."""
        value = self.everything() if value is None else value
        return step(_WHERE, self.mask, value, constant(other, value.dtype))

    def values(self) -> Node:
        """The kept values as a node; the caller holds the lock."""
        if self.made is None:
            if self.operation is None:
                assert self.value is not None
                evaluate.evaluate([self.value, self.mask], decisions.SELECTION_VALUES)
                assert self.value.value is not None
                assert self.mask.value is not None
                known = self.known()
                self.made = leaf(compact.select(self.value.value, self.mask.value, known), None)
            else:
                op, loop, operands, _ = self.operation
                nodes = [x.values() if isinstance(x, MaskSelection) else x for x in operands]
                shape = next(x.values().shape for x in operands if isinstance(x, MaskSelection))
                made = Node(op, tuple(nodes), loop, shape, loop.out, None, self.where)
                evaluate.note_recorded(made)
                self.made = made
        return self.made


class MaskCount:
    """The counts of a mask, shared by its selections, once one of them needed them."""

    __slots__ = ("__weakref__", "counts")

    def __init__(self) -> None:
        self.counts: CountedMask | None = None


def of(x: Any) -> MaskSelection | None:
    """The selection of an array that still has a dynamic size; else None."""
    if type(x) is not ndarray or x._eager is not None or x._node is not None:
        return None
    found = getattr(x, "_selection", None) if x._storage is None else None
    return found if type(found) is MaskSelection else None


def _made(record: MaskSelection) -> Any:
    """An array for a selection. The oldest get values if there are too many, or they hold much."""
    x: Any = new(ndarray)
    x._eager = x._node = x._storage = x._base = None
    x._selection = record
    _make_room(_bytes(record))
    SELECTIONS.append(ref(x))
    return x


def _make_room(more: int) -> None:
    alive = [each for each in SELECTIONS if of(each()) is not None]
    limit = config.options.flush_bytes
    held = more + sum([_bytes(found) for each in alive if (found := of(each()))])
    while alive and (len(alive) >= LIMIT or 0 < limit < held):
        oldest = alive.pop(0)()
        found = of(oldest)
        if oldest is not None and found is not None:
            held -= _bytes(found)
            materialise(oldest)
    SELECTIONS[:] = alive


def _bytes(record: MaskSelection) -> int:
    """About how many bytes a selection keeps alive."""
    return size_of(record.mask.shape) * (record.dtype.itemsize + 1)


def resolve(x: ndarray) -> Any:
    """Give a selection its values; the numpy array, if it is an eager array from now on."""
    found = getattr(x, "_selection", None)
    if found is not None:
        with evaluate.held():
            found = x._selection
            if type(found) is Records:
                index_keys.settle(x, found)
            elif found is not None:
                node = found.values()
                number = node.shape[0]
                # `_selection` last: another thread always finds one of them
                if number and not small(number):
                    x._node = node
                else:
                    evaluate.evaluate([node], decisions.SELECTION_VALUES)
                    assert node.value is not None
                    value = node.value.copy()
                    x._may_grow = array.may_grow(value)
                    x._eager = value
                x._selection = None
    return materialise(x)


def shape(x: ndarray) -> tuple[int, ...]:
    """The shape of an array; for a selection, only its size is counted."""
    found = of(x)
    if found is not None:
        return (found.count().number,)
    known: tuple[int, ...] = geometry(x).shape
    return known


# ---------------------------------------------------------------------------------------- reads


def may_defer(x: ndarray, mask: Any) -> Verdict:
    """Whether `x[mask]` may keep its predicate instead of its values."""
    if not config.options.dynamic_sizes:
        return Verdict(False, "switched off by the option dynamic_sizes")
    if not (array.ERRSTATE_PLAIN or errstate.is_plain()) or not recording.may_record():
        return Verdict(False, "the floating-point error state is not NumPy's default")
    if type(mask) is not ndarray or concrete_value(mask) is not None:
        return Verdict(False, "the mask is no array of ours, or a small one")
    if not ops.kernel_dtype(dtype_of(x)):
        return Verdict(False, f"kernels do not hold {dtype_of(x)}")
    for each in (x, mask):
        storage = each._storage
        if storage is not None and storage.shared():
            return Verdict(False, "other code may look at its memory")
    return Verdict(True)


def narrowed(x: ndarray, key: Any) -> Any:
    """`x[key]` for a selection and a condition on it: a selection by both masks; else None."""
    outer, inner = of(x), of(key)
    if outer is None or inner is None or inner.dtype.kind != "b" or outer.operation is not None:
        return None
    if outer.made is not None or not is_same(outer.mask, inner.mask):
        return None
    counters.totals().decisions[decisions.SELECTION] += 1
    return _made(MaskSelection(outer.value, step(_AND, outer.mask, inner.everything())))


def selection(x: ndarray, mask: Any) -> Any:
    """`x[mask]` for a mask of the shape of `x`: a dynamic-size selection, or made at once."""
    if shape_of(mask) != shape_of(x) or not size_of(shape_of(x)):
        return None
    if concrete_value(x) is not None or dtype_of(x) not in CANONICAL:
        return None
    verdict = may_defer(x, mask)
    if verdict:
        value, truth = node_of(x), node_of(mask)
        if value.perm == truth.perm:
            counters.totals().decisions[decisions.SELECTION] += 1
            return _made(MaskSelection(value, truth))
        verdict = Verdict(False, "the mask lies in memory in another order")
    counters.totals().selections[f"made at once: {verdict.why}"] += 1
    with evaluate.held():
        pending = [each._node for each in (x, mask) if type(each) is ndarray and each._node]
        evaluate.evaluate(pending, decisions.GATHER)
        del pending
        return wrap(compact.select(gather(x), real_operand(mask)))


def at_once(x: ndarray, mask: ndarray) -> Any:
    """`x[mask]` for an eager mask and evaluated values on the host; else None."""
    truth = mask._eager
    if truth is None or truth.dtype.kind != "b" or not truth.size or x._eager is not None:
        return None
    node = x._node
    there = node is None or (node.value is not None and node.resident is None)
    if not there or not devices.is_default_cpu() or of(x) is not None:
        return None
    if shape_of(x) != truth.shape or dtype_of(x) not in CANONICAL:
        return None
    counters.totals().selections["made at once: the mask is a small array"] += 1
    return wrap(compact.select(gather(x), truth))


def is_same(first: Node, second: Node, depth: int = 4) -> bool:
    """Whether two masks certainly are the same: one node, or equal operations on the same."""
    if first is second:
        return True
    if not depth or first.op is not second.op or first.shape != second.shape:
        return False
    if first.op is ops.SCALAR:
        one, other = first.value, second.value
        assert one is not None
        assert other is not None
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    sources, others = first.src, second.src  # none, once evaluated
    if not sources or len(sources) != len(others) or first.op.kind != "map":
        return False
    return first.arg == second.arg and all(
        is_same(a, b, depth - 1) for a, b in zip(sources, others, strict=True)
    )


# ------------------------------------------------------------------------------ elementwise maps


def mapped(op: Op, operands: Sequence[Any]) -> ndarray | None:
    """An elementwise operation on selections of one mask and numbers; None: it needs the values."""
    found = _mapped(op, operands)
    return None if found is None else _made(found)


def _mapped(op: Op, operands: Sequence[Any], written: bool = False) -> MaskSelection | None:
    """The selection of `mapped`; `written`: `x[mask] += 1` probably writes it back."""
    selections = [of(x) for x in operands]
    first = next((each for each in selections if each is not None), None)
    if first is None or not errstate.is_default() or op.kind != "map":
        return None
    if any(each is not None and each.made for each in selections):
        return None
    for x, each in zip(operands, selections, strict=True):
        if each is None and type(x) not in PLAIN:
            return None
        if each is not None and not is_same(first.mask, each.mask):
            return None
    try:
        loop = find_loop(op, operands)
        if loop is None or not _is_cheap(op, loop):
            return None
        if size_of(first.mask.shape) < WORTH and not written and loop.out.kind != "b":
            return None
        careful = bool(op.raises(loop.ins[0]))
        if careful and not _is_safe(op, operands, loop):
            return None
        known = [
            operand_node(x, want) if each is None else each
            for x, each, want in zip(operands, selections, loop.ins, strict=True)
        ]
    except OverflowError:
        return None
    return MaskSelection(
        None, first.mask, first.counted, MaskedOperation(op, loop, tuple(known), careful)
    )


def _is_cheap(op: Op, loop: promotion.Loop) -> bool:
    if op.cost > COSTLY or not op.is_exact(loop.ins[0]):
        return False
    return bool(ops.supports(op, loop)) and all(map(ops.kernel_dtype, loop.ins))


def _is_safe(op: Op, operands: Sequence[Any], loop: promotion.Loop) -> bool:
    """Whether an operation raises no floating-point exception where its selections are 1."""
    if op.safe_at_one:
        return True
    if op.name == "divide":
        divisor = operands[1]
        tiny = _TINY.get(loop.out.char)
        if type(divisor) not in PLAIN:
            return True
        return tiny is not None and abs(divisor) > tiny
    return False


def binary(spec: operators.Spec, self: Any, other: Any, swapped: bool) -> Any:
    """For operators.py: an operator on a selection; None if it needs the values."""
    return mapped(spec.op, (other, self) if swapped else (self, other))


def unary(op: Op, self: Any) -> Any:
    """For operators.py: an operator of one operand on a selection; None if it needs the values."""
    return mapped(op, (self,))


def inplace(spec: operators.Spec, self: Any, other: Any) -> Any:
    """`self op= other` for a selection; None if it needs the values."""
    before = of(self)
    found = _mapped(spec.op, (self, other), True) if before is not None else None
    if found is None or before is None or found.dtype != before.dtype:
        return None
    self._selection = found
    return self


# ------------------------------------------------------------------------------------ reductions

_NUMBERS = {"zero": 0, "one": 1}
"""What accumulators start from, as numbers."""


def _identity(row: Op, dtype: np.dtype[Any]) -> Any:
    """The identity of a reduction whose order does not matter; None if there is none."""
    kind, start = dtype.kind, row.start
    if start in _NUMBERS:
        return _NUMBERS[start]
    if not _is_extreme(row) or kind not in "biuf":
        return None
    if kind == "b":
        return start == "greatest"
    if kind == "f":
        return np.inf if start == "greatest" else -np.inf
    limits = np.iinfo(dtype)
    return limits.max if start == "greatest" else limits.min


def _is_extreme(row: Op) -> bool:
    """Whether a reduction gives the least or greatest element, and NaN if there is one."""
    return row.start in ("least", "greatest") and not row.skips_nan and row.ufunc is not None


def reduced(row: Op, x: Any, axis: Any, dtype: Any, keepdims: Any, unusual: Sequence[Any]) -> Any:
    """A reduction of a selection; None if it needs the values."""
    found = of(x)
    if found is None or found.made is not None or not _is_plain(axis, keepdims, unusual):
        return None
    source = found.dtype
    wanted = None if dtype is None else CANONICAL.get(np.dtype(dtype))
    if wanted is None and dtype is not None:
        return None
    if row.ordered and (wanted or source).kind in "fc":
        if row.start != "zero" or (wanted is not None and wanted != source):
            return None
        return from_node(_total(found)) if _is_summed(found) else None
    other = _identity(row, source)
    if other is None:
        return None
    axes = tuple(range(len(found.mask.shape)))
    node = reduce_node(row, found.chosen(other), axes, False, wanted)
    if node is None:
        return None
    return _extreme(row, found, node) if _is_extreme(row) else from_node(node)


def _is_plain(axis: Any, keepdims: Any, unusual: Sequence[Any]) -> bool:
    if axis is not None and (type(axis) is not int or axis not in (0, -1)):
        return False
    if not (keepdims is False or keepdims is None or keepdims is np._NoValue):
        return False
    return errstate.is_default() and all(each is None or each is np._NoValue for each in unusual)


def _extreme(row: Op, found: MaskSelection, node: Node) -> Any:
    """The least or greatest value; evaluated now if it is not known whether there is one."""
    known = found.known()
    if known is None:
        axes = tuple(range(len(found.mask.shape)))
        exists = reduce_node(TABLE["reduce:logical_or"], found.mask, axes, False)
        assert exists is not None
        evaluate.evaluate([node, exists], decisions.SELECTION_EMPTY)
        assert exists.value is not None
        none = not exists.value
    else:
        none = not known.number
    if none:
        row.ufunc.reduce(np.empty(0, node.dtype))  # raises
    return from_node(node)


def _total(found: MaskSelection) -> Node:
    """The sum of the floats that a mask keeps, as a node."""
    function: Any = functools.partial(_sum, ref(found.counted))
    function.has_routine = True
    call = HostCall("reduce", function)  # NumPy's name in its warnings
    assert found.value is not None
    return Node(ops.HOST, (found.value, found.mask), call, (), found.dtype, None, caller())


def _is_summed(found: MaskSelection) -> bool:
    """Whether floats are summed unextracted: results of operations are better extracted first."""
    return found.operation is None and size_of(found.mask.shape) >= WORTH


def _sum(held: ref[MaskCount], values: Any, mask: Any) -> Any:
    """The sum of what a mask keeps; `held` gets the counts, if any selection still has it."""
    counted = held()
    kept = None if counted is None else counted.counts
    if kept is None or kept.whole is not mask:
        kept = compact.kept(mask)
        if counted is not None:
            counted.counts = kept
    return compact.total(values, mask, kept)


def mean(x: Any, axis: Any, dtype: Any, keepdims: Any, unusual: Sequence[Any]) -> Any:
    """The mean of a selection of floats as (sum, count); None if it needs the values."""
    found = of(x)
    if found is None or dtype is not None or not _is_plain(axis, keepdims, unusual):
        return None
    if found.made is not None or found.dtype.kind not in "fc" or not _is_summed(found):
        return None
    total = _total(found)
    if found.known() is None:  # one pass for both
        evaluate.evaluate([total], decisions.SELECTION_EMPTY)
    number = found.count().number
    return (total, np.intp(number)) if number else None  # NumPy warns of an empty one


def count_nonzero(x: Any, axis: Any, keepdims: Any) -> Any:
    """How many values of a selection are not zero, as a node; None if it needs the values."""
    found = of(x)
    if found is None or found.made is not None or not _is_plain(axis, keepdims, ()):
        return None
    truth = cast_node(found.chosen(0), _BOOL)
    return reduce_node(_ADD, truth, tuple(range(len(truth.shape))), False, _INTP)


# ------------------------------------------------------------------------------------ assignment


def assigned(mask: Any, value: Any, dtype: np.dtype[Any]) -> Node | None:
    """The values of `value` for all elements, if it is a selection by this mask; else None."""
    found = of(value)
    if found is None or found.made is not None or found.dtype != dtype:
        return None
    if shape_of(mask) != found.mask.shape:
        return None
    inner = of(mask)
    if inner is not None or type(mask) is not ndarray or not is_same(found.mask, node_of(mask)):
        return None
    return found.everything()
