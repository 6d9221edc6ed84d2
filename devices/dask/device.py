"""The device `dask`: arrays in chunks, on the scheduler that Dask would use.

Its work is whole graphs (`Device.graphs`), which lazyfuse/runtime/chunked makes; programs that are
too small for chunks are the CPU's. Imports Dask when the first graph runs.
"""

from __future__ import annotations

import importlib
import os
import sys
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from importlib import metadata
from typing import Any

from lazyfuse.devices import caches
from lazyfuse.devices.base import Array, Device, DeviceError, Program, Source, Traits
from lazyfuse.devices.caches import cached, register

Tasks = Mapping[Any, Any]


def make() -> Dask:
    """The device; `DeviceError` without Dask."""
    try:
        import dask.array  # noqa: F401  # the extra may be missing
    except ImportError as error:
        raise DeviceError(f"[dask] {error}; pip install 'lazyfuse[dask]'") from error
    return Dask()


class Dask(Device):
    """Runs task graphs on the active Dask client, or on threads."""

    graphs = True

    def __init__(self) -> None:
        self.traits = Traits("dask", "cluster", os.cpu_count() or 1, ("numba", "numpy"))

    def compile(self, source: Source) -> Program:
        """As `base.Device.compile`: never, its workers compile."""
        raise DeviceError(f"[dask] {source.name}: tasks are compiled by workers")

    def cached(self, source: Source) -> bool:
        """As `base.Device.cached`."""
        return False

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """As `base.Device.empty`."""
        raise DeviceError("[dask] chunks are made by tasks")


def _base() -> Any:
    return importlib.import_module("dask.base")


def client() -> Any:
    """The active client of a cluster, or None."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None

    found = _base().get_scheduler()
    owner = getattr(found, "__self__", None)
    return owner if isinstance(owner, distributed.Client) else None


def memory_limit() -> int:
    """The bytes that all workers of the cluster may hold together; 0 without a cluster."""
    found = client()
    if found is None:
        return 0
    workers = found.scheduler_info(n_workers=-1).get("workers", {}).values()
    return sum([int(each["memory_limit"] or 0) for each in workers])


def culled(layers: Mapping[str, Tasks], keys: Sequence[Any]) -> dict[Any, Any]:
    """The tasks that some keys need."""
    from dask._task_spec import GraphNode, convert_legacy_task

    tasks: dict[Any, Any] = {}
    for layer in layers.values():
        tasks.update(layer)
    found: dict[Any, Any] = {}
    stack = list(keys)
    while stack:
        key = stack.pop()
        if key not in found:
            task = tasks[key]
            if not isinstance(task, GraphNode) and not _is_future(task):
                task = convert_legacy_task(key, task, tasks)
            found[key] = task
            stack += getattr(task, "dependencies", ())
    return found


class TaskGraph(dict[Any, Any]):
    """Tasks for a cluster. Dask would go through all arguments for a name; each graph is new."""

    def __reduce__(self) -> Any:
        return dict, (list(self.items()),)


@cached(1, caches.CONSTANT, clears=False)
def _name_graphs() -> None:
    tokenize: Any = importlib.import_module("dask.tokenize")
    tokenize.normalize_token.register(TaskGraph, lambda tasks: ("lazyfuse", uuid.uuid4().hex))


def _is_future(value: Any) -> bool:
    """Whether a value lies on the workers of a cluster."""
    distributed = sys.modules.get("distributed")
    return distributed is not None and isinstance(value, distributed.Future)


def compute(tasks: dict[Any, Any], keys: Sequence[Any]) -> list[Any]:
    """The results of some tasks, in their order, in this process."""
    import dask.array

    owner = client()
    if any(_is_lost(each, owner) for each in tasks.values()):
        raise DeviceError(_LOST)
    _compare(owner)
    get: Callable[..., Any] = _base().get_scheduler(cls=dask.array.Array)
    _name_graphs()
    try:
        return list(get(TaskGraph(tasks), list(keys)))
    except (CancelledError, OSError) as error:
        if not type(error).__module__.startswith("distributed"):
            raise  # a task's own
        raise DeviceError(_LOST) from error


_compared: weakref.WeakSet[Any] = weakref.WeakSet()
register(
    "devices.dask.device.compared", _compared.__len__, None, None, "the clients of the program"
)


def _compare(owner: Any) -> None:
    """Tell, once, which workers of a cluster have other versions, or another kind of processor."""
    if owner is None or owner in _compared:
        return
    _compared.add(owner)
    here = versions()
    for worker, there in owner.run(versions, on_error="return").items():
        if isinstance(there, BaseException):
            what = f"[dask] worker {worker} cannot run lazyfuse: {there}"
            raise DeviceError(f"{what}; install the client's lazyfuse and NumPy there")
        other = [
            f"{name} {there[name]}, here {here[name]}" for name in here if there[name] != here[name]
        ]
        if other:
            what = f"worker {worker} has {'; '.join(other)}: last digits may differ"
            warnings.warn(f"[dask] {what}", RuntimeWarning, stacklevel=2)


def versions() -> dict[str, str]:
    """What results of this process depend on: versions, and what the processor can do."""
    multiarray: Any = importlib.import_module("numpy._core._multiarray_umath")
    features = [name for name, there in multiarray.__cpu_features__.items() if there]
    return {
        "Python": ".".join(map(str, sys.version_info[:2])),
        "NumPy": metadata.version("numpy"),
        "lazyfuse": metadata.version("lazyfuse"),
        "a processor with": " ".join(sorted(features)),
    }


_LOST = (
    "[dask] chunks lie on a cluster that is gone, or is not the one in use: compute the array "
    "again from its source, or save it before the cluster ends"
)


def _is_lost(value: Any, owner: Any) -> bool:
    """Whether a value lies on workers that the client in use cannot ask."""
    return _is_future(value) and (value.client is not owner or value.cancelled())


def in_turn(tasks: dict[Any, Any], keys: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """The results of some tasks of a cluster, each with its position, a few at a time."""
    owner = client()
    width = 2 * len(owner.scheduler_info(n_workers=-1).get("workers", {})) + 2
    for begin in range(0, len(keys), width):
        some = keys[begin : begin + width]
        yield from enumerate(compute(culled({"all": tasks}, some), some), begin)


def persist(tasks: dict[Any, Any], keys: Sequence[Any]) -> dict[Any, Any]:
    """The results of some tasks as tasks that have run: data here, or futures on a cluster."""
    from dask._task_spec import DataNode

    found = client()
    if found is None:
        return {
            key: DataNode(key, value) for key, value in zip(keys, compute(tasks, keys), strict=True)
        }
    _compare(found)
    _name_graphs()
    futures = found.get(TaskGraph(tasks), list(keys), sync=False)
    return dict(zip(keys, futures, strict=True))


def on_workers(function: Callable[[], Any]) -> dict[str, Any]:
    """The results of a function by worker: in this process, or in each worker of the cluster."""
    found = client()
    if found is None:
        return {"threads": function()}
    return dict(found.run(function, on_error="ignore"))


def places(tasks: Sequence[Any]) -> str:
    """Where the results of tasks that have run lie: on how many workers, or here."""
    owner = client()
    futures = [each for each in tasks if _is_future(each)]
    if not futures or owner is None:
        return "in this process" if not futures else "on workers that are gone"
    holders = {each for many in owner.who_has(futures).values() for each in many}
    return f"on {len(holders)} workers" if holders else "being computed on the cluster"
