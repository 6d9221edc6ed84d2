"""The libraries that can be compared: how each gets its inputs, runs a case, and is forced."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.case import Array, Case

Runner = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Library:
    """One column: `runner(case)` is a function of the inputs that `take` converted, or None.

    `force` ends when a result has been computed, `back` gives it as numpy arrays. `enter` is called
    before any of the others, outside of what is timed: it chooses the device. `wait(call)` is
    called after the first call, until nothing is being compiled in the background. `slow` libraries
    compile for seconds: there is a budget for that.
    """

    name: str
    version: str
    runner: Callable[[Case], Runner | None]
    take: Callable[[Any], Any] = lambda value: value
    force: Callable[[Any], Any] = lambda value: value
    back: Callable[[Any], tuple[Array, ...]] = lambda result: to_numpy(result)
    enter: Callable[[], object] = lambda: None
    slow: bool = False
    wait: Callable[[Callable[[], Any]], object] = lambda call: None


def kept(name: str) -> str:
    """A folder where peers keep what they compiled, so that another run need not wait for it."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(caches, "lazyfuse-benchmarks", name)
    os.makedirs(folder, exist_ok=True)
    return folder


def parts(result: Any) -> Iterable[Any]:
    """The arrays of a result."""
    return result if isinstance(result, tuple) else (result,)


def to_numpy(result: Any) -> tuple[Array, ...]:
    """A result as numpy arrays: what forces a lazy one, and what is compared."""
    return tuple(np.asarray(part) for part in parts(result))


def of_numpy() -> Library:
    """What everything is measured against."""
    return Library("numpy", np.__version__, functools.partial(_bound, xp=np))


OURS = "lazyfuse"
"""What the names of our own columns begin with."""


def of_lazyfuse(name: str = OURS, device: str = "") -> Library:
    """The library of this repository, perhaps on one device; forced by `to_numpy()`."""
    lazyfuse = importlib.import_module("lazyfuse")

    array = lazyfuse.ndarray

    def enter() -> None:
        if device and lazyfuse.options.device != device:
            lazyfuse.options(device=device)

    def take(value: Any) -> Any:
        return lazyfuse.array(value) if isinstance(value, np.ndarray) else value

    def force(result: Any) -> Any:
        if type(result) is tuple:
            return tuple([force(part) for part in result])
        return result.to_numpy() if type(result) is array else np.asarray(result)

    version = lazyfuse.lazyfuse_version
    runner = functools.partial(_bound, xp=lazyfuse)
    return Library(name, version, runner, take, force, enter=enter, wait=compiled_ahead)


WAITED = 60.0  # seconds for programs that are being compiled in the background


def compiled_ahead(call: Callable[[], Any]) -> None:
    """Call until every program that a call of ours asks for is there."""
    device = sys.modules["lazyfuse.runtime.placement.devices"].cpu()
    finish = getattr(device, "finish", None)
    with sys.modules["lazyfuse"].options(plan_after=0):
        for asks in range(8 if finish is not None else 0):  # the first call plans
            finish(WAITED)
            call()
            if asks and not device.info()["programs"].get("awaited"):
                break


def _bound(case: Case, xp: Any) -> Runner:
    return functools.partial(case.run, xp)


def present(names: Iterable[str], device: str = "") -> list[Library]:
    """NumPy, lazyfuse (on the CPU and a device, if one is named), and peers that are installed."""
    libraries = [of_numpy()]
    if device:
        libraries += [of_lazyfuse(f"{OURS} {each}", each) for each in ("cpu", device)]
    else:
        libraries.append(of_lazyfuse())
    for name in names:
        if importlib.util.find_spec(name) is not None:
            peer = importlib.import_module(f"benchmarks.peers.with_{name}")
            libraries += peer.libraries()
    return libraries
