"""Objects of NumPy's namespaces that are neither functions nor ufuncs: index tricks, classes.

Owns REPLACEMENTS: (NumPy module, name) -> a function that makes what lazyfuse has in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lazyfuse import fallback
from lazyfuse.array import wrap_shared
from lazyfuse.errstate import errstate

__all__ = ["REPLACEMENTS", "IndexTrick", "NpzFile", "Operation", "vectorize", "wrap_shared"]


class IndexTrick:
    """As `numpy.r_`, `numpy.c_`, `numpy.mgrid`, `numpy.ogrid`: made by indexing."""

    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs
        self.__doc__ = theirs.__doc__

    def __getitem__(self, key: Any) -> Any:
        return fallback.run(self._theirs.__getitem__, type(self._theirs).__name__, (key,), {})

    def __len__(self) -> int:
        return len(self._theirs)

    def __getattr__(self, name: str) -> Any:
        if name == "_theirs":  # while being unpickled
            raise AttributeError(name)
        return getattr(self._theirs, name)


class Operation:
    """A callable object of `numpy.ma` with methods (`reduce`, `outer`, ...), for our arrays."""

    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs
        self.__doc__ = theirs.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return fallback.run(self._theirs, str(self._theirs), args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_theirs":
            raise AttributeError(name)
        found = getattr(self._theirs, name)
        return Operation(found) if callable(found) and not isinstance(found, type) else found

    def __repr__(self) -> str:
        return repr(self._theirs)

    def __str__(self) -> str:
        return str(self._theirs)


class vectorize(np.vectorize):  # noqa: N801  # NumPy's spelling
    """As `numpy.vectorize`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.pyfunc is np._NoValue:  # used as a decorator with arguments
            return super().__call__(*args, **kwargs)
        return fallback.run(super().__call__, "vectorize", args, kwargs)


class NpzFile(np.lib.npyio.NpzFile):
    """As `numpy.lib.npyio.NpzFile`: its arrays are ours."""

    def __getitem__(self, key: str) -> Any:
        return fallback.from_numpy(super().__getitem__(key), [])


def _index_trick(name: str) -> Callable[[], Any]:
    return lambda: IndexTrick(getattr(np, name))


def _masked_trick() -> Any:
    return Operation(np.ma.mr_)


REPLACEMENTS: dict[tuple[str, str], Callable[[], Any]] = {
    ("numpy", "r_"): _index_trick("r_"),
    ("numpy", "c_"): _index_trick("c_"),
    ("numpy", "mgrid"): _index_trick("mgrid"),
    ("numpy", "ogrid"): _index_trick("ogrid"),
    ("numpy", "vectorize"): lambda: vectorize,
    ("numpy", "errstate"): lambda: errstate,
    ("numpy.lib.npyio", "NpzFile"): lambda: NpzFile,
}
