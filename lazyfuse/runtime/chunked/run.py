"""Evaluation of graphs over arrays in chunks: what is planned, computed, kept and fetched.

Owns the values of nodes in chunks (`Place`) and the hook that evaluate.py calls. Tasks run without
the lock of evaluations, since tasks on threads of this process take it for each kernel.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from lazyfuse import config
from lazyfuse.codegen.graph.interpret import empty_in_order, run_node
from lazyfuse.codegen.graph.linearize import linearize
from lazyfuse.codegen.graph.node import Node, source_line, topological
from lazyfuse.codegen.graph.shapes import size_of
from lazyfuse.codegen.table import ops, promotion
from lazyfuse.devices import registry
from lazyfuse.devices.base import Device
from lazyfuse.devices.dask import device as scheduler
from lazyfuse.errors import EvaluationError
from lazyfuse.io.chunks import normalise
from lazyfuse.runtime.chunked import graph, tasks
from lazyfuse.runtime.chunked.demand import Unchunkable, has_chunks
from lazyfuse.runtime.chunked.geometry import Grid
from lazyfuse.runtime.chunked.stages import COSTLY, Plan, along_an_axis, is_pending
from lazyfuse.runtime.chunked.told import told
from lazyfuse.runtime.chunked.values import Chunked, Key, slices_of
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.events.decisions import Rule
from lazyfuse.runtime.execution import concurrency
from lazyfuse.runtime.layout.meta_arrays import meta_array
from lazyfuse.runtime.numerics import fp_flags
from lazyfuse.runtime.placement import devices, residency
from lazyfuse.runtime.scheduling import evaluate

Array = np.ndarray[Any, np.dtype[Any]]

READ = 4.0  # additions that take as long as to get an element that is not stored
SMALL = 1 << 20  # bytes of a value that is fetched although the host does not wait


class Place(residency.Resident):
    """A node's value in chunks."""

    __slots__ = ("chunked",)

    def __init__(self, node: Node, chunked: Chunked) -> None:
        super().__init__(node, meta_array(node.shape, node.dtype, node.perm), device())
        self.chunked = chunked
        self.made = True

    def described(self) -> str:
        """How many chunks there are, how large, and where they lie."""
        value = self.chunked
        largest = "x".join([str(max(sizes, default=0)) for sizes in value.grid.chunks])
        if value.source is not None:
            where = value.source.description
        elif not value.stored:
            where = "not computed"
        else:
            where = scheduler.places([value.layers[value.name][key] for key in keys_of(value)])
        return f"{len(value.grid)} chunks of {largest}, {where}"

    def fetch(self, purpose: str) -> Array:
        """The values as a host array, if that is no more than `gather_limit` allows."""
        node = self.node()
        assert node is not None
        _check_size([node])
        with told(node):
            found: Array = unlocked(_fetch, self.chunked, node.perm)
        return found


def device() -> Device:
    """The device of arrays in chunks; `DeviceError`, which says why, where there is none."""
    found = devices.named("dask")
    return found if found.graphs else registry.device("dask")  # raises: why there is none


def open_chunks() -> None:
    """Let evaluations look for arrays in chunks from now on."""
    evaluate.chunked, evaluate.in_chunks = evaluated, is_ours


def keep(node: Node, chunked: Chunked) -> None:
    """Record that the value of a node is in chunks."""
    node.resident = Place(node, chunked)
    residency.note(node.resident)


def leaf_of(chunked: Chunked) -> Node:
    """A new node with a value in chunks."""
    open_chunks()
    node = Node(ops.LEAF, (), None, chunked.grid.shape, chunked.dtype, None, None)
    keep(node, chunked)
    return node


def chunked_of(node: Node) -> Chunked | None:
    """The value of a node in chunks; None where the host has it, or it is not there."""
    place = node.resident
    if not isinstance(place, Place) or (node.value is not None and node.value.nbytes <= SMALL):
        return None
    return place.chunked


def unlocked(call: Callable[..., Any], *args: Any) -> Any:
    """Make a call while this thread does not hold the lock of evaluations."""
    if not concurrency.is_owned():
        return call(*args)
    lock: Any = concurrency.lock
    state = lock._release_save()
    try:
        return call(*args)
    finally:
        lock._acquire_restore(state)


# --------------------------------------------------------------------------------------- the hook


def evaluated(nodes: Sequence[Node], rule: Rule, waits: bool) -> bool:
    """Evaluate nodes over arrays in chunks; whether nothing is left to do.

    `waits`: the host waits for the values; else they may stay in chunks.
    """
    with evaluate.held():
        pending = [node for node in nodes if node.value is None]
        ours = [node for node in pending if is_ours(node)]
        if not ours:
            return False
        away = [node for node in ours if node.resident is None]
        job = _Job(away, waits) if away else None
    if job is not None:
        job.run(rule)
    if waits:
        for node in ours:
            if node.value is None:
                residency.gather(node, rule.name)
    return len(ours) == len(pending)


def is_ours(node: Node) -> bool:
    """Whether a node has, or reads, a value in chunks."""
    if node.resident is not None:
        return isinstance(node.resident, Place)
    selected = devices.user_selected()
    large = selected is not None and selected.graphs
    for each in topological([node]):
        if isinstance(each.resident, Place) and chunked_of(each) is not None:
            return True
        if large and _bytes(each) > devices.chunk_bytes():
            return True
    return False


def is_large(node: Node) -> bool:
    """Whether a value is in chunks, or made of such, and takes more than one chunk may."""
    return _bytes(node) > devices.chunk_bytes() and is_ours(node)


class _Job:
    """The evaluation of some nodes: made with the lock held, run without."""

    def __init__(self, roots: list[Node], waits: bool) -> None:
        recording = linearize(roots)
        held = [
            node
            for node, kept in zip(recording.nodes, recording.held, strict=True)
            if kept and is_pending(node)
        ]
        recording_nodes = recording.nodes
        del recording
        self.waits = waits
        self.roots = roots
        wanted = {id(node) for node in roots}
        room = _Room()
        if waits:
            _check_size(roots)
        # what a name holds is stored on the way if that saves work and there is room
        self.stored = [
            node
            for node in _worth_storing(recording_nodes, held, wanted, waits)
            if room.take(_bytes(node))
        ]
        self.left = [
            node
            for node in held
            if id(node) not in wanted and all(node is not each for each in self.stored)
        ]
        self.room = room

    def run(self, rule: Rule) -> None:
        """Build the tasks, run them, and give the nodes their values."""
        outputs = [*self.roots, *[each for each in self.stored if each not in self.roots]]
        host_steps(outputs)
        with evaluate.held():
            outputs = [node for node in outputs if is_pending(node)]
            made, recorded = self.build(outputs)
        stored = [node for node in self.stored if id(node) in made]
        fetched = [node for node in self.roots if self.waits and id(node) in made]
        with told(next(iter(outputs), None)):
            kept, found = unlocked(
                _computed,
                [made[id(node)] for node in stored],
                [(made[id(node)], node.perm) for node in fetched],
            )
        with evaluate.held():
            for node in outputs:
                if is_pending(node) and not (self.waits and node in fetched):
                    keep(node, made[id(node)])
            for node, value in zip(stored, kept, strict=True):
                keep(node, value)
            for node, array in zip(fetched, found, strict=True):
                node.value = array
            for node in outputs:
                node.src = ()
            counters.totals().flushes[rule] += 1
            evaluate.settled(self.left)
        take_notes(recorded)

    def build(self, outputs: Sequence[Node]) -> Any:
        """The chunked values of the outputs."""
        if not outputs:
            return {}, {}
        try:
            plan = Plan(outputs, grid_of, default_grid, self.room.take)
            return graph.build(plan, chunked_of)
        except Unchunkable as error:
            refuse(outputs[0], str(error))


def _worth_storing(
    order: Sequence[Node], held: Sequence[Node], roots: set[int], waits: bool
) -> list[Node]:
    """Held values that cost much to compute again, and roots for which the host does not wait."""
    named = {id(node) for node in held}
    costs: dict[int, float] = {}
    found = []
    for node in order:
        key = id(node)
        if not is_pending(node):
            place = chunked_of(node)
            costs[key] = READ if place is not None and not place.stored else 0.0
            continue
        own = 8.0 if node.op.kind == "host" else node.op.cost
        costs[key] = own + sum([costs[id(each)] for each in node.src])
        if key in roots and not waits:
            found.append(node)
        elif key in named - roots and (costs[key] >= COSTLY or _bytes(node) <= SMALL):
            found.append(node)
            costs[key] = 0.0
    return found


def refuse(node: Node, why: str) -> NoReturn:
    """Raise: an operation has no meaning in chunks."""
    file, line, function = source_line(node.location)
    what = (
        f"[dask] {why}; take the values to the host first (numpy.asarray), or rechunk the operand"
    )
    raise EvaluationError(what, op=node.op.name, file=file, line=line, function=function)


def grid_of(node: Node) -> Grid | None:
    """The chunks of an evaluated node; None: it is on the host."""
    found = chunked_of(node)
    return None if found is None else found.grid


def default_grid(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Grid:
    """Chunks of at most `chunk_bytes`: cut along the first axes, rows stay whole."""
    return Grid(normalise(None, shape, dtype, devices.chunk_bytes()))


def _bytes(node: Node) -> int:
    return size_of(node.shape) * node.dtype.itemsize


class _Room:
    """The bytes that values may take to be stored on the way."""

    def __init__(self) -> None:
        self.left: int | None = None  # a cluster is asked when a value may be worth storing

    def take(self, size: int) -> bool:
        """Whether so many bytes are there; then they are taken."""
        if self.left is None:
            limit = scheduler.memory_limit() // 4 or config.options.chunk_memory
            used = [each.array.nbytes for each in residency.residents() if _is_stored(each)]
            self.left = limit - sum(used)
        if size > self.left:
            return False
        self.left -= size
        return True


def _is_stored(place: residency.Resident) -> bool:
    return isinstance(place, Place) and place.chunked.stored


def _check_size(nodes: Sequence[Node], why: str = "") -> None:
    """Refuse to fetch more than `gather_limit` bytes to the host."""
    limit = config.options.gather_limit
    for node in nodes:
        size = _bytes(node)
        if limit and size > limit:
            file, line, function = source_line(node.location)
            what = (
                f"[dask] {residency.name_of(node)} has {size / 1e9:.3g} GB in chunks, more than "
                f"gather_limit ({limit / 1e9:.3g} GB){why}: reduce or slice it, save it with "
                "save_chunks, take dask.array's function of x.to_dask(), or raise "
                "lazyfuse.options(gather_limit=...)"
            )
            raise EvaluationError(what, op=node.op.name, file=file, line=line, function=function)


def host_steps(roots: Sequence[Node]) -> None:
    """Run what has no meaning in chunks through NumPy, on operands that are fetched."""
    for node in topological(roots):
        if not is_pending(node):
            continue
        if not size_of(node.shape):
            node.value, node.src = empty_in_order(node.shape, node.dtype, node.perm), ()
            continue
        if along_an_axis(node) if node.op is ops.HOST else has_chunks(node):
            continue
        for each in node.src:
            if each.value is None:
                _check_size([each], f", and {residency.name_of(node)} needs it whole")
                evaluate.evaluate([each], decisions.GATHER)
        if not is_pending(node):  # it has been evaluated together with one of them
            continue
        values = [each.value for each in node.src if each.value is not None]
        perms = [each.perm for each in node.src]
        with fp_flags.collecting() as flags:
            like = node.shape, node.dtype, node.perm
            node.value = run_node(node.op, node.arg, *like, values, perms)
        node.src = ()
        if flags.bits:
            fp_flags.warn_for(flags.bits, [(node.op, node)])


# ------------------------------------------------------------------------------------ running it


def keys_of(chunked: Chunked) -> list[Key]:
    """The keys of all chunks, in C order."""
    return [chunked.key(index) for index in chunked.grid.indices()]


def with_tasks(chunked: Chunked) -> Chunked:
    """The same value with a task for each chunk, also of a source."""
    if chunked.source is None:
        return chunked
    from dask._task_spec import Task

    name = graph.new_name("read")
    found = Chunked(chunked.grid, chunked.dtype, name)
    boxes = chunked.grid.boxes()
    layer: dict[Key, Any] = {}
    for at, index in enumerate(chunked.grid.indices()):
        key = found.key(index)
        layer[key] = Task(key, tasks.read_block, chunked.source, slices_of(boxes, at))
    found.layers[name] = layer
    found.needs[name] = set()
    return found


def _computed(
    stored: Sequence[Chunked], fetched: Sequence[tuple[Chunked, Any]]
) -> tuple[list[Chunked], list[Array]]:
    """Run tasks: values that stay in chunks, and values for the host."""
    stored = [with_tasks(each) for each in stored]
    fetched = [(with_tasks(each), perm) for each, perm in fetched]
    layers: dict[str, Any] = {}
    needs: dict[str, set[str]] = {}
    for each in (*stored, *[one for one, _ in fetched]):
        layers.update(each.layers)
        needs.update(each.needs)
    keep_keys = list(dict.fromkeys(itertools.chain(*map(keys_of, stored))))
    fetch_keys = list(dict.fromkeys(itertools.chain(*[keys_of(one) for one, _ in fetched])))
    if not keep_keys and not fetch_keys:
        return [], []
    keys = list(dict.fromkeys([*keep_keys, *fetch_keys]))
    program = scheduler.culled(layers, keys, needs)
    done = scheduler.persist(program, keys) if keep_keys else {}
    if not keep_keys:
        results = scheduler.compute(program, fetch_keys)
    elif scheduler.client() is not None:
        results = scheduler.gathered([done[key] for key in fetch_keys])
    else:
        results = [done[key].value for key in fetch_keys]
    found = dict(zip(fetch_keys, results, strict=True))
    return [_kept(each, done) for each in stored], [
        assembled(one, perm, found) for one, perm in fetched
    ]


def _kept(chunked: Chunked, done: dict[Any, Any]) -> Chunked:
    """A value whose tasks have run."""
    found = Chunked(chunked.grid, chunked.dtype, chunked.name)
    found.part = chunked.part
    found.layers[chunked.name] = {key: done[key] for key in keys_of(chunked)}
    found.needs[chunked.name] = set()
    found.stored = True
    return found


def assembled(chunked: Chunked, perm: Any, found: dict[Any, Any]) -> Array:
    """A host array of the results of all chunks."""
    grid = chunked.grid
    boxes = grid.boxes()
    made = empty_in_order(grid.shape, chunked.dtype, perm)
    for at, key in enumerate(keys_of(chunked)):
        block = found[key] if chunked.part is None else found[key][chunked.part]
        made[slices_of(boxes, at)] = block
    return made


def _fetch(chunked: Chunked, perm: Any) -> Array:
    return _computed([], [(chunked, perm)])[1][0]


def take_notes(recorded: dict[str, graph.Recorded]) -> None:
    """Count what tasks ran where, and warn of their exceptions at the lines of the operations."""
    if not recorded:
        return
    bits: dict[tuple[str, int], int] = {}
    for worker, (noted, raised) in unlocked(scheduler.on_workers, tasks.taken).items():
        for name, took in noted.items():
            before = counters.totals().tasks.get((worker, name), (0, 0.0, 0))
            count, seconds, size = [a + b for a, b in zip(before, took, strict=True)]
            counters.totals().tasks[worker, name] = int(count), seconds, int(size)
        for key, each in raised.items():
            bits[key] = bits.get(key, 0) | each
    for (token, at), flags in bits.items():
        nodes = recorded.get(token)
        if nodes is not None:
            fp_flags.warn_for(flags, [(nodes[at].op, nodes[at])])


def store(node: Node) -> None:
    """Run the tasks of a value in chunks, and keep the chunks."""
    found = chunked_of(node)
    if found is not None and not found.stored:
        with told(node):
            (value,), _ = unlocked(_computed, [found], [])
        keep(node, value)


def copy_of(node: Node) -> Node:
    """A node with the same values, which may be cut into other chunks."""
    loop = promotion.resolve(ops.COPY, (node.dtype,))
    return Node(ops.COPY, (node,), loop, node.shape, node.dtype, None, node.location)


def grid_for(node: Node) -> Grid:
    """The chunks in which a value would be computed."""
    open_chunks()
    host_steps([node])
    with evaluate.held():
        try:
            found = Plan([node], grid_of, default_grid, lambda _: False).grids[id(node)]
        except Unchunkable as error:
            refuse(node, str(error))
    return found or default_grid(node.shape, node.dtype)
