"""Every cache is in the registry, with a limit or a reason; emptying all of them changes no value.

Caches are found in the sources: functions under `functools.cache` and `lru_cache` (there are none:
`caches.cached` is both), and tables of modules that begin empty and that functions fill.
"""

from __future__ import annotations

import ast
import functools
import gc
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse.devices import caches
from tests.campaign import rounds
from tests.programs import compare, deep, test_deep, test_random_loops
from tests.programs.test_random_loops import often  # noqa: F401
from tests.test_layers import FILES

EMPTY = {"dict", "set", "OrderedDict", "defaultdict", "WeakKeyDictionary", "WeakValueDictionary"}
ENTERED = {"register", "tables", "Group"}

NO_CACHES = {
    "lazyfuse.array_api.build._versions": "namespaces, one for each version of the standard",
    "lazyfuse.arrays.conversion._RESULTS": "rules, written at import",
    "lazyfuse.arrays.instance_checks._owners": "whose memory a NumPy array is; weak",
    "lazyfuse.arrays.storage.EXPORTED": "storages whose memory is exported; weak",
    "lazyfuse.codegen.lowering.registered_kernels._REGISTER": "what users registered",
    "lazyfuse.codegen.numba.helpers.HELPERS": "texts, by name: written at import",
    "lazyfuse.codegen.opencl.helpers.HELPERS": "texts, by name: written at import",
    "lazyfuse.codegen.opencl.helpers.SCALAR_ONLY": "names of texts: written at import",
    "lazyfuse.codegen.opencl.grid_reduce.cache": "one value, kept by the kernel it is of",
    "lazyfuse.codegen.plan.chains.PRODUCTS": "rules, written at import",
    "lazyfuse.codegen.plan.chains.TILED": "rules, written at import",
    "lazyfuse.codegen.table.ops.BY_UFUNC": "the op table, by ufunc",
    "lazyfuse.codegen.table.ops.TABLE": "the op table",
    "lazyfuse.config._observers": "callbacks, written at import",
    "lazyfuse.devices.caches.REGISTERED": "the registry itself",
    "lazyfuse.devices.pools.object_code._supplied": "functions that machine code may call",
    "lazyfuse.devices.progress.under_way": "evaluations that run now, while progress is shown",
    "lazyfuse.devices.registry._made": "the devices",
    "lazyfuse.devices.registry._refused": "why OpenCL devices failed",
    "lazyfuse.devices.settings.chosen": "switches that the user set",
    "lazyfuse.interop.library_adapters._attended": "the tables of adapters, and of the launcher",
    "lazyfuse.interop.library_adapters._waiting": "libraries without entrances yet",
    "lazyfuse.late_modules._calls": "what is to be done when a module runs",
    "lazyfuse.late_modules._followers": "modules that run after others",
    "lazyfuse.late_modules._under_way": "modules that are being run",
    "lazyfuse.namespace.numpy_modules.makers": "rules, written at import",
    "lazyfuse.registry.EAGER": "how functions take small arrays, written at import",
    "lazyfuse.registry.NATIVE_KERNELS": "rules, written at import",
    "lazyfuse.registry.OURS": "what stands for NumPy's functions",
    "lazyfuse.registry.THEIRS": "what ours stand for",
    "lazyfuse.runtime.events.numpy_calls.table": "counters",
    "lazyfuse.runtime.execution.concurrency._unlocked_threads": "threads that gave the lock up",
    "lazyfuse.runtime.execution.concurrency._claimed": "nodes that a thread evaluates",
    "lazyfuse.runtime.execution.program_tiers._reported": "what was reported",
    "lazyfuse.runtime.execution.tiles.MAKERS": "rules, written at import",
    "lazyfuse.late_modules._made": "the modules of lazyfuse, for when the interpreter ends",
    "lazyfuse.namespace.subclasses._made_for": "what the class has for every array, by name",
    "lazyfuse.runtime.numerics.warning_filters._homes": "the modules of files",
    "lazyfuse.runtime.numerics.warning_filters._registries": "warnings that were shown",
    "lazyfuse.runtime.scheduling.elision.watched": "elided values that may be read; weak",
    "lazyfuse.runtime.placement.devices._found": "devices, by the names asked for",
    "lazyfuse.runtime.placement.devices._lost": "devices that are lost",
    "lazyfuse.runtime.placement.offload._opened": "devices in use",
    "lazyfuse.runtime.placement.offload._refused": "why devices are not used",
    "lazyfuse.runtime.placement.pending_launches._early": "what has to be reported still",
    "lazyfuse.runtime.placement.pending_launches._waiting": "launches under way",
    "lazyfuse.runtime.capture.conditions._switches": "options",
    "lazyfuse.tools.compile_loops._asked": "packages that a program has named",
}
"""Tables that begin empty and hold state that is not to be computed again: what they are."""


def test_every_cache_is_entered() -> None:
    found = {name for module, path in FILES.items() for name in unentered(module, path)}
    assert found - NO_CACHES.keys() == set(), "use caches.cached, memo, register or Group"
    assert NO_CACHES.keys() - found == set(), "gone, or entered by now: take their lines"


def unentered(module: str, path: Path) -> Iterator[str]:
    """Functions that functools caches, and tables that no call enters."""
    tree = ast.parse(path.read_text())
    if module != caches.__name__:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute | ast.Name | ast.ImportFrom):
                yield from (f"{module}.{name}" for name in cachers(node))
    entered = {
        name.id
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and _name(call.func) in ENTERED
        for name in ast.walk(call)
        if isinstance(name, ast.Name)
    }
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(target, ast.Name):
            continue
        if _is_empty(node.value) and target.id not in entered:
            yield f"{module}.{target.id}"


def cachers(node: ast.AST) -> Iterator[str]:
    """Uses of functools' caches."""
    if isinstance(node, ast.ImportFrom) and node.module == "functools":
        yield from (each.name for each in node.names if each.name in ("cache", "lru_cache"))
    if isinstance(node, ast.Attribute) and _name(node.value) == "functools":
        yield from (name for name in ("cache", "lru_cache", "cached_property") if node.attr == name)


def _is_empty(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Dict):
        return not value.keys
    return isinstance(value, ast.Call) and not value.args and _name(value.func) in EMPTY


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def test_entries_say_what_bounds_them() -> None:
    found = np.cache_info()
    assert {"plans", "tables", "programs", "buffers"} <= found.keys()
    named = {name: each for name, each in found.items() if "." in name}
    assert named.keys() == caches.REGISTERED.keys()
    assert len(named) > 60  # those of modules that have run
    for each in named.values():
        assert each["entries"] >= 0
        assert each["limit"] is not None or each["why"]
    table: dict[int, int] = {}
    for limit, clear in ((None, table.clear), (3, None)):
        with pytest.raises(ValueError, match="why"):
            caches.register("tests.none", table.__len__, limit, clear)
    assert "tests.none" not in caches.REGISTERED


def test_caches_are_functools_own_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "REGISTERED", {})

    @caches.cached(2)
    def _twice(x: int) -> int:
        return 2 * x

    assert type(_twice) is type(functools.lru_cache(abs))
    assert [_twice(each) for each in (1, 2, 3, 3)] == [2, 4, 6, 6]
    (entry,) = caches.REGISTERED.values()
    assert entry.name == "tests.test_caches.twice"
    assert entry.info() == {"entries": 2, "limit": 2}
    table = caches.memo("tests.table", 3)
    for each in range(5):
        table[each] = each
    assert table == {3: 3, 4: 4}
    caches.clear_all()
    assert entry.size() == len(table) == 0


def test_groups_hold_nothing_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "REGISTERED", {})

    class Table(dict[int, int]):
        pass

    group = caches.Group[Table]("tests.group", len, 4, lambda each: each.clear())
    first, second = Table({1: 1}), Table({1: 1, 2: 2})
    group.add(first)
    group.add(second)
    assert caches.REGISTERED["tests.group"].size() == 3  # equal ones, without a hash
    del second
    assert caches.REGISTERED["tests.group"].size() == 1
    caches.clear_all()
    assert first == {}


def test_emptying_takes_what_was_kept() -> None:
    a = np.array(numpy.linspace(0.0, 1.0, 100_000).reshape(1000, 100))
    for _ in range(3):
        float((a[1:] * 2.0 + a[:-1].T.copy().T).sum())
        numpy.asarray(np.sort(a[:, 0]) + np.histogram(a, 7, (0.0, 1.0))[0].sum())
    held = {name: each.size() for name, each in caches.REGISTERED.items()}
    assert sum(size > 0 for size in held.values()) > 20
    gc.collect()  # what other tests left in cycles would lie free later
    np.cache_clear()
    left = {name: each for name, each in caches.REGISTERED.items() if each.size()}
    # emptying one may ask for another's figures, and constants stay
    assert [name for name, each in left.items() if each.clear is not None] == []


@pytest.fixture
def emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    """All caches are emptied before every third statement of a random program."""
    count = itertools.count()

    def attempt(text: str, names: dict[str, Any]) -> Any:
        if next(count) % 3 == 0:
            np.cache_clear()
        return compare.attempt(text, names)

    monkeypatch.setattr(deep, "attempt", attempt)


@rounds(12, 5000)
@pytest.mark.usefixtures("emptied")
def test_emptying_in_the_middle_of_programs_changes_no_value(seeds: range) -> None:
    test_deep.explore(deep.Kind(longest=20), seeds, eager_below=0)


@rounds(6, 5000)
@pytest.mark.usefixtures("emptied", "often")
def test_emptying_in_the_middle_of_loops_changes_no_value(seeds: range) -> None:
    test_random_loops.explore(seeds, **test_random_loops.RECORDED)
