"""The walk, notes and launches in C (native/): object for object what the Python text gives."""

from __future__ import annotations

import ctypes
import importlib.util
import math
import shlex
import struct
import subprocess
import sys
import sysconfig
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyfuse as lf
from lazyfuse import config
from lazyfuse.codegen.graph import linearize
from lazyfuse.codegen.graph.node import Layout, Node
from lazyfuse.codegen.table import ops
from lazyfuse.devices import thread_pool
from lazyfuse.devices.cpu import bound_launch, native_threads
from lazyfuse.runtime.capture import native_replay
from lazyfuse.runtime.events import decisions
from lazyfuse.runtime.scheduling import compound_calls, evaluate, flush
from tests.codegen.random_graphs import random_graph

SOURCES = sorted((Path(__file__).parents[3] / "lazyfuse" / "native").rglob("*.c"))


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The module, built here; skipped where nothing builds it."""
    compiler = sysconfig.get_config_var("CC")
    if sys.implementation.name != "cpython" or not compiler or sys.platform == "win32":
        pytest.skip("no C compiler of this Python's")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("free-threaded builds count no references")
    built = tmp_path_factory.mktemp("walk") / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    include = [f"-I{sysconfig.get_path('include')}", f"-I{np.get_include()}"]
    shared = (
        ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    )
    command = [*shlex.split(compiler), "-O0", "-fPIC", *shared, *include, *map(str, SOURCES)]
    try:
        subprocess.run([*command, "-o", str(built)], check=True, capture_output=True)
    except OSError:
        pytest.skip("no C compiler here")
    spec = importlib.util.spec_from_file_location("_native", built)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(RuntimeError, match="bind"):
        module.walk(())
    linearize.introduce(module)
    return module


@pytest.fixture
def compared(native: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every graph that is evaluated is walked twice; how many nodes each had."""
    found: list[int] = []

    def both(roots: Sequence[Node]) -> Any:
        before = [sys.getrefcount(root) for root in roots]
        theirs = native.walk(roots)
        names = [id(node) for node in theirs[0]]
        rest = theirs[1:]
        assert all(type(flag) is bool for flag in theirs[2])
        del theirs  # its list of nodes would count as a holder
        assert [sys.getrefcount(root) for root in roots] == before
        ours = linearize.walk(roots)
        assert [id(node) for node in ours[0]] == names
        assert ours[1:] == rest
        found.append(len(names))
        return ours

    monkeypatch.setattr(linearize, "_walk", both)
    return found


@pytest.mark.parametrize("keep", [True, False])
def test_random_graphs_are_walked_alike(compared: list[int], keep: bool) -> None:
    for seed in range(150):
        roots = random_graph(seed)
        held = [source for root in roots for source in root.src] if keep else []
        with np.errstate(all="ignore"):
            if roots:
                evaluate.evaluate(roots, decisions.CALLED)
        del held
    assert len(compared) > 20


def _programs(xp: Any) -> list[Any]:
    a, b = xp.arange(12000.0).reshape(100, 120), xp.ones((100, 120))
    shared = a + b
    twice = shared * shared - a
    u = xp.zeros((100, 120))
    u[1:-1, 1:-1] += a[1:-1, 1:-1] * 0.25
    u[::2] = b[::2]
    z = a + 1j
    z.imag[...] = b
    picked = xp.sort(a * 2.0 + b, axis=1)
    rows = a - a.max(axis=1, keepdims=True)
    return [
        twice,
        shared,
        (a.T * 2.0 + b.T)[3:, ::-1],
        u,
        z,
        picked + 1.0,
        rows / rows.sum(axis=1, keepdims=True),
        (a * 3 + 1).sum(),
        xp.where(a > b, 1, a.astype("i4") // 7),
        xp.full((100, 120), 3.0) + a[0],
    ]


def test_views_updates_and_host_calls_are_walked_alike(compared: list[int]) -> None:
    with config.options(eager_below=0):
        for ours, theirs in zip(_programs(lf), _programs(np), strict=True):
            assert np.array_equal(np.asarray(ours), theirs)
    assert max(compared) > 5


def test_a_deep_graph_needs_no_stack(compared: list[int]) -> None:
    with config.options(eager_below=0, flush_nodes=0):
        x = lf.zeros(3)
        for _ in range(5000):
            x = x + 1.0
        assert x.to_numpy().tolist() == [5000.0] * 3
    assert max(compared) > 4000


def test_what_is_no_node_is_refused(native: Any) -> None:
    with pytest.raises(TypeError, match="nodes"):
        native.walk([1])
    with pytest.raises(TypeError, match="sequence"):
        native.walk(3)
    assert native.walk([])[0] == []


def test_classes_with_other_slots_are_refused(native: Any) -> None:
    try:
        with pytest.raises(AttributeError, match="op"):
            native.bind("node", int)
        with pytest.raises(TypeError, match="slot"):
            native.bind("node", type("Plain", (), {"op": None}))
        with pytest.raises(RuntimeError, match="bind"):
            native.walk([])
    finally:
        linearize.introduce(native)
    with pytest.raises(KeyError, match="nothing"):
        native.bind("nothing", None)


# ----------------------------------------------------------------------------------------- notes

_OTHERS = ("allocate", "evaluate", "location", "nodes", "run")
FIELDS = [name for name in flush.Pending.__slots__ if name not in _OTHERS]


class Twins:
    """Notes of the same nodes by the text and in C."""

    def __init__(self, native: Any) -> None:
        self.runs: list[list[tuple[int, str]]] = [[], []]
        self.vast: list[list[Node]] = [[], []]
        functions = [(self.evaluate(at), self.evaluate(at), self.vast[at].append) for at in (0, 1)]
        self.pendings = [flush.Pending(*each) for each in functions]
        names = vars(flush.warnings), vars(compound_calls), vars(flush)
        limits = flush.ROUNDS, flush.REDUCING, flush.TOGETHER, flush.VAST
        noted = native.notes(flush.Pending, lambda: self.pendings[1], *names, *limits)
        self.calls: list[Callable[[Node], None]] = [self.pendings[0].note, noted]

    def evaluate(self, at: int) -> Callable[[Sequence[Node], str], None]:
        def run(nodes: Sequence[Node], reason: str) -> None:
            self.runs[at].append((len(nodes), reason))
            self.pendings[at].reset()

        return run

    def note(self, node: Node) -> None:
        for call in self.calls:
            call(node)
        first, second = self.pendings
        for name in FIELDS:
            pair = getattr(first, name), getattr(second, name)
            if name == "noted":  # each makes objects of its own
                pair = pair[0].entries, pair[1].entries
            assert pair[0] == pair[1], name
        assert [each() for each in first.nodes] == [each() for each in second.nodes]
        assert self.runs[0] == self.runs[1]
        assert self.vast[0] == self.vast[1]


def _line() -> Any:
    return (sys._getframe(1).f_code, sys._getframe(1).f_lasti)


def _node(shape: tuple[int, ...], where: Any, row: str = "add") -> Node:
    op = ops.TABLE[row]
    source = Node(ops.LEAF, (), None, shape, np.dtype(float), None, None)
    return Node(op, (source, source), None, shape, np.dtype(float), None, where)


@pytest.mark.parametrize("shape", [(), (7,), (3, 0), (600, 500), (1 << 40, 1 << 40)])
def test_notes_agree(native: Any, shape: tuple[int, ...]) -> None:
    twins = Twins(native)
    kept = []
    with config.options(flush_nodes=50):
        for turn in range(100):
            node = _node(shape, _line() if turn % 7 else None, "add" if turn % 5 else "reduce:add")
            kept.append(node)
            twins.note(node)
            if turn % 30 == 29:
                for pending in twins.pendings:
                    pending.reset()
    assert twins.runs[0] or shape in ((), (7,), (3, 0))


def test_notes_agree_where_somebody_has_to_look(native: Any) -> None:
    import warnings

    twins = Twins(native)
    kept = [_node((5,), _line()) for _ in range(4)]
    twins.note(kept[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        twins.note(kept[1])
    compound_calls.depth += 1
    try:
        twins.note(kept[2])
        twins.note(kept[3])
    finally:
        compound_calls.depth -= 1


def test_an_error_of_the_slow_way_comes_through(
    native: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins = Twins(native)

    def refuse(pending: flush.Pending, node: Node) -> None:
        raise KeyError("refused")

    monkeypatch.setattr(flush.Pending, "note", refuse)
    names = vars(flush.warnings), vars(compound_calls), {"WORTH_A_LAUNCH": 0}
    noted = native.notes(flush.Pending, lambda: twins.pendings[1], *names, 0, 0, 0, flush.VAST)
    noted(_node((5,), (where := _line())))
    with pytest.raises(KeyError, match="refused"):
        noted(_node((5,), where))


@pytest.mark.parametrize("size", [3, 600])
@pytest.mark.parametrize("last", ["add", "reduce:add", "update"])
def test_notes_of_long_loops_agree(native: Any, size: int, last: str) -> None:
    twins = Twins(native)
    kept = []
    for turn in range(40):
        lines = [(sys._getframe().f_code, 2 * at) for at in range(4)]
        for where in lines:
            node = _node((size, size), where, last if where is lines[-1] else "add")
            if last == "update" and where is lines[-1]:
                node.arg = Layout(0, (size - 1, size - 2), (size, 1))
            kept.append(node)
            twins.note(node)
        if turn % 11 == 10:
            for pending in twins.pendings:
                pending.reset()
        del kept[: -2 if turn % 3 else -20]
    assert twins.runs[0] or size == 3


# -------------------------------------------------------------------------------------- frontier


@pytest.mark.parametrize("seed", range(40))
def test_frontiers_agree(native: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(seed)
    leaf = Node(ops.LEAF, (), None, (5,), np.dtype(float), None, None)
    leaf.value = np.zeros(5)
    nodes = [leaf]
    pending = flush.Pending(*[lambda *_: None] * 3)
    for _ in range(generator.integers(1, 90)):
        src = tuple([nodes[at] for at in generator.integers(0, len(nodes), 2)])
        node = Node(ops.TABLE["add"], src, None, (5,), np.dtype(float), None, None)
        if generator.random() < 0.2:
            node.value, node.src = np.zeros(5), ()
        nodes.append(node)
        if generator.random() < 0.8:  # an operation in place is not noted
            pending.nodes.append(weakref.ref(node))
    node = None  # type: ignore[assignment]
    for at in generator.integers(1, len(nodes), len(nodes) // 4):
        nodes[at] = leaf  # others may still read what was there
    newest = nodes[-1] if seed % 3 else None
    found = []
    for way in (None, native):
        monkeypatch.setattr(flush, "native", way)
        found.append([id(each) for each in pending.frontier(newest)])
    assert found[0] == found[1]
    with pytest.raises(TypeError):
        native.frontier([1], None)
    with pytest.raises(TypeError):
        native.frontier(None, None)


# ------------------------------------------------------------------------------------------ rows

CHUNK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
LOOP = ctypes.CFUNCTYPE(
    ctypes.c_int32, *[ctypes.c_void_p] * 4, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _row(start: int, width: int) -> list[int]:
    return list((ctypes.c_int64 * width).from_address(start))


def launched(
    native: Any,
    rows: Any,
    addresses: Sequence[int],
    scalars: Sequence[Any] = (),
    threads: Any = None,
    program: Any = None,
) -> int:
    """The flags of a launch in a replay that leaves its end to Python."""
    blocks = len(addresses) + 1
    if program is None:
        program = one_launch(native, rows, len(addresses), len(scalars), threads)
    env = [np.asarray(each) for each in scalars]
    roots = [None] * blocks
    at, flags = native.replay_play(program, 0, roots, [*addresses, 0], env, [], None)
    assert at == 0
    return int(flags)


def one_launch(native: Any, rows: Any, arrays: int, scalars: int, threads: Any) -> Any:
    """A replay of one launch."""
    places = tuple([(root, 0) for root in range(arrays)])
    taken = tuple([(at, 0, 0, -1) for at in range(scalars)])
    event = 0, (), rows, threads, places, taken, True
    return native.replay_program(arrays + 1, (), (), (), (event,), ())


def test_one_row_has_addresses_and_scalars(native: Any) -> None:
    seen: list[Any] = []

    def entry(row: int, scalars: int) -> int:
        seen.append((_row(row, 6), ctypes.string_at(scalars, 80)))
        return 5

    chunk = CHUNK(entry)
    template = np.array([[10, 8, 1, 20, 0, 2]], dtype=np.int64)
    rows = native.rows(template.tobytes(), (1, 3), 6, "biufc", _address(chunk), chunk)
    first, second = np.arange(3.0), np.arange(4)
    scalars = (np.True_, np.int8(-3), np.uint64((1 << 64) - 1), np.float32(0.5), 1 + 2j)
    assert launched(native, rows, [first.ctypes.data, second.ctypes.data], scalars) == 5
    (row, packed) = seen[0]
    assert row == [10, 8 + first.ctypes.data, 1, 20 + second.ctypes.data, 0, 2]
    assert packed == struct.pack("q8xq8xQ8xd8xdd", 1, -3, (1 << 64) - 1, 0.5, 1.0, 2.0)


def test_rows_are_filled_for_a_launch_inside_of_another(native: Any) -> None:
    seen: list[list[int]] = []

    def entry(row: int, scalars: int) -> int:
        if not seen:
            seen.append([])
            assert launched(native, rows, [3]) == 0
        seen.append(_row(row, 2))
        return 0

    chunk = CHUNK(entry)
    rows = native.rows(np.array([1, 100]).tobytes(), (1,), 2, "", _address(chunk), chunk)
    assert launched(native, rows, [2]) == 0
    assert seen == [[], [1, 103], [1, 102]]


def test_several_rows_go_through_the_loop(native: Any) -> None:
    seen: list[Any] = []

    def loop(entry: int, rows: int, scalars: int, words: int, *rest: int) -> int:
        assert words % 64 == 0
        assert rows == words + 64
        seen.append((entry, _row(words, 8), _row(rows, 4), rest))
        ctypes.c_int64.from_address(words + 16).value = 9
        return 1

    entered = LOOP(loop)
    template = np.array([[5, 0], [6, 1000]], dtype=np.int64)
    rows = native.rows(template.tobytes(), (1,), 2, "f", 4242, entered)
    for _ in range(2):  # the words begin with zeros again
        threads = lambda: (_address(entered), 0, 0, 0, None, 0, 0.0)
        assert launched(native, rows, [70], [1.0], threads) == 9
    assert seen == [(4242, [0] * 8, [5, 70, 6, 1070], (2, 16, 0))] * 2


def test_python_says_who_helps_until_threads_change_or_are_late(native: Any) -> None:
    asked: list[int] = []
    words = np.zeros(80, dtype=np.int64)  # of a team
    crew = words.ctypes.data
    entered = LOOP(lambda *args: 1)
    address = ctypes.addressof(thread_pool.changes)
    sure = [math.inf]

    def threads() -> Any:
        asked.append(1)
        return _address(entered), 0, crew, 0, None, address, sure[0]

    rows = native.rows(np.array([[5, 0], [6, 0]]).tobytes(), (1,), 2, "", 4242, entered)
    program = one_launch(native, rows, 1, 0, threads)

    def times() -> int:
        asked.clear()
        for _ in range(5):
            launched(native, rows, [70], (), threads, program)
        return len(asked)

    assert times() <= 2  # where the number of changes lies is known from the second time on
    assert times() == 0
    thread_pool.change()
    assert times() == 1
    words[native_threads._LATE] += 1
    assert times() == 1
    sure[0] = 1e3
    thread_pool.change()
    assert times() == 1
    assert times() == 0
    sure[0] = 0.0
    thread_pool.change()
    assert times() == 5


def test_what_does_not_fit_is_refused(native: Any) -> None:
    one = np.array([1, 2]).tobytes()
    for columns, width in (((2,), 2), ((-1,), 2), ((0,), 3), ((0,), 0)):
        with pytest.raises(ValueError, match="rows"):
            native.rows(one, columns, width, "", 1, None)
    rows = native.rows(one, (1,), 2, "i", 1, None)
    for addresses, scalars in (([1, 2], (1,)), ([1], ())):
        with pytest.raises(ValueError, match="launch"):
            launched(native, rows, addresses, scalars)
    assert launched(native, rows, [1], (1j,)) == native_replay.NOT_BEGUN


def test_prepared_launches_by_the_module(native: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound_launch, "native", native)
    generator = np.random.default_rng(3)
    for size in (40_000, 900_000):
        a, b = generator.random(size), generator.random(size)
        ours = lf.array(a), lf.array(b)
        for turn in range(6):
            scale = 0.5 + turn
            found = ((ours[0] * scale - ours[1]) * ours[0] + ours[1] * 3.0).to_numpy()
            assert np.array_equal(found, (a * scale - b) * a + b * 3.0)
            total = float((ours[0] * scale - ours[1]).sum())
            assert total == (a * scale - b).sum()
            z = ((ours[0] + 1j * scale) + ours[1] * 2.0).to_numpy()
            assert np.array_equal(z, (a + 1j * scale) + b * 2.0)
            ours[0][1:-1] += ours[1][:-2] * 0.25 + ours[1][2:]
            a[1:-1] += b[:-2] * 0.25 + b[2:]
            assert np.array_equal(ours[0].to_numpy(), a)
