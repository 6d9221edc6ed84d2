"""Sources and targets that several threads, and several processes, use at once."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazyfuse.io import generators, handles
from lazyfuse.io.resolve import resolve, target
from tests.io import parts
from tests.io.test_sources import values

SHAPE = (120, 70)


@pytest.fixture(params=["threads", "processes"])
def pool(request: pytest.FixtureRequest) -> Iterator[Executor]:
    if request.param == "threads":
        with ThreadPoolExecutor(8) as threads:
            yield threads
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as processes:
        yield processes


@pytest.fixture(params=["npy", "zarr", "h5"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    kind = request.param
    if kind != "npy":
        pytest.importorskip({"zarr": "zarr", "h5": "h5py"}[kind])
    yield f"{tmp_path}/x.{kind}" + ("::/g/x" if kind == "h5" else "")
    handles.drop()


def test_written_and_read_at_once(pool: Executor, path: str) -> None:
    expected = values(SHAPE)
    made = target(path, SHAPE, expected.dtype, ((10,) * 12, (70,)))
    wanted = list(parts.chunk_boxes(((10,) * 12, (70,))))
    made.prepare()
    for _ in range(2):  # the second time over what is there
        tasks = []
        for box in wanted:
            tasks.append(pool.submit(parts.write, made, box, expected[box]))
            if made.serial:
                tasks[-1].result()
        for task in tasks:
            task.result()
    made.finish()
    source = resolve(path)
    boxes = [*parts.boxes(SHAPE, 40), *wanted]
    reads = [pool.submit(parts.read, source, box) for box in boxes]
    for box, task in zip(boxes, reads, strict=True):
        assert task.result() == expected[box].tobytes()


def test_every_kind_of_source_travels(pool: Executor, tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "x.bin", "f8", "w+", shape=SHAPE)
    mapped[...] = values(SHAPE)
    made: list[Any] = [
        resolve(mapped[::-1, 3:]),
        resolve(values(SHAPE)),
        generators.arange(0, 100.0, 0.1),
        generators.linspace(0, 1, 77),
        generators.random(np.random.default_rng(4), "normal", SHAPE, chunks=50),
    ]
    for source in made:
        boxes = parts.boxes(source.shape, 10)
        reads = [pool.submit(parts.read, source, box) for box in boxes]
        for box, task in zip(boxes, reads, strict=True):
            assert task.result() == source.read(box).tobytes()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_opens_its_own_files(path: str) -> None:
    expected = values(SHAPE)
    parts.fill(target(path, SHAPE, expected.dtype), expected)
    source = resolve(path)
    box = (slice(3, 50), slice(0, 70))
    assert source.read(box).tobytes() == expected[box].tobytes()
    if "zarr" in path:
        return  # zarr's own thread does not survive a fork
    child = os.fork()
    if not child:
        try:
            same = source.read(box).tobytes() == expected[box].tobytes()
            keeps = bool(handles._inherited) or path.endswith(".npy")
            os._exit(0 if same and keeps else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert source.read(box).tobytes() == expected[box].tobytes()
