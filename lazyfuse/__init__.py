"""NumPy, lazily and fused: `import lazyfuse as np`.

Every public name of NumPy is here; arrays record what is done to them and compute when somebody
looks. What lazyfuse adds: `explain` (what will run, and why), `report` (what ran), `options`,
`accelerate` (existing code), `evaluate`, `cache_info`, `cache_clear`, `fallbacks`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as _numpy

from lazyfuse import _source_tree  # noqa: F401  # first: completes the package in a checkout
from lazyfuse import array as _array
from lazyfuse import scalars as _scalars  # noqa: F401  # completes the array type
from lazyfuse import (  # noqa: F401  # each registers what it has in the place of NumPy's
    creation as _creation,
    errstate as _errstate,
    methods_of_functions as _methods,
    namespaces,
    products as _products,
    protocols as _protocols,
    recipes as _recipes,
    reductions as _reductions,
    selection as _selection,
    shaping as _shaping,
    sorting as _sorting,
    special as _special,
    ufunc as _ufunc,
    viewing as _viewing,
)
