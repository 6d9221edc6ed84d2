"""As NumPy's functions that only ask for shapes, dtypes and flags: nothing is evaluated.

NumPy's own function answers, with geometry in the place of arrays. Importing this module registers
what it has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse.arrays.ndarray import geometry, ndarray
from lazyfuse.arrays.operators import dtype_of
from lazyfuse.arrays.scalars import scalar
from lazyfuse.interop import fallback
from lazyfuse.registry import as_builtin, dress, pair

QUESTIONS = (
    "can_cast common_type diag_indices_from iscomplexobj isfortran isrealobj isscalar iterable "
    "ndim result_type shape size tril_indices_from triu_indices_from"
).split()


def _shown(value: Any) -> Any:
    """What has the shape and dtype of an argument; its elements must not be read."""
    kind = type(value)
    if kind is ndarray:
        return geometry(value)
    return dtype_of(value).type() if kind is scalar else fallback.gathered(value)


def inquiry(theirs: Any) -> None:
    """Register our counterpart of a function that looks at no element."""
    name = theirs.__name__

    def call(*args: Any, **kwargs: Any) -> Any:
        if not any(type(x) is ndarray or type(x) is scalar for x in (*args, *kwargs.values())):
            return fallback.run(theirs, name, args, kwargs)
        named = {key: _shown(value) for key, value in kwargs.items()}
        return fallback.from_numpy(theirs(*[_shown(value) for value in args], **named), [])

    dress(call, theirs)
    pair(theirs, as_builtin(call, theirs))


for _name in QUESTIONS:
    inquiry(getattr(np, _name))
