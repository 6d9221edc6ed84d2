"""Schedulers for arrays in chunks: threads that end with the test, and a real cluster.

Dask is an extra: without it these tests are skipped. A test that used chunks leaves none behind,
nor the hook in evaluations that looks for them.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

dask = pytest.importorskip("dask", reason="the extra `dask` is not installed")
pytest.importorskip("dask.array")

from lazyfuse.devices.dask import device  # noqa: E402  # after the skip


@pytest.fixture
def on_threads(without_chunks_after: None) -> Iterator[None]:
    """Dask's default, with threads that end with the test."""
    with ThreadPoolExecutor(2) as pool, dask.config.set(scheduler="threads", pool=pool):
        yield


@pytest.fixture
def synchronous(without_chunks_after: None) -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def module_cluster() -> Iterator[Any]:
    """Two worker processes, for the tests of a module."""
    distributed = pytest.importorskip("distributed")
    before = list(sys.path)
    with quiet_cluster(distributed) as made:
        sys.path[:] = before  # the scheduler adds a folder of its own
        yield made
    gc.collect()


@pytest.fixture
def cluster(module_cluster: Any, without_chunks_after: None) -> Any:
    """The client of a cluster of two worker processes."""
    assert device.client() is module_cluster
    return module_cluster


@contextlib.contextmanager
def quiet_cluster(distributed: Any) -> Iterator[Any]:
    """A client of two workers that log no more than errors, with short patience for lost ones.

    A client ends no cluster that it was given: one that went on would take a core from the tests
    that follow, and its threads would be in each child that they fork.
    """
    settings = {
        "distributed.worker.daemon": True,
        "distributed.nanny.pre-spawn-environ.OMP_NUM_THREADS": "1",
        "distributed.scheduler.allowed-failures": 3,
    }
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as nodes,
        distributed.Client(nodes) as client,
    ):
        yield client
