"""A module of lazyfuse runs when one of its names is first read, not when it is imported.

`from lazyfuse.codegen.plan import plan` makes a module object; the code of its file runs at the
first `plan.make_plan`, and the object is an ordinary module from then on. So a module that is not
needed at once is imported as a module, and its names are read where they are used:
`from lazyfuse.codegen.plan.plan import make_plan` reads a name, and runs the module here and now.
This is what Python calls a lazy import (PEP 690, PEP 810), for modules and not for names. A module
that registers something is run by `run(module)`, or `follow(other, module)`: as soon as the other
one has run.

One thread at a time runs such a module, under a lock, and others wait until it is whole. Handlers
of signals and finalisers, which could find half a module, wait too (`devices/critical.py`). A
module that fails is as before, and runs again at the next read. `lazyfuse/__init__.py` installs
the finder before anything else is imported.

A module is made once in a process: a program that deletes it from `sys.modules` and imports it gets
it again. So does a module that runs when the interpreter ends, for a finaliser that computes: by
then Python has taken the import system apart.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.machinery import (
    BuiltinImporter,
    FrozenImporter,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
)
from types import ModuleType
from typing import Any

_OF_IMPORTS = frozenset(
    f"__{name}__" for name in "class name spec loader package path file cached".split()
)
"""What the import system asks of a module: no reason to run it."""

lock = threading.RLock()
_section: AbstractContextManager[Any] = lock
_under_way: set[str] = set()  # modules that the thread with the lock is running
_followers: dict[str, tuple[ModuleType, ...]] = {}  # by the module that they follow
_calls: dict[str, list[Callable[[], object]]] = {}
_due: list[ModuleType] = []  # followers that are to run next
_made: dict[str, ModuleType] = {}  # of lazyfuse; when the interpreter ends, all that these import
_ended = False  # whether Python has taken its import system apart, to end
_open = open
_import_system = sys.path, sys.path_hooks, sys.path_importer_cache

_get = ModuleType.__getattribute__
_set = ModuleType.__setattr__


class Late(ModuleType):
    """A module that has not run."""

    def __getattribute__(self, name: str) -> Any:
        if name not in _OF_IMPORTS:
            run(self)
        return _get(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        run(self)
        _set(self, name, value)

    def __delattr__(self, name: str) -> None:
        run(self)
        ModuleType.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        run(self)
        return list(ModuleType.__dir__(self))


def run(module: ModuleType) -> None:
    """Run a module, unless it has run."""
    if type(module) is not Late:
        return
    with _section:
        name = _get(module, "__name__")
        if type(module) is not Late or name in _under_way:
            return  # another thread was quicker; or the module's own code asks
        loader: Any = _get(module, "__loader__")
        names = _get(module, "__dict__")
        before = dict(names)
        _under_way.add(name)
        try:
            loader.run(module)
            for call in _calls.get(name, ()):
                call()
            _set(module, "__class__", ModuleType)
            _due.extend(_followers.pop(name, ()))
        except BaseException:
            # never empty: there may be no memory to fill it again
            for each in names.keys() - before.keys():
                del names[each]
            names.update(before)
            raise
        finally:
            _under_way.discard(name)
        while _due and not _under_way:
            follower = _due.pop()
            try:
                run(follower)
            except BaseException:
                _due.append(follower)
                raise


def is_late(module: ModuleType) -> bool:
    """Whether a module has not run."""
    return type(module) is Late


def when_run(module: ModuleType, call: Callable[[], object]) -> None:
    """Call a function before others see a module that has run; it must run no other module."""
    if type(module) is Late:
        _calls.setdefault(_get(module, "__name__"), []).append(call)
    else:
        call()


def follow(module: ModuleType, *others: ModuleType) -> None:
    """Run others as soon as a module has run: they register something with it."""
    if type(module) is Late:
        _followers[_get(module, "__name__")] = others
    else:
        for each in others:
            run(each)


def use(section: AbstractContextManager[Any]) -> None:
    """Run modules in this section from now on; its lock is `lock`."""
    global _section
    _section = section


class Loader(SourceFileLoader):
    """Loads a module from its file when one of its names is read."""

    def exec_module(self, module: ModuleType) -> None:
        """Leave the code for later; a package runs at once, if it has any code."""
        vars(module)["__warningregistry__"] = None  # interop/warning_locations.py says why
        if not hasattr(module, "__path__"):
            module.__class__ = Late
        elif os.stat(self.path).st_size:
            self.run(module)
        _made[module.__name__] = module

    def run(self, module: ModuleType) -> None:
        """Run the code."""
        if _ended:
            builtins.open = _open  # which Python takes away, too
        super().exec_module(module)


class _Again(Loader):
    """Loads a module that has been made: the import system takes it from `sys.modules`."""

    def exec_module(self, module: ModuleType) -> None:
        """Put it back; and what the program may have deleted with it, unless all of it ends."""
        name, below = module.__name__, f"{module.__name__}."
        if not _ended:
            sys.modules.update(_made)
        elif hasattr(_made[name], "__path__"):
            sys.modules[name] = _made[name]
        else:  # no package, whose modules the import system would ask for: `os.path`
            found = {k: v for k, v in _made.items() if k == name or k.startswith(below)}
            sys.modules.update(found)


def has_ended() -> bool:
    """Whether Python has taken its import system apart: a finaliser computes, `sys` is empty."""
    return _ended


def whole() -> None:
    """The package has been imported: from now on it is never made again."""
    _made.update({name: sys.modules[name] for name in ("lazyfuse", "lazyfuse.bootstrap", __name__)})


@contextmanager
def uncollected() -> Iterator[None]:
    """Import without collections: all that is made then stays, and the first ones of the program
    would go through it again and again.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def found_behind(
    finder: Any, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    """What the finders after `finder` in `sys.meta_path` find, called as Python calls them."""
    finders = list(sys.meta_path)
    for other in finders[finders.index(finder) + 1 if finder in finders else 0 :]:
        if other is not finder and hasattr(other, "find_spec"):
            spec = other.find_spec(name, path, target)
            if spec is not None:
                return spec
    return None


def _watch() -> None:
    """At the end of the program, wait for the end of the import system."""
    sys.meta_path = [Finder(), *sys.meta_path]  # Python itself holds the list that was there


class Finder:
    """Finds modules of lazyfuse, and lets them run late.

    What is in an archive, or in machine code, is found and imported as usual.
    """

    def __del__(self) -> None:
        """Give Python its import system back, of which it takes the list of finders away last.

        The modules that it finds among the imported ones are emptied later: ours and those that
        they need are not there any more.
        """
        global _ended
        _ended = True
        for name, module in list(sys.modules.items()):
            if module is not None and name.partition(".")[0] in _LASTING:  # type: ignore[redundant-expr]
                _made[name] = module
                del sys.modules[name]
        sys.path, sys.path_hooks, sys.path_importer_cache = _import_system
        sys.meta_path = [Finder, BuiltinImporter, FrozenImporter, PathFinder]

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As of every finder."""
        if target is None and name in _made and "lazyfuse" in _made:
            return ModuleSpec(name, _Again(name, ""))
        if not name.startswith("lazyfuse."):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = Loader(name, spec.loader.path)
        return spec


_LASTING = sys.stdlib_module_names - {"builtins", "sys"} | {"lazyfuse", "numpy"}
sys.meta_path.insert(0, Finder)
atexit.register(_watch)
# The first lock that forks are to take is the last that they take: its owner waits for no other.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
    )
