"""Updates of a private block at once: in NumPy, or by one kernel.

eager_policy.py decides which updates these are. Owns how they are done, and updates by an operation
on a row and a column. In NumPy, `a[k + 1:, k + 1:] -= a[k + 1:, k, None] * a[None, k, k + 1:]` is
two passes over a temporary. It is too small for a plan, as its sizes differ in each loop iteration.
The product is recorded on copies of the row and the column, so that it does not read the block. The
update then runs both as one compiled kernel on the block, with new addresses and sizes. Only exact
operations take this path, so that the bits are NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from lazyfuse.arrays import ndarray as array
from lazyfuse.arrays.base import kept_real
from lazyfuse.arrays.eager_policy import middling, middling_operand
from lazyfuse.arrays.ndarray import (
    CANONICAL,
    caller,
    concrete_value,
    from_node,
    ndarray,
    options,
)
from lazyfuse.arrays.nodes import PLAIN
from lazyfuse.arrays.storage import Storage, leaf
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.graph.references import IN_SLOT, count
from lazyfuse.codegen.lowering import kernel as kernels
from lazyfuse.codegen.plan import plan as plans
from lazyfuse.codegen.table import promotion
from lazyfuse.codegen.table.op import Op
from lazyfuse.codegen.table.ops import kernel_dtype, supports
from lazyfuse.devices import base
from lazyfuse.devices.caches import memo
from lazyfuse.devices.dataclass import dataclass
from lazyfuse.runtime.capture import conditions
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.execution import program_tiers
from lazyfuse.runtime.layout import strides as stride_rules
from lazyfuse.runtime.layout.meta_arrays import Array, DType, address
from lazyfuse.runtime.numerics import errstate, fp_flags
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.scheduling import evaluate
from lazyfuse.runtime.scheduling.evaluate import held


def write_at_once(op: Op, out: ndarray, operands: Sequence[Any]) -> bool:
    """Do `op(*operands, out=out)` at once, if one operand is `out`, in a middling block, and the
    other a pending operation on a row and a column; whether it was done.
    """
    storage = out._storage
    if storage is None or len(operands) != 2 or middling(storage) is None:
        return False
    first, second = operands
    if first is out:
        return fuse_at_once(op, out, second, False)
    return second is out and fuse_at_once(op, out, first, True)


def one_at_a_time(function: Callable[[Any, ndarray, Any], Any]) -> Callable[..., Any]:
    """`function(spec, self, other)`, which changes `self`, run by one thread at a time."""

    def change(spec: Any, self: ndarray, other: Any) -> Any:
        if self._eager is not None:
            return function(spec, self, other)
        with held():
            return function(spec, self, other)

    return change


def update_at_once(op: Op, function: Callable[[Any, Any], Any], self: ndarray, other: Any) -> bool:
    """Do `self op= other` in NumPy in the clear cases: a part of a private block whose values exist
    and have no readers, and operands whose values exist; whether it was done.

    `eager_policy.update` judges the other cases.
    """
    storage = self._storage
    if (
        storage is None
        or storage.always_eager
        or storage.exports is not None
        or not array.ERRSTATE_PLAIN
    ):
        return False
    view = self._view
    if storage.value is None or storage.node.value is not storage.value:
        return False
    # 2: the references of the node and of the holder of the flat memory
    if count(storage.value) > IN_SLOT + 2 or count(storage.node) > IN_SLOT:
        return False
    if storage.node.resident is not None:
        return False
    if view.dtype is not storage.node.dtype:
        return False
    large = view.size >= options.eager_below
    if large:
        found = middling_operand(op, storage, view, other)
    else:
        found = (
            other
            if type(other) in PLAIN
            else concrete_value(other)
            if type(other) is ndarray
            else None
        )
    if found is None:
        return large and middling(storage) is not None and fuse_at_once(op, self, other, False)
    real = kept_real(self, storage.reals)
    if real is None:
        return False
    function(real, found)
    return True


# --------------------------------------------------------------------------------- rows by columns

# The most operations below an update: more are worth a plan.
LONGEST = 8
# Programs are made for loops of at least this many iterations; shorter ones get another variant.
SHORTEST = 32
# Uses between two requests for a program that is not compiled yet; the first two uses ask, too.
SPACING = 16
_HARMLESS = {"ignore", "warn"}


class RankOneProgram:
    """One structure with its classes of strides: the step, and its program once it is compiled."""

    __slots__ = ("program", "step", "uses")

    def __init__(self, step: plans.KernelStep) -> None:
        self.step = step
        self.program: base.RowProgram | None = None
        self.uses = 0


_known: dict[Any, RankOneProgram] = memo("arrays.eager_updates.known", 256)


def outer(op: Op, left: Array, right: Array) -> ndarray | None:
    """The operation on a row and a column, recorded on copies of them; None: NumPy is as good.

    The operands come in the order of the operation.
    """
    if left.ndim != 2 or right.ndim != 2:
        return None
    (rows, thin), (flat, columns) = left.shape, right.shape
    if thin != 1 or flat != 1:
        (flat, columns), (rows, thin) = left.shape, right.shape
        if thin != 1 or flat != 1:
            return None
    loop = _loop(op, left.dtype, right.dtype)
    if loop is None or min(rows, columns) < SHORTEST:
        return None
    if not (errstate.is_default() and options.fusion):
        return None
    # NumPy's result is in C order, whatever the strides of the row and the column
    nodes = leaf(left.copy(), None), leaf(right.copy(), None)
    found: ndarray = from_node(Node(op, nodes, loop, (rows, columns), loop.out, None, caller()))
    return found


def _is_on() -> bool:
    """Whether the error state, the options, the listeners and the device allow such updates."""
    plain = errstate.is_default() and options.fusion and conditions.may_capture()
    return plain and devices.current() is devices.cpu()


_loops: dict[Any, promotion.Loop | None] = memo("arrays.eager_updates.loops", 4096)


def _loop(op: Op, first: DType, second: DType) -> promotion.Loop | None:
    """The loop for two dtypes; None if kernels do not have it, or not with NumPy's bits."""
    key = op, first, second
    try:
        return _loops[key]
    except KeyError:
        pass
    found = None
    with suppress(TypeError):
        found = promotion.resolve(op, (CANONICAL.get(first, first), CANONICAL.get(second, second)))
    if found is not None:
        known = all(each in CANONICAL for each in (*found.ins, found.out))
        if not (known and op.is_exact(found.ins[0]) and supports(op, found).ok):
            found = None
    _loops[key] = found
    return found


def fuse_at_once(op: Op, self: ndarray, other: Any, swapped: bool) -> bool:
    """Do `self = self op other` (or the reverse) together with the pending operations of `other`,
    in one launch on the middling block of `self`; whether it was done.
    """
    node = other._node if type(other) is ndarray else None
    if node is None or node.value is not None or node.resident is not None:
        return False
    storage = self._storage
    if storage is None or len(node.shape) != 2:
        return False
    dtypes_of = self._view.dtype, node.dtype
    loop = _loop(op, *(dtypes_of[::-1] if swapped else dtypes_of))
    if loop is None:
        return False
    with evaluate.held():
        return _was_fused(op, loop, self, storage, node, swapped)


def _was_fused(
    op: Op, loop: promotion.Loop, self: ndarray, storage: Storage, node: Node, swapped: bool
) -> bool:
    view = self._view
    shape = view.shape
    if storage.always_eager or storage.exports is not None or view.dtype is not loop.out:
        return False
    if shape != node.shape or min(shape) < SHORTEST or not errstate.is_default():
        return False
    if storage.memory() is None or storage.has_readers():
        return False
    tree = _tree(node)
    if tree is None or storage.node.resident is not None or not view.flags.writeable:
        return False
    real = array.real_view(self)
    strides = [
        stride_rules.strides_over(real, shape, 2),
        *[_strides(each, shape) for each in tree.arrays],
    ]
    if strides[0][1] != 1 or strides[0][0] < shape[1] or not _is_on():
        return False
    key = op.number, loop, swapped, tree.key(), tuple(map(_class, strides))
    fused = _known.get(key)
    if fused is None:
        fused = _known[key] = RankOneProgram(_step(op, loop, swapped, real, tree))
    # an error state that raises must raise before anything is written
    stops = not _HARMLESS.issuperset(np.geterr().values())
    program = None if stops else fused.program or _look_for(fused, real, tree.arrays)
    if program is None:
        # a plan would be made for one use: the next row by column has other sizes
        evaluate.at_once(tree.inner, decisions.ROW_BY_COLUMN)
        return False
    _launch(program, op, loop, real, strides, tree)
    return True


@dataclass(frozen=True)
class Tree:
    """The pending operations of an update, in order, and the arrays and numbers that they read."""

    inner: list[Node]
    leaves: list[Node]
    arrays: list[Array]
    scalars: list[Node]

    def numbered(self) -> dict[int, int]:
        """The numbers of the nodes, by id, in a kernel; 0 is the block."""
        nodes = (*self.leaves, *self.scalars, *self.inner)
        return {id(each): at for at, each in enumerate(nodes, 1)}

    def key(self) -> tuple[Any, ...]:
        """The structure of the kernel, without strides."""
        number = self.numbered()
        found: list[Any] = [each.dtype.char for each in self.leaves]
        found += [each.dtype.char for each in self.scalars]
        for each in self.inner:
            found += (each.op.number, each.arg)
            found += [number[id(source)] for source in each.src]
        return tuple(found)


def _strides(value: Array, shape: tuple[int, ...]) -> tuple[int, ...]:
    """`strides_over` for two axes, without a look at the strides of a packed row or column."""
    own = value.shape
    if len(own) == 2 and 1 in own and value.flags.c_contiguous:
        return (1, 0) if own[1] == 1 else (0, 1)
    return stride_rules.strides_over(value, shape, 2)


def _tree(root: Node) -> Tree | None:
    """The exact operations below a node, its arrays (smaller than the result) and its numbers."""
    inner: list[Node] = []
    leaves: list[Node] = []
    arrays: list[Array] = []
    scalars: list[Node] = []
    size = root.shape[0] * root.shape[1]
    stack, seen = [root], {id(root)}
    while stack:
        node = stack.pop()
        if node.resident is not None:
            return None
        value = node.value
        if value is None:
            if len(inner) == LONGEST or not _is_exact(node):
                return None
            inner.append(node)
            for source in node.src:
                if id(source) not in seen:
                    seen.add(id(source))
                    stack.append(source)
        elif node.shape == ():
            scalars.append(node)
        elif 2 * value.size > size or not kernel_dtype(node.dtype):
            return None
        else:
            leaves.append(node)
            arrays.append(value)
    # the two axes of a block and a row or column never merge, so a program serves all sizes
    if not any(1 in each.shape for each in leaves):
        return None
    return Tree(_in_order(inner), leaves, arrays, scalars)


def _is_exact(node: Node) -> bool:
    """Whether an operation is elementwise, NumPy's own, and has its bits in kernels."""
    op = node.op
    if op.kind != "map" or op.fusion_barrier or op.ufunc is None or len(node.arg.ins) != 2:
        return False
    return _loop(op, *node.arg.ins) is node.arg


def _in_order(inner: list[Node]) -> list[Node]:
    """The operations, each after those that it reads."""
    if len(inner) == 1:
        return inner
    waiting, done, found = list(inner), set[int](), list[Node]()
    pending = {id(each) for each in inner}
    while waiting:
        ready = [n for n in waiting if all(id(s) in done or id(s) not in pending for s in n.src)]
        found += ready
        done |= {id(each) for each in ready}
        waiting = [each for each in waiting if id(each) not in done]
    return found


def _class(strides: tuple[int, ...]) -> tuple[bool, str]:
    """The class of an array's strides: a program is compiled for it."""
    slow, fast = strides
    return slow == 0, {0: "0", 1: "1", -1: "-"}.get(fast, "s")


def _step(op: Op, loop: promotion.Loop, swapped: bool, real: Array, tree: Tree) -> plans.KernelStep:
    """The update as a kernel: its block first, then the arrays and numbers below."""
    number = tree.numbered()
    body = [
        _instruction(each.op, each.arg, tuple([number[id(source)] for source in each.src]))
        for each in tree.inner
    ]
    last = len(number)
    body.append(_instruction(op, loop, (last, 0) if swapped else (0, last)))
    name = real.dtype.str[1:]
    kernel = kernels.Kernel(
        2,
        (name, *[each.dtype.str[1:] for each in tree.leaves]),
        tuple([each.dtype.str[1:] for each in tree.scalars]),
        tuple(body),
        (kernels.Store(last + 1, name),),
    )
    inputs = tuple(range(len(tree.leaves) + 1))
    numbers = tuple(range(len(inputs), len(inputs) + len(tree.scalars)))
    cost = sum(each.op.cost for each in tree.inner) + op.cost
    return plans.KernelStep(kernel, 0, inputs, numbers, (last + 1,), (), {}, (), cost)


def _instruction(op: Op, loop: promotion.Loop, args: tuple[int, ...]) -> kernels.Instruction:
    return kernels.Instruction(
        op.name, args, tuple([d.str[1:] for d in loop.ins]), loop.out.str[1:]
    )


def _look_for(fused: RankOneProgram, real: Array, values: list[Array]) -> base.RowProgram | None:
    """The program of a structure, if it is compiled by now."""
    fused.uses += 1
    if fused.uses > 2 and fused.uses % SPACING:
        return None
    step, inputs = fused.step, [real, *values]
    step.uses = fused.uses
    device = devices.cpu()
    lowered, program = program_tiers.select_program(
        step, real.shape, inputs, [real], None, device, _refused
    )
    step.selected.clear()
    source = program.source
    if source.language != "numba" or not isinstance(program, base.RowProgram):
        return None
    # `_launch` makes rows for two loops over exactly these arrays
    arrays = [*inputs, real]
    expected = tuple([stride_rules.strides_over(each, real.shape, 2) for each in arrays])
    plain = lowered.slots == tuple(range(len(arrays))) and not lowered.temporaries
    if not plain or lowered.variant.loops != 2 or lowered.table("numba").strides != expected:
        return None
    fused.program = program
    return program


def _refused(step: plans.KernelStep, why: str) -> None:
    """Do nothing: NumPy goes on doing the update."""


def _launch(
    program: base.RowProgram,
    op: Op,
    loop: promotion.Loop,
    real: Array,
    strides: list[tuple[int, ...]],
    tree: Tree,
) -> None:
    """Run the update; floating-point exceptions are reported as by NumPy."""
    arrays = [real, *tree.arrays]
    places = [
        (address(each), each.itemsize, *steps) for each, steps in zip(arrays, strides, strict=True)
    ]
    places.append(places[0])  # where it is stored
    rows, columns = real.shape
    parts = program.pieces(rows * columns)
    chunks = []
    for part in range(parts):
        begin, end = rows * part // parts, rows * (part + 1) // parts
        row = [end - begin, columns]
        for start, size, slow, fast in places:
            row += (start + begin * slow * size, slow, fast)
        chunks.append(row)
    numbers = tuple([each.value[()] for each in tree.scalars])  # type: ignore[index]
    bits = program.launch_rows(chunks, numbers, rows * columns)
    counters.ran_again(devices.cpu(), "numba", len(tree.inner) + 1)
    if bits and fp_flags.is_wanted(bits):
        _warn(bits, op, loop, real, tree.inner)


def _warn(bits: int, op: Op, loop: promotion.Loop, real: Array, inner: list[Node]) -> None:
    """Warn of what the operations raised; those below the update run again to find out."""
    for node in inner:
        with fp_flags.collecting() as found:
            node.value = node.op.ufunc(*[source.value for source in node.src])
        if found.bits:
            fp_flags.warn_for(found.bits, [(node.op, node)])
        bits &= ~found.bits
    for node in inner:
        node.src = ()
    last = Node(op, (), loop, real.shape, loop.out, None, caller())
    if fp_flags.misreports(op, last):
        bits &= fp_flags.shown([real], [(op, last)])
    if bits:
        fp_flags.warn_for(bits, [(op, last)])
