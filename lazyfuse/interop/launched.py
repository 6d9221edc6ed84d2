"""Lets a process run a program with lazyfuse, and the processes that the program starts.

Owns what the launcher changes in other packages, each time when the package is imported: debuggers
step over lazyfuse, pytest keeps the code of test modules under a name of its own, and workers of
`multiprocessing`, joblib and pytest-xdist run with lazyfuse too. A plain `import lazyfuse` does
none of this.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from types import FrameType
from typing import Any

from lazyfuse.interop import import_hook, library_adapters
from lazyfuse.interop.import_hook import Owner, owner_of


class Workers:
    """What the launcher knows of other processes."""

    started = False
    """Whether some of them may have run the program's own files with lazyfuse."""


def install() -> None:
    """Run the program's own code with lazyfuse from now on, in this process and its workers."""
    if import_hook.is_installed():
        return
    import_hook.install()
    library_adapters.adapt()  # the program runs unedited
    library_adapters.attend(_CHANGES)


# ---------------------------------------------------------------------------------- debuggers


def _called_by_lazyfuse(frame: FrameType | None) -> bool:
    """Whether lazyfuse is nearer to a frame than code of the user's."""
    while frame is not None:
        owner = owner_of(frame.f_code.co_filename)
        if owner in (Owner.USER, Owner.LAZYFUSE):
            return owner is Owner.LAZYFUSE
        frame = frame.f_back
    return False


def _step_over(bdb: Any) -> None:
    """`step` goes over operations of arrays, as over NumPy's, which are in C."""
    stop_here = bdb.Bdb.stop_here

    def theirs(self: Any, frame: FrameType) -> Any:
        return stop_here(self, frame) and not _called_by_lazyfuse(frame)

    bdb.Bdb.stop_here = theirs


# ------------------------------------------------------------------------------------- pytest


def _name_apart(rewrite: Any) -> None:
    """Test modules' code on disk: what was made with lazyfuse is not read without it."""
    try:
        own = version("lazyfuse")
    except PackageNotFoundError:  # a checkout
        own = ""
    rewrite.PYC_TAIL = f"-lazyfuse{own}{rewrite.PYC_TAIL}"


# ------------------------------------------------------------------------------------ workers


class _Launched:
    """Unpickled in another process, it runs the program's own code with lazyfuse there."""

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return install, ()


def _prepare_workers(spawn: Any) -> None:
    """What a new process reads before it imports the program's main module."""
    get_preparation_data = spawn.get_preparation_data

    def with_lazyfuse(*args: Any, **kwargs: Any) -> dict[str, Any]:
        Workers.started = True
        return {**get_preparation_data(*args, **kwargs), "lazyfuse": _Launched()}

    spawn.get_preparation_data = with_lazyfuse


def _preload_nothing(forkserver: Any) -> None:
    """The server of `multiprocessing` forks workers: the main module, which it may import itself,
    would come to them with NumPy. They import it when they have read how to.
    """
    forkserver.set_forkserver_preload([])


def _prepare_gateways(multi: Any) -> None:
    """Workers of pytest-xdist, which execnet starts, do this before they import tests."""
    makegateway = multi.Group.makegateway

    def with_lazyfuse(self: Any, spec: Any = None) -> Any:
        gateway = makegateway(self, spec)
        if gateway.spec.popen and not gateway.spec.python:  # this machine, and this Python
            Workers.started = True
            gateway.remote_exec(f"from {__name__} import install; install()").waitclose()
        return gateway

    multi.Group.makegateway = with_lazyfuse


# ------------------------------------------------------------------------------------ imports

_CHANGES: dict[str, Callable[[Any], None]] = {
    "bdb": _step_over,
    "_pytest.assertion.rewrite": _name_apart,
    "execnet.multi": _prepare_gateways,
    "joblib.externals.loky.backend.spawn": _prepare_workers,
    "loky.backend.spawn": _prepare_workers,
    "multiprocessing.forkserver": _preload_nothing,
    "multiprocessing.spawn": _prepare_workers,
}
"""Modules, and what the launcher changes in each when it has been imported."""
