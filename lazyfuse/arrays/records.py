"""Structured arrays whose fields are recorded.

Where all fields have one dtype, the memory of a structured array is a block of such elements, and a
field is a view of it with a stride. The first field that a program takes makes the memory a storage
of ours. The array itself then has none of the other states (ndarray.py): `_selection` is its
`Records`. Whatever else is asked of it makes it an eager array again, and its fields with it.
"""

from __future__ import annotations

import numpy as np

from lazyfuse.arrays.ndarray import geometry, ndarray, on_storage, options, pin
from lazyfuse.arrays.storage import CANONICAL, Records, Storage, leaf
from lazyfuse.codegen.graph import references
from lazyfuse.devices.caches import cached
from lazyfuse.runtime.layout.meta_arrays import ORIGIN, DType, is_exported, meta_array
from lazyfuse.runtime.scheduling import evaluate


def field(x: ndarray, name: str) -> ndarray | None:
    """A field of a structured array, to be recorded; None if NumPy makes the view at once."""
    records = _records(x)
    if records is None:
        return None
    view = records.meta[name]
    is_unit = view.dtype == records.storage.node.dtype
    return on_storage(records.storage, view, ORIGIN, x) if is_unit else None


def _records(x: ndarray) -> Records | None:
    found = getattr(x, "_selection", None)
    if found is not None or x._eager is None or not x._may_grow:
        return found if type(found) is Records else None
    with evaluate.quiet:
        unit = _unit(x._eager.dtype) if _is_own(x) else None
        if unit is None or evaluate.chunked is not None:
            return None
        real = x._eager
        records = Records(
            Storage(leaf(real.reshape(-1).view(unit), None)),
            meta_array(real.shape, real.dtype, None),
        )
        x._selection = records  # first: another thread always finds one of them
        x._eager = None
        return records


def _is_own(x: ndarray) -> bool:
    """Whether nothing but an array of ours leads to its memory, which is large and packed."""
    flags = x._eager.flags  # type: ignore[union-attr]  # no name for it: references are counted
    packed = flags.owndata and flags.c_contiguous and flags.aligned and flags.writeable
    del flags  # they hold the array
    return (
        packed
        and x._base is None
        and geometry(x).nbytes >= 8 * options.eager_below
        and not is_exported(geometry(x))
        and references.of(x._eager) <= 1
    )


@cached(64)
def _unit(dtype: DType) -> DType | None:
    """The dtype of all fields, if they have one and lie at multiples of its size; else None."""
    fields = (dtype.fields or {}).values()
    units = {each[0].base for each in fields}
    unit = units.pop() if len(units) == 1 else None
    if unit not in CANONICAL or dtype.itemsize % unit.itemsize:
        return None
    return CANONICAL[unit] if all(each[1] % unit.itemsize == 0 for each in fields) else None


def settle(x: ndarray, records: Records) -> None:
    """Make a structured array eager again, and its fields."""
    pin(records.storage)
    flat = records.storage.memory()
    x._may_grow = True
    x._eager = np.ndarray(records.meta.shape, records.dtype, flat)
    x._selection = None
