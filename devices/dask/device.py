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
    """The device; `DeviceError` without Dask.

    Devices are opened where handlers of signals wait. Dask imports `distributed` when it is first
    asked for a scheduler: an interrupt in the middle would leave half of it for good.
    """
    try:
        import dask.array
    except ImportError as error:
        raise DeviceError(f"[dask] {error}; pip install 'lazyfuse[dask]'") from error
    _base().get_scheduler(cls=dask.array.Array)
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


def culled(
    layers: Mapping[str, Tasks], keys: Sequence[Any], needs: Mapping[str, set[str]] | None = None
) -> dict[Any, Any]:
    """The tasks that some keys need.

    With `needs`, what each layer reads: Dask's own layers are optimised by Dask first, and those of
    their tasks that only serve one of ours become part of it.
    """
    from dask._task_spec import GraphNode, convert_legacy_task
    from dask.highlevelgraph import Layer

    tasks: dict[Any, Any] = {}
    foreign: dict[str, Any] = {}
    for name, layer in layers.items():
        if needs is not None and isinstance(layer, Layer):
            foreign[name] = layer
        else:
            tasks.update(layer)
    found: dict[Any, Any] = {}
    outside = []
    stack = list(keys)
    while stack:
        key = stack.pop()
        if key not in found:
            if foreign and key not in tasks:
                outside.append(key)
                tasks[key] = None
                continue
            task = tasks[key]
            if task is None:
                continue
            if not isinstance(task, GraphNode) and not _is_future(task):
                task = convert_legacy_task(key, task, tasks)
            found[key] = task
            stack += getattr(task, "dependencies", ())
    if outside:
        assert needs is not None
        found.update(_optimised(foreign, outside, needs))
        return _with_leaves(found, set(keys))
    return found


def _optimised(
    layers: dict[str, Any], keys: list[Any], needs: Mapping[str, set[str]]
) -> dict[Any, Any]:
    """The tasks of Dask's layers, as `dask.array` would run them."""
    from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

    optimization: Any = importlib.import_module("dask.array.optimization")

    if all(isinstance(layer, MaterializedLayer) for layer in layers.values()):
        return culled(layers, keys)
    inside = {name: needs.get(name, set()) & layers.keys() for name in layers}
    fused = optimization.optimize(HighLevelGraph(layers, inside), keys)
    return _without_aliases(culled({"all": dict(fused)}, keys), set(keys))


def _without_aliases(tasks: dict[Any, Any], wanted: set[Any]) -> dict[Any, Any]:
    """Tasks that another name stands for, and nothing else reads, get that name."""
    from dask._task_spec import Alias, Task

    readers = _readers(tasks)
    made = {}
    gone = set()
    for key, task in tasks.items():
        if isinstance(task, Alias):
            own = tasks[task.target]
            if readers[task.target] == 1 and type(own) is Task and task.target not in wanted:
                made[key] = own.substitute({}, key=key)
                gone.add(task.target)
    return {key: made.get(key, task) for key, task in tasks.items() if key not in gone}


def _readers(tasks: dict[Any, Any]) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for task in tasks.values():
        for each in getattr(task, "dependencies", ()):
            found[each] = found.get(each, 0) + 1
    return found


def _with_leaves(tasks: dict[Any, Any], wanted: set[Any]) -> dict[Any, Any]:
    """A task that reads a single other one, which reads none and has no other reader, holds it."""
    from dask._task_spec import DataNode, Task

    readers = _readers(tasks)
    below = {}
    for key, task in tasks.items():
        known = getattr(task, "dependencies", ())
        below[key] = [each for each in known if not isinstance(tasks[each], DataNode)]
    gone = set()
    made = {}
    for key, task in tasks.items():
        if len(below[key]) != 1 or type(task) is not Task:
            continue
        (leaf,) = below[key]
        own = tasks[leaf]
        alone = readers[leaf] == 1 and leaf not in wanted and not below[leaf]
        if alone and type(own) is Task and not own.block_fusion:
            made[key] = Task.fuse(own, task)
            gone.add(leaf)
    return {key: made.get(key, task) for key, task in tasks.items() if key not in gone}


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

    _check(tasks)
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


def _check(tasks: dict[Any, Any]) -> None:
    owner = client()
    if any(_is_lost(each, owner) for each in tasks.values()):
        raise DeviceError(_LOST)
    _compare(owner)


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
    _check(tasks)
    _name_graphs()
    futures = found.get(TaskGraph(tasks), list(keys), sync=False)
    return dict(zip(keys, futures, strict=True))


def gathered(futures: Sequence[Any]) -> list[Any]:
    """The results of tasks of a cluster, when they are there."""
    try:
        return list(client().gather(list(futures))) if futures else []
    except CancelledError as error:
        raise DeviceError(_LOST) from error


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
