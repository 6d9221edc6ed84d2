"""References: ufuncs in cycles are collected, with machine code and without; none is forgotten."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import numpy
import pytest

import lazyfuse


class Holder:
    """An object that is held by what it holds."""

    held: Any

    def answer(self, *args: Any) -> int:
        return 0


def test_a_ufunc_of_a_bound_method() -> None:
    holder = Holder()
    holder.held = lazyfuse.frompyfunc(holder.answer, 1, 1)
    holder.held(lazyfuse.arange(10))
    known = weakref.ref(holder)
    del holder
    gc.collect()
    assert known() is None


def test_a_refused_deletion_gives_its_references_back() -> None:
    x, dtype = lazyfuse.ones(10), numpy.dtype(float)
    before = sys.getrefcount(dtype)
    for _ in range(100):
        with pytest.raises(ValueError, match="delete"):
            del x[0]
    gc.collect()
    assert abs(sys.getrefcount(dtype) - before) < 20
