"""Programs in memory and on disk: limits, counters, reasons."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from lazyfuse.devices.base import DeviceError, Launch, Pooled, Source
from lazyfuse.devices.cpu.device import CPU
from lazyfuse.devices.pools import environment
from lazyfuse.devices.pools.disk_cache import DiskCache
from lazyfuse.devices.pools.programs import ProgramPool
from tests.devices.sources import launch_of, map_source, numpy_source


class Echo:
    """A program that is nothing but its source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.used = 0

    def launch(self, launch: Launch) -> int:
        return 0


class Builder:
    """Counts; its code is its text."""

    def __init__(self) -> None:
        self.built: list[str] = []
        self.loaded: list[str] = []

    def build(self, source: Source) -> tuple[Pooled, bytes | None]:
        if "fail" in source.text:
            raise DeviceError("[compile] no")
        self.built.append(source.text)
        return Echo(source), source.text.encode()

    def load(self, source: Source, code: bytes, fresh: bool = False) -> Pooled:
        if code != source.text.encode():
            raise DeviceError("[load] no")
        self.loaded.append(source.text)
        return Echo(source)


def source_of(text: str) -> Source:
    return Source("echo", "k", text, 1, (), ())


def make(tmp_path: Path, version: str = "1", limit: int = 100, on: bool = True) -> ProgramPool:
    disk = DiskCache(str(tmp_path / "programs"), 1 << 20, on)
    return ProgramPool({"echo": Builder()}, disk, lambda: version, limit)


def test_asking_twice_builds_once(tmp_path: Path) -> None:
    pool = make(tmp_path)
    first = pool.get(source_of("a"))
    assert pool.get(source_of("a")) is first
    assert pool.holds(source_of("a"))
    assert not pool.holds(source_of("b"))
    info = pool.info()
    assert (info["built"], info["hits"], info["programs"]) == (1, 1, 1)
    assert pool.why_missed(source_of("a")) == "first seen"
    assert pool.why_missed(source_of("b")) == ""


def test_another_process_loads_from_disk(tmp_path: Path) -> None:
    make(tmp_path).get(source_of("a"))
    pool = make(tmp_path)
    assert pool.holds(source_of("a"))
    pool.get(source_of("a"))
    info = pool.info()
    assert (info["built"], info["loaded"], info["disk"]["hits"]) == (0, 1, 1)
    assert pool.why_missed(source_of("a")) == ""


def test_other_versions_are_kept_apart(tmp_path: Path) -> None:
    make(tmp_path, "1").get(source_of("a"))
    pool = make(tmp_path, "2")
    assert not pool.holds(source_of("a"))
    pool.get(source_of("a"))
    assert pool.why_missed(source_of("a")) == "other versions"
    assert make(tmp_path, "1").holds(source_of("a"))


def test_memory_is_bounded_and_the_disk_helps(tmp_path: Path) -> None:
    pool = make(tmp_path, limit=20)
    for number in range(50):
        pool.get(source_of(str(number)))
        pool.get(source_of("0"))  # used all the time
    info = pool.info()
    assert info["programs"] <= 20
    assert info["evicted"] >= 30
    assert info["built"] == 50
    pool.get(source_of("1"))
    assert pool.info()["built"] == 50
    assert pool.info()["loaded"] == 1


def test_reasons_without_a_disk(tmp_path: Path) -> None:
    pool = make(tmp_path, limit=2, on=False)
    for text in "abcd":
        pool.get(source_of(text))
    assert pool.why_missed(source_of("d")) == "disabled"
    pool.get(source_of("a"))
    assert pool.why_missed(source_of("a")) == "evicted"
    pool.clear()
    pool.get(source_of("a"))
    assert pool.why_missed(source_of("a")) == "cleared"
    assert not (tmp_path / "programs").exists()


def test_clearing_the_disk(tmp_path: Path) -> None:
    pool = make(tmp_path)
    pool.get(source_of("a"))
    pool.clear()
    assert pool.holds(source_of("a"))
    pool.clear(disk=True)
    assert not pool.holds(source_of("a"))


def test_a_failure_is_not_remembered_as_a_program(tmp_path: Path) -> None:
    pool = make(tmp_path)
    for _ in range(2):
        with pytest.raises(DeviceError):
            pool.get(source_of("fail"))
    assert pool.info()["programs"] == 0
    assert not pool.holds(source_of("fail"))


def test_code_that_does_not_load_is_built_again(tmp_path: Path) -> None:
    pool = make(tmp_path)
    pool.get(source_of("a"))
    (name,) = pool.disk.names()
    pool.disk.put(name, b"b")
    other = make(tmp_path)
    other.get(source_of("a"))
    assert other.why_missed(source_of("a")) == "damaged"
    assert make(tmp_path).holds(source_of("a"))


def test_threads_that_ask_at_once_build_once() -> None:
    cpu = CPU(threads=1)
    source = map_source("a1[i] = a0[i] * 7.0", ("f8", "f8"))
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(cpu.compile(source))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1
    assert cpu.info()["programs"]["built"] == 1


def test_a_program_outlives_its_eviction() -> None:
    cpu = CPU(threads=1)
    source = map_source("a1[i] = a0[i] * 7.0", ("f8", "f8"))
    program = cpu.compile(source)
    cpu.clear()
    out = np.zeros(9)
    program.launch(launch_of((np.arange(9.0), out)))
    assert out.tolist() == (7.0 * np.arange(9.0)).tolist()


def test_numpy_text_is_not_kept_on_disk(tmp_path: Path) -> None:
    cpu = CPU(threads=1, disk=DiskCache(str(tmp_path / "programs"), 1 << 20))
    source = numpy_source("a0[...] = 1", ("f8",))
    assert not cpu.cached(source)
    cpu.compile(source)
    assert cpu.cached(source)
    assert cpu.why_missed(source) == "first seen"
    assert not (tmp_path / "programs").exists()


def test_a_change_of_any_module_is_another_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies on disk was made by the text as it was then."""
    text = environment._text
    before = environment.facts()
    folder = Path(environment.__file__).parents[1]
    paths = [*folder.glob("cpu/**/*.py"), *folder.glob("pools/*.py")]
    changed = [path for path in paths if path.name != "__init__.py"]
    assert folder / "cpu" / "intrinsics" / "byte_table.py" in changed
    for path in changed:
        name = ".".join(["lazyfuse.devices", *path.relative_to(folder).with_suffix("").parts])
        other = {name: b"changed"}
        monkeypatch.setattr(
            environment, "_text", lambda place, each, o=other: o.get(each) or text(place, each)
        )
        assert environment.facts() != before, name


def test_the_environment_covers_what_decides_the_code() -> None:
    facts = environment.facts()
    assert facts == environment.facts()
    for word in ("python", "numpy", "llvmlite", "cpu", "libmvec", "runtime"):
        assert any(fact.startswith(word) for fact in facts)
