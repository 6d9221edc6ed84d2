"""One object of ours for each of NumPy's, whoever asks first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lazyfuse import registry


def test_threads_that_ask_at_once_get_one_ufunc(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    make = registry.OURS[np.ufunc]
    kept = registry.OURS.pop(np.fmod, None)

    def meanwhile(theirs: Any) -> Any:
        """Another thread asks while an object is made."""
        if not made:
            made.append(None)
            made.append(registry.ufunc_of(theirs))
        return make(theirs)

    monkeypatch.setitem(registry.OURS, np.ufunc, meanwhile)
    try:
        assert registry.ufunc_of(np.fmod) is made[1] is registry.ufunc_of(np.fmod)
    finally:
        registry.OURS[np.fmod] = kept if kept is not None else made[1]
