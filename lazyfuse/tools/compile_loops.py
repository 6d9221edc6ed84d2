"""`compile_loops`: hot loops of packages, compiled in place without the launcher.

Owns which packages were asked for, and the finder that prepares the code of their modules. The
public name is not `loops`: that is the package of ours which compiles them.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from types import CodeType, FunctionType, ModuleType
from typing import Any

from lazyfuse import late_modules
from lazyfuse.errors import message
from lazyfuse.loops.prepared import prepared

_asked: set[str] = set()
"""The packages, each with a dot behind."""


def compile_loops(*packages: str) -> None:
    """Compile hot loops of packages in place, as the launcher does in a program's own files.

    Nothing else changes in them: their arrays are NumPy's. A name stands for a package or module
    and all below it. Modules that are imported from now on have their loops compiled, and so have
    functions of those that are imported already, from their next calls on: in a script,
    `compile_loops(__name__)` is for the functions above it. `explain_loops` says what became of
    the loops.

    Raises
    ------
    TypeError
        A name is no text, or there is none.
    ValueError
        There is no such package, or it is lazyfuse or NumPy, which have no loops for this.
    """
    for name in packages or (None,):
        if not isinstance(name, str):
            raise TypeError(message("compile_loops", "packages", "names of packages", name))
        top = name.partition(".")[0]
        if top in ("lazyfuse", "numpy"):
            raise ValueError(
                message("compile_loops", "packages", "others than NumPy and lazyfuse", name)
            )
        if name not in sys.modules and (not top or find_spec(top) is None):
            raise ValueError(message("compile_loops", "packages", "what can be imported", name))
    if not _asked:
        sys.meta_path.insert(0, _Finder)
    _asked.update(f"{name}." for name in packages)
    for each in gc.get_objects():
        if type(each) is FunctionType and _is_asked(each.__globals__.get("__name__")):
            each.__code__ = prepared(each.__code__)


def _is_asked(module: Any) -> bool:
    return f"{module}.".startswith(tuple(_asked))


class _Loader(SourceFileLoader):
    """Python's own, with the loops of its code prepared."""

    def get_code(self, fullname: str) -> CodeType | None:
        code = super().get_code(fullname)
        return prepared(code) if code is not None else None


class _Finder:
    """Takes what the finders behind it find."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The specification of a module of a package that was asked for; else None."""
        if not _is_asked(name):
            return None
        spec = late_modules.found_behind(cls, name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader.__class__ = _Loader
        return spec
