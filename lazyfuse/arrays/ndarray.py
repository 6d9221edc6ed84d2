"""The array: what it holds, and how values get in and out of it.

Owns `ndarray` and its states, and the functions that all build on; operators.py, indexing.py,
attributes.py and methods.py install theirs. Imports nothing above storage.py and evaluate.py.

An array is in one of four states:
- eager (made by `direct`): `_eager` is a numpy array. Everything on it runs at once, in NumPy; its
  views are NumPy's. Arrays below `eager_below` elements and dtypes never recorded are eager.
- owned (made by `alone`): `_node` has its values, pending or not; no other array shares its memory.
- aliased (made by `on_storage`): `_storage` holds the values of a block, `_view` is a meta array,
  the geometry of this array in it. `_reals` and `_ticket` find the numpy array of this array in the
  storage (see `real_view`). In C a part holds it itself (native/graph/real_views.c).
- dynamic-size: none of the three is set, `_selection` has the values and the mask of a selection
  whose size the program has not needed yet (mask_selection.py), or a structured array's memory
  whose fields are recorded (index_keys.py). `materialise` ends this state.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from lazyfuse import config
from lazyfuse.arrays import base as core
from lazyfuse.arrays.base import ARRAY_SLOTS, HOOKS, Core
from lazyfuse.arrays.base import may_grow as may_grow
from lazyfuse.arrays.instance_checks import Kind, with_base
from lazyfuse.arrays.nodes import caller as caller
from lazyfuse.arrays.nodes import cast_node as cast_node
from lazyfuse.arrays.nodes import copy_of as copy_of
from lazyfuse.arrays.nodes import full_node as full_node
from lazyfuse.arrays.nodes import lies_in_numpys_memory as lies_in_numpys_memory
from lazyfuse.arrays.nodes import scalar_node as scalar_node
from lazyfuse.arrays.nodes import snapshot as snapshot
from lazyfuse.arrays.nodes import updated
from lazyfuse.arrays.storage import CANONICAL as CANONICAL
from lazyfuse.arrays.storage import (
    Records,
    Storage,
    foreign,
    fresh_leaf,
    is_countable,
    is_evaluated,
    leaf,
    lender,
    note_owner,
    own_value,
)
from lazyfuse.codegen.graph.node import Layout, Node, Where
from lazyfuse.codegen.graph.references import IN_SLOT, count
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.table import ops, promotion
from lazyfuse.runtime.events import decisions, spans
from lazyfuse.runtime.execution import concurrency
from lazyfuse.runtime.layout.meta_arrays import (
    ORIGIN,
    Array,
    DType,
    address,
    affine,
    byte_strides,
    keep_order,
    layout_of,
    meta_array,
    meta_view,
    over_buffer,
    packed_layout,
    packed_order,
    result_order,
    same_strides,
    terminal,
    window,
)
from lazyfuse.runtime.numerics import errstate
from lazyfuse.runtime.placement import residency
from lazyfuse.runtime.scheduling import evaluate
from lazyfuse.runtime.scheduling.eager_rules import small_array

ERRSTATE_PLAIN = True
"""Whether NumPy's floating-point error state is its default: only then shortcuts apply."""

options = config.options
new: Any = core.new


class ndarray(Core, metaclass=Kind):  # noqa: N801  # NumPy's spelling
    """As `numpy.ndarray`, but recorded, and evaluated when the program looks at a value."""

    __module__ = "lazyfuse"
    __slots__ = ARRAY_SLOTS

    if TYPE_CHECKING:  # base.py has the slots, without the types of their values
        _base: ndarray | None  # the array that a view was made from
        _selection: Any  # of a dynamic-size selection: its MaskSelection; else not set
        _layout: Any  # of an aliased array: its graph.Layout, once computed
        _node: Node | None
        _picks: int  # of an owned array: how often an element was read while pending
        _reals: dict[int, Array] | None
        _eager: Array | None
        _storage: Storage | None
        _ticket: int
        _may_grow: bool  # eager, but not for the eager path: may broadcast to a large result
        _view: Array

    _origin = ORIGIN  # where every `_view` starts
    __hash__ = None  # type: ignore[assignment]


if core.COMPILED:
    core.NATIVE.adopt(ndarray)
    spans.adopted()

direct: Callable[..., ndarray] = core.direct
alone: Callable[[Node], ndarray] = core.alone

OURS: set[type] = {ndarray}
"""The types of our values: arrays, and the lazy scalars that scalars.py adds."""


SELECTIONS: list[weakref.ref[ndarray]] = []
"""Selections that may still have a dynamic size: empty in programs that make none."""


# ------------------------------------------------------------------------------------- making


def on_storage(storage: Storage, view: Array, origin: int, base: ndarray | None) -> ndarray:
    """An aliased array: a view of a part of a storage."""
    x: ndarray = new(ndarray)
    x._eager = None
    x._node = None
    x._storage = storage
    x._view = view if origin == ORIGIN else meta_view(view, origin)
    x._layout = x._reals = None
    x._base = base
    return x


def root_of(x: ndarray) -> ndarray:
    """The array that views of `x` have as their base."""
    base = x._base
    return x if base is None else base


def wrap(value: Any) -> Any:
    """An array of ours for a numpy array that only the caller holds; anything else unchanged."""
    if type(value) is not np.ndarray:
        return wrap_shared(value) if isinstance(value, np.memmap) else value
    if small_array(value) or not value.size or value.dtype not in CANONICAL:
        return direct(value)
    if value.base is not None and not is_countable(terminal(value)):
        return wrap_shared(value)  # a buffer or a file: memory of other code after all
    packed, perm = packed_order(value)
    if packed and value.flags.writeable and value.flags.aligned:
        return alone(leaf(value, perm))
    found = window(value)
    if found is None or not value.flags.aligned:
        return direct(value)
    flat, origin = found
    return on_storage(Storage(leaf(flat, None)), value, origin, None)


def wrap_shared(value: Any) -> Any:
    """An array of ours over memory that other code may read and change at any time."""
    if not isinstance(value, np.ndarray):
        return value
    if type(value) is not np.ndarray:
        value = value.view(np.ndarray)
        return with_base(wrap_shared(value), value.base)
    lent = lender(terminal(value))
    if lent is not None:
        x = _known(value, lent)
        if x is not None:
            return x
    if small_array(value) or not value.size or value.dtype not in CANONICAL:
        return direct(value)
    storage = foreign(value)
    if storage is None:
        return direct(value)
    # a meta array: the array itself would count as a reference to the memory of its owner
    return on_storage(storage, meta_view(value, storage.origin), ORIGIN, None)


def _known(value: Array, owner: Any) -> ndarray | None:
    """`value` as a view of the block of ours that it was made from."""
    last = terminal(value)
    if type(owner) is ndarray:
        node = owner._node
        if node is None or node.value is None or terminal(node.value) is not last:
            return None
        if (owner := storage_of(owner)) is None:
            return None
        # not by `memory`: with the caller's reference it would look as if two nodes shared it
        assert owner.node.value is not None
        flat = owner.adopt_value(owner.node.value)
    else:
        flat = owner.memory()
        if flat is None:
            return None
        roots = [root.array for root in owner.exports or ()]
        if not any(last is terminal(each) for each in (flat, owner.value, *roots)):
            return None
    if (value.dtype != flat.dtype and not is_part(value, flat.dtype)) or not affine(value):
        pin(owner)
        return direct(value)
    if owner.always_eager:
        return direct(value)
    # not by the address: exports and foreign memory are the same memory under other bases
    return on_storage(owner, meta_view(value, owner.origin), ORIGIN, None)


def is_part(view: Array, dtype: DType) -> bool:
    """Whether `view` has the real or imaginary parts of numbers of a complex dtype."""
    if dtype.kind != "c" or view.dtype.kind != "f" or view.dtype.itemsize * 2 != dtype.itemsize:
        return False
    sides = zip(view.shape, view.strides, strict=True)
    return not any(length > 1 and stride % dtype.itemsize for length, stride in sides)


def from_node(node: Node) -> Any:
    """What a user gets for a recorded node: an array, or a number if it has no axes."""
    if node.op is ops.VIEW:  # its value would be a view of its source's memory
        node = copy_of(node)
    evaluate.note_recorded(node)
    if node.shape == ():
        return HOOKS.deliver(HOOKS.make_scalar(node))
    return alone(node)


# ------------------------------------------------------------------------------------ reading


def materialise(x: ndarray) -> Array | None:
    """The numpy array of `x`, if `x` is eager or becomes so now; see `concrete_value`."""
    small = x._eager
    if small is not None:
        return small
    storage = x._storage
    if storage is not None:
        if not storage.always_eager:
            return None
        value = real_view(x)
        x._may_grow = True
        x._eager = value
        x._storage = None
        return value
    node = x._node
    if node is None:  # dynamic-size, or another thread has just changed the state
        return x._eager if x._eager is not None or x._storage is not None else HOOKS.resolve(x)
    found = node.value
    if found is None or type(x) is not ndarray or not small_array(found):
        return None
    del found
    with evaluate.quiet:
        if x._node is not node:  # another thread has done it
            return materialise(x)
        del node  # a local name would be counted
        taken = own_value(x._node)
        x._may_grow = may_grow(taken)
        x._eager = taken.copy(order="K") if count(x._node) > IN_SLOT else taken
        x._node = None
    return x._eager


def concrete_value(x: ndarray) -> Array | None:
    """A numpy array with the values of `x`, if an operation on it should run at once."""
    small = x._eager
    if small is not None:
        return small
    storage = x._storage
    if storage is not None and not storage.always_eager:
        if x._view.size >= options.eager_below:
            return None
        value = storage.node.value
        if value is None:
            return None
        if value is storage.value:
            found: Array | None = core.kept_real(x, storage.reals)  # emptied with the values
            if found is not None:
                return found
        del value  # `memory` counts its references
        return real_view(x)
    if (small := materialise(x)) is not None:
        return small
    storage = x._storage
    if storage is None:
        node = x._node
        if type(x) is ndarray or node is None or node.value is None:
            return None
        return node.value[()]  # a scalar that has been evaluated
    if storage.memory() is None or x._view.size >= options.eager_below:
        return None
    return real_view(x)


def node_of(x: ndarray) -> Node:
    """The present values of `x` as a node. Later writes to `x` do not change it."""
    node = x._node
    if node is not None:
        return node
    small = materialise(x)
    if small is not None:
        return snapshot(small)
    storage = x._storage
    if storage is None:  # it was dynamic-size
        return node_of(x)
    if not x._view.size:
        return snapshot(np.empty(x._view.shape, x._view.dtype))
    if storage.shared():
        storage.force(decisions.FOREIGN_READ)
        return snapshot(real_view(x))
    node = storage.read()
    layout = x._layout or layout_in_storage(x)
    if layout is packed_layout(node.shape, node.perm):
        if not is_part_of_number(x):
            return node
    else:
        view = x._view
        # NumPy's reductions walk a repeated axis in another order than its copies lie in memory
        perm = result_order(view.shape, (view,)) if 0 in view.strides else keep_order(view)
        node = Node(ops.VIEW, (node,), layout, layout.shape, node.dtype, perm, None)
    return part_of(x, node) if is_part_of_number(x) else node


def is_part_of_number(x: ndarray) -> bool:
    """Whether `x` is a view of the real or imaginary parts of a storage of complex numbers."""
    storage = x._storage
    return storage is not None and x._view.dtype != storage.node.dtype


def part_of(x: ndarray, node: Node) -> Node:
    """The real or imaginary parts, as `x` views them, of the complex numbers of `node`."""
    second = bool(address(x._view) - ORIGIN & x._view.itemsize)
    found = core.PIECES.get((node.dtype, second))
    if found is None:
        row = ops.TABLE["imag" if second else "real"]
        found = core.PIECES[node.dtype, second] = row, promotion.resolve(row, (node.dtype,))
    op, loop = found
    return Node(op, (node,), loop, node.shape, loop.out, node.perm, caller())


def layout_in_storage(x: ndarray) -> Layout:
    """The layout of an array in its storage (one object for all arrays that cover all of it)."""
    storage = x._storage
    assert storage is not None
    x._layout = layout = layout_in(storage.node, x._view)
    return layout


def layout_in(node: Node, view: Array) -> Layout:
    """The layout of a meta array in the memory of `node`; if it is all of it, `packed_layout`'s."""
    layout = layout_of(view, ORIGIN, node.dtype.itemsize)
    full = packed_layout(node.shape, node.perm)
    if layout == full:
        return full
    if layout.offset or layout.shape != full.shape:
        return layout
    packed = byte_strides(node.shape, node.perm, node.dtype.itemsize)
    return full if same_strides(view, packed) else layout


def gather(x: ndarray) -> Array:
    """The values of `x`, evaluated: for internal, immediate, read-only use."""
    small = x._eager
    if small is not None:
        return small
    node = x._node
    if node is not None:
        value = node.value
        if value is None:
            evaluate.evaluate([node], decisions.GATHER)
        if (small := materialise(x)) is not None:
            return small
        value = node.value
        assert value is not None, "evaluation left a node without a value"
        if type(x) is ndarray:  # no view of ours shares a scalar's memory
            note_owner(value, x)
        return value
    storage = x._storage
    if storage is None:  # dynamic-size, or another thread has just changed the state
        materialise(x)
        return gather(x)
    if evaluate.in_chunks is not None and (part := _fetched_part(x)) is not None:
        return part
    flat = storage.force(decisions.GATHER)
    note_owner(flat, storage)
    return real_view(x)


def real_view(x: ndarray) -> Array:
    """The numpy array of an aliased array, whose values existed when the caller looked."""
    return real_in(x)[0]


def real_in(x: ndarray) -> tuple[Array, dict[int, Array]]:
    """The `real_view` of an array, and the table that keeps the views of the same memory."""
    storage = x._storage
    if storage is None:  # another thread has made it eager
        assert x._eager is not None
        return x._eager, {}
    reals = storage.reals
    if x._reals is reals and storage.memory() is not None:
        found = core.kept_real(x, reals)
        if found is not None:  # another thread may have emptied the table just now
            return found, reals
    with evaluate.held():
        flat = storage.force(decisions.THREAD_WROTE)
        real = over_buffer(x._view, flat, address(x._view) - ORIGIN)
        reals = storage.reals
        x._reals, x._ticket = reals, storage.add_real(reals, real)
        return real, reals


def geometry(x: ndarray) -> Array:
    """A numpy array with the shape, strides and dtype of `x`; its memory must not be read."""
    small = x._eager
    if small is not None:
        return small
    node = x._node
    if node is not None:
        return meta_array(node.shape, node.dtype, node.perm)
    if x._storage is None:
        found = getattr(x, "_selection", None)
        if type(found) is Records:
            return found.meta
        materialise(x)  # it was dynamic-size
        return geometry(x)
    return x._view


def storage_of(x: ndarray) -> Storage | None:
    """The storage of an array, from now on; None if another thread has just made it eager."""
    storage = x._storage
    if storage is not None:
        return storage
    with evaluate.quiet:
        node = x._node
        if node is None and x._storage is None:
            materialise(x)  # it was dynamic-size
            node = x._node
        if node is not None:
            x._view = meta_array(node.shape, node.dtype, node.perm)
            x._layout = x._reals = None
            # `_node` last: another thread always finds one of them
            x._storage = Storage(node)
            x._node = None
        return x._storage


def pin(storage: Storage) -> None:
    """Make a storage always eager: the program has a view of it that cannot be recorded."""
    storage.writable(decisions.UNRECORDED_VIEW)
    storage.always_eager = True


def export(x: ndarray) -> Array:
    """The memory of `x` as a numpy array that other code may keep and write to."""
    small = x._eager
    if small is None and x._node is None and x._storage is None:
        small = materialise(x)  # it was dynamic-size
    if small is not None:
        return small.view()
    if type(x) is not ndarray:  # a scalar: immutable
        return gather(x).copy()
    if concurrency.busy or concurrency.share or evaluate.chunked is not None:
        part = _fetched_part(x)
        if part is not None:
            return part
        evaluate.ahead([x._node or x._storage.node], decisions.EXPORT)  # type: ignore[union-attr]
    with evaluate.held():
        alone = x._node is not None  # no local name for the node: `lend` counts its references
        storage = storage_of(x)
        if storage is None:
            return export(x)
        array = storage.lend()
    pinned = materialise(x) if storage.always_eager else None
    if pinned is not None:
        return pinned.view()
    node = storage.node
    if alone and node.perm is None:  # all of it, in order
        found: Array = np.ndarray(node.shape, node.dtype, array)
        return found
    return over_buffer(x._view, array, address(x._view) - ORIGIN)


def _fetched_part(x: ndarray) -> Array | None:
    """A part of a large array in chunks, which stays there: it is read-only; else None."""
    if evaluate.in_chunks is None or x._storage is None:
        return None
    node = x._storage.node
    size = size_of(node.shape)
    large = size > size_of(geometry(x).shape) and size * node.dtype.itemsize > 1 << 20
    if not large or node.value is not None or not evaluate.in_chunks(node):
        return None
    view = node_of(x)
    evaluate.evaluate([view], decisions.GATHER)
    assert view.value is not None
    found: Array = view.value.view()
    found.flags.writeable = False
    return found


# ------------------------------------------------------------------------------------ writing

_NOTHING = nullcontext()


def changing(x: Any) -> AbstractContextManager[Any]:
    """The lock for a write to `x` (or a tuple) at once: held from the request for the memory on.

    Threads may write to parts of one block; an evaluation between the request and the write might
    move the block, and the write would be lost.
    """
    for each in x if type(x) is tuple else (x,):
        if type(each) is ndarray and each._eager is None:
            return evaluate.held()
    return _NOTHING


def writable(x: ndarray) -> Array:
    """The memory of `x` as a numpy array, evaluated, for NumPy to write to at once."""
    small = materialise(x)
    if small is not None:
        return small
    storage = x._storage
    if storage is not None:
        storage.writable(decisions.WRITE)
        return real_view(x)
    node = x._node
    assert node is not None
    if node.value is None:
        evaluate.evaluate([node], decisions.WRITE)
        if materialise(x) is not None:
            return writable(x)
    value, perm = own_value(node), node.perm
    del node  # a local name would be counted
    if has_readers(x):
        value = value.copy(order="K")
        x._node = leaf(value, perm)
    else:
        residency.forget(x._node)
    return value


def has_readers(x: ndarray) -> bool:
    """Whether recorded work reads the present values of `x` (which is not eager)."""
    storage = x._storage
    if storage is not None:
        return storage.has_readers()
    return count(x._node) > IN_SLOT


def write_node(x: ndarray, value: Node) -> None:
    """Record that all of `x` (not eager) becomes `value`: of its dtype, broadcastable to it."""
    if x._storage is None:
        node = x._node
        assert node is not None
        write_region(x, packed_layout(node.shape, node.perm), value)
    else:
        write_region(x, x._layout or layout_in_storage(x), value)


def write_region(x: ndarray, layout: Layout, value: Node) -> None:
    """Record that a part of the block of `x` becomes `value`, which broadcasts to it."""
    with evaluate.held():  # the node refers to the old values: one thread at a time
        where = caller()
        while not _was_written(x, layout, value, where):
            pass  # a signal handler or finaliser has written meanwhile


def _was_written(x: ndarray, layout: Layout, value: Node, where: Where) -> bool:
    storage = x._storage
    if storage is not None:
        here = old = storage.read()
    else:
        alone = not has_readers(x)
        here = old = x._node  # type: ignore[assignment]
        if old.op is not ops.LEAF and alone and is_evaluated(old):
            old = fresh_leaf(old)
    node = updated(old, layout, value, where)
    if storage is not None:
        return storage.replace(old, node)
    if x._node is not here:
        return False
    x._node = node
    evaluate.note_recorded(node)
    return True


def _listen(plain: bool) -> None:
    global ERRSTATE_PLAIN
    ERRSTATE_PLAIN = plain


errstate.on_change(_listen)
