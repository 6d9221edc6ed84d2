"""Ufuncs in reference cycles are collected, with machine code and without."""

from __future__ import annotations

import gc
import weakref
from typing import Any

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
