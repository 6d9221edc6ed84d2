"""Indexing: reads and writes of every kind, on arrays in every state.

NumPy applies basic keys to the geometry of the array. A write through a mask is recorded as a
selection. Integer arrays run in NumPy on evaluated arrays. Importing this module installs
`__getitem__` and `__setitem__`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from lazyfuse.arrays import (
    base as core,
)
from lazyfuse.arrays import index_keys, library_indexing, mask_selection, scatter
from lazyfuse.arrays import (
    ndarray as array,
)
from lazyfuse.arrays.assignment import (
    converted,
    fits,
    may_not_hold,
    needs_numpys_cast,
    store_foreign,
    value_node,
)
from lazyfuse.arrays.conversion import real_operand
from lazyfuse.arrays.eager_policy import (
    assignment,
    is_often_visited,
    masked_items,
)
from lazyfuse.arrays.index_keys import has_ellipsis, is_basic, is_pick, opened, real_key
from lazyfuse.arrays.ndarray import (
    OURS,
    concrete_value,
    from_node,
    gather,
    geometry,
    is_part_of_number,
    layout_in,
    materialise,
    ndarray,
    node_of,
    on_storage,
    real_in,
    root_of,
    snapshot,
    storage_of,
    wrap,
    wrap_shared,
    writable,
    write_node,
    write_region,
)
from lazyfuse.arrays.operators import PLAIN, dtype_of, shape_of
from lazyfuse.arrays.recording import may_write, steps_over
from lazyfuse.codegen.graph.node import Layout, Node
from lazyfuse.codegen.graph.shapes import contiguous_strides, size_of
from lazyfuse.codegen.table import ops, promotion
from lazyfuse.kernels import gather as gathers
from lazyfuse.runtime.layout.meta_arrays import ORIGIN, Array, address, keep_order, meta_array
from lazyfuse.runtime.scheduling import evaluate
from lazyfuse.runtime.scheduling.evaluate import held

# A pending array whose elements are picked more often than this is evaluated: it is a loop.
PICK_LIMIT = 4

Real = np.ndarray

# ---------------------------------------------------------------------------------------- reads


def get_item(self: ndarray, key: Any) -> Any:
    """As `numpy.ndarray.__getitem__`."""
    if type(key) is str and (part := index_keys.field(self, key)) is not None:
        return part
    small = self._eager
    if small is None:
        node = self._node
        # no local name for the value: `_read` counts its references, one more would make a copy
        if node is not None and node.value is not None and is_pick(key, len(node.shape)):
            return node.value[key]
        return _read(self, key)
    if is_basic(key):
        value = small[key]
        if type(value) is not Real:
            return value
        if self._may_grow and small.dtype.hasobject and value.base is not small:
            return wrap_shared(value) if not _is_part(value, small) else _part(self, value)
        return _part(self, value)
    value = gathers.at(small, real_key(key))
    if type(value) is Real:
        return _part(self, value) if _is_part(value, small) else wrap(value)
    return value


def _is_part(value: Array, whole: Array) -> bool:
    return value.base is not None and np.may_share_memory(value, whole)


def _part(self: ndarray, value: Array) -> Any:
    return array.direct(value, root_of(self))


def _read(self: ndarray, key: Any) -> Any:
    if not is_basic(key):
        if type(key) is ndarray and (found := mask_selection.at_once(self, key)) is not None:
            return found
        if array.SELECTIONS and (found := mask_selection.narrowed(self, key)) is not None:
            return found
        found = library_indexing.select(self, key)
        if found is None and evaluate.chunked is not None:
            found = library_indexing.select_chunks(self, key)
        if found is not None:
            return found
        mask = key[0] if type(key) is tuple and len(key) == 1 else key
        if _is_mask(mask) and (found := mask_selection.selection(self, mask)) is not None:
            return found
        if type(key) is ndarray:
            scatter.look_together(self, key)
        key = real_key(key)
        if not is_basic(key):
            found = index_keys.read(self, key)
            return _read_advanced(self, key) if found is None else found
    if materialise(self) is not None:
        return self[key]
    node = self._node
    if node is not None and node.value is None:
        view = meta_array(node.shape, node.dtype, node.perm)[opened(key)]
        if not view.ndim and not has_ellipsis(key):
            return _pick(self, key, layout_in(node, view))
    return _read_storage(self, key)


def _read_storage(self: ndarray, key: Any) -> Any:
    storage = self._storage
    if storage is None and (storage := storage_of(self)) is None:
        return self[key]
    if storage.memory() is not None:
        real, reals = real_in(self)  # C finds the numpy arrays of both next time
        value = real[key]
        if type(value) is not Real:
            return value
        part = on_storage(storage, self._view[key], ORIGIN, root_of(self))
        part._reals, part._ticket = reals, storage.add_real(reals, value)
        return part
    view = self._view[opened(key)]
    if not view.ndim and not has_ellipsis(key):
        if is_part_of_number(self):
            gather(self)
            return self[key]
        return _pick(self, key, layout_in(storage.node, view))
    if is_often_visited(storage, view.size):
        gather(self)
        return self[key]
    return on_storage(storage, view, ORIGIN, root_of(self))


def _holds(small: Array, key: Any, value: Any) -> bool:
    """Whether a write stores the object itself: an array as an element of an array of objects."""
    return type(value) is ndarray and small.dtype.kind == "O" and is_pick(key, small.ndim)


def _pick(self: ndarray, key: Any, layout: Layout) -> Any:
    """One element of a pending array: a lazy scalar, the first few times."""
    storage = self._storage
    if storage is not None:
        storage.picks += 1
        picks = storage.picks
        node = storage.node
    else:
        picks = self._picks = getattr(self, "_picks", 0) + 1
        node = self._node  # type: ignore[assignment]  # None: another thread has changed its state
    if picks > PICK_LIMIT or node is None:
        return gather(self)[key]
    return from_node(Node(ops.VIEW, (node,), layout, (), node.dtype, None, None))


def _read_advanced(self: ndarray, key: Any) -> Any:
    real = gather(self)
    value = gathers.at(real, key)
    if type(value) is not Real:
        return value
    return wrap_shared(value) if _is_part(value, real) else wrap(value)


# --------------------------------------------------------------------------------------- writes


_PLAIN = frozenset((float, int, np.float64))
"""Numbers that NumPy converts one by one."""


def set_item(self: ndarray, key: Any, value: Any) -> None:
    """As `numpy.ndarray.__setitem__`."""
    if type(key) is str and (part := index_keys.field(self, key)) is not None:
        set_item(part, ..., value)
        return
    small = self._eager
    if small is None:
        if type(value) is ndarray:
            storage = self._storage
            if storage is not None and value._storage is storage and is_basic(key):
                view = self._view  # the last step of `self[key] += other`
                if view.flags.writeable and _is_itself(self, view[opened(key)], value):
                    return
        elif type(value) in (tuple, list) and _PLAIN.issuperset(map(type, value)):
            with suppress(OverflowError, ValueError):  # told below as NumPy tells it
                self[key] = np.array(value, geometry(self).dtype)
                return
        with held():
            _write(self, key, value)
        return
    if type(key) is not int and type(key) is not slice and not is_basic(key):
        _check_writable(small)
        key = real_key(key)
    if type(value) in OURS and not (small.dtype.hasobject and _holds(small, key, value)):
        value = real_operand(value)
    try:
        if type(key) is Real or type(key) is tuple:
            scatter.write(small, key, value)
        else:
            small[key] = value
    except ValueError as error:
        store_foreign(error, small, key, value)


def _write(self: ndarray, key: Any, value: Any) -> None:
    if materialise(self) is not None:
        self[key] = value
        return
    if not is_basic(key):
        _check_writable(geometry(self))
        mask = key[0] if type(key) is tuple and len(key) == 1 else key
        if _is_mask(mask) and _write_mask(self, mask, value):
            return
        if type(key) is ndarray:
            scatter.look_together(self, key, value)
        key = real_key(key)
        if materialise(self) is not None:  # the key's own code may have changed the array
            self[key] = value
            return
    if is_basic(key):
        _write_region(self, key, value)
    elif (part := index_keys.target(self, key, value)) is None or assignment(self, part, value):
        write_now(self, key, value)
    else:
        index_keys.write(self, part, value)


def write_now(self: ndarray, key: Any, value: Any) -> None:
    """Write with NumPy, at once."""
    if type(value) in OURS:
        value = real_operand(value)
    real = writable(self)
    try:
        scatter.write(real, key, value)
    except ValueError as error:
        store_foreign(error, real, key, value)


def _check_writable(view: Array) -> None:
    """Raise as NumPy does, which looks at the index only afterwards."""
    if not view.flags.writeable:
        number = np.empty((), view.dtype)
        number.flags.writeable = False
        number[...] = 0


def _write_region(self: ndarray, key: Any, value: Any) -> None:
    view = geometry(self)
    _check_writable(view)
    region = view[opened(key)]
    dtype = dtype_of(self)
    if may_not_hold(dtype, value):
        value = real_operand(value)
    # how an element takes a sequence depends on its dtype: NumPy knows the rules
    element = not region.ndim and not has_ellipsis(key)
    if element and needs_numpys_cast(value, dtype):
        write_now(self, key, value)
        return
    if type(value) not in PLAIN and type(value) not in OURS and type(value) is not Real:
        value = converted(value, dtype, region.shape)
    if assignment(self, region, value):
        write_now(self, key, value)
        return
    node = self._node
    storage = self._storage
    holder = storage.node if storage is not None else node
    assert holder is not None
    layout = layout_in(holder, region)
    del holder
    if _is_itself(self, region, value):
        return
    if steps_over(self, value, region):
        write_now(self, key, value)
        return
    new_value = value_node(value, dtype, region.shape, () if element else ...)
    if new_value is None:
        write_now(self, key, value)
    elif region.size:
        del node, view
        write_region(self, layout, new_value)


def _is_itself(self: ndarray, region: Array, value: Any) -> bool:
    """Whether a part is assigned to itself, as the last step of `a[key] += b`."""
    if type(value) not in OURS or self._storage is None:
        return False
    if value._storage is not self._storage:
        return False
    view = value._view
    if view.shape != region.shape:
        return False
    if view.dtype is not region.dtype and view.dtype != region.dtype:
        return False
    return address(view) == address(region) and view.strides == region.strides


# ---------------------------------------------------------------------------------------- masks


def _is_mask(part: Any) -> bool:
    if type(part) in OURS:
        return dtype_of(part) == np.bool_ and shape_of(part) != ()
    return type(part) is Real and part.dtype == np.bool_ and part.ndim > 0


def _write_mask(self: ndarray, mask: Any, value: Any) -> bool:
    """Record `self[mask] = value` as a selection if possible; whether it was recorded."""
    shape, covered = shape_of(self), shape_of(mask)
    whole = mask_selection.assigned(mask, value, dtype_of(self)) if array.SELECTIONS else None
    if whole is not None and covered == shape and may_write(self):
        _select(self, node_of(mask), whole)
        return True
    if covered != shape[: len(covered)] or not (type(value) in PLAIN or type(value) in OURS):
        return False
    if self._storage is not None and (
        not self._view.flags.writeable or is_part_of_number(self) or self._storage.shared()
    ):
        return False
    known = type(mask) not in OURS or concrete_value(mask) is not None
    if known and (masked_items(self, covered) or assignment(self, geometry(self), value)):
        return False
    rest = shape[len(covered) :]
    own = shape_of(value)
    single = size_of(own) == 1 and len(own) <= 1
    if not single and (len(own) > len(rest) or not fits(own, rest)):
        return False
    if type(value) not in OURS and isinstance(value, np.generic):  # converted as arrays are
        value = np.asarray(value)
    chosen = value_node(value, dtype_of(self), () if single else rest)
    if chosen is None:
        return False
    _select(self, node_of(mask) if type(mask) in OURS else snapshot(mask), chosen)
    return True


def _select(self: ndarray, mask: Node, chosen: Node) -> None:
    shape = shape_of(self)
    extra = len(shape) - len(mask.shape)
    if extra:
        strides = contiguous_strides(mask.shape, mask.perm) + (0,) * extra
        layout = Layout(0, mask.shape + (1,) * extra, strides)
        mask = Node(ops.VIEW, (mask,), layout, layout.shape, mask.dtype, None, None)
    old = node_of(self)
    op = ops.TABLE["where"]
    keys = mask.dtype, chosen.dtype, old.dtype
    loop = core.LOOPS.get((op, keys))
    if loop is None:
        loop = core.LOOPS[op, keys] = promotion.resolve(op, keys)
    node = self._node
    perm = node.perm if node is not None else keep_order(self._view)
    del node
    where = array.caller()
    write_node(self, Node(op, (mask, chosen, old), loop, shape, old.dtype, perm, where))


for _name, _function in (("__getitem__", get_item), ("__setitem__", set_item)):
    _function.__name__ = _name
    _function.__qualname__ = f"ndarray.{_name}"
    if not core.COMPILED:
        setattr(ndarray, _name, _function)
