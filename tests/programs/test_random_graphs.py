"""Random graphs through the whole compiler, against the oracle: values, aliasing, memory."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import pytest

from lazyfuse import config, evaluate, execute, programs
from lazyfuse.codegen import interpret, ops
from lazyfuse.codegen.graph import Node, topological
from lazyfuse.devices.base import DeviceError
from tests.codegen.random_graphs import random_graph

COUNT = int(os.environ.get("LAZYFUSE_FUZZ", "300"))
pytestmark = pytest.mark.timeout(900)  # on OpenCL every new structure is built, 0.2 s each


def check(seed: int, keep: bool) -> None:
    """Evaluate one random graph; with `keep`, hold its leaves and a third of its nodes."""
    roots = random_graph(seed)
    if not roots:
        return
    nodes = topological(roots)
    with np.errstate(all="ignore"):
        expected = dict(zip(map(id, nodes), interpret.interpret(nodes), strict=True))
    held = [*roots, *(nodes[::3] if keep else ())]
    wanted = [expected[id(node)] for node in held]
    leaves = [(n, n.value.copy()) for n in nodes if n.op is ops.LEAF and n.value is not None]
    if not keep:
        leaves.clear()
    del nodes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluate.evaluate(roots, "test")
    for node, want in zip(held, wanted, strict=True):
        assert node.value is not None or node not in roots
        if node.value is not None:
            same(node, want, seed)
    for leaf, want in leaves:
        same(leaf, want, seed)


def same(node: Node, want: np.ndarray[Any, Any], seed: int) -> None:
    got = node.value
    assert got is not None
    assert got.shape == want.shape, seed
    assert got.dtype == want.dtype, seed
    assert np.array_equal(got, want, equal_nan=got.dtype.kind in "fc"), (seed, node, got, want)


@pytest.mark.parametrize("keep", [True, False])
def test_random_graphs_equal_the_oracle_A6_B9(keep: bool) -> None:
    for seed in range(COUNT):
        check(seed, keep)


@pytest.mark.parametrize("keep", [True, False])
def test_random_graphs_equal_the_oracle_when_every_kernel_fails_E2(
    keep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> int:
        raise DeviceError("injected")

    monkeypatch.setattr(execute.Run, "launch", fail)
    for seed in range(COUNT):
        check(seed, keep)


def test_random_graphs_equal_the_oracle_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "COMPILE_ELEMENTS", 0)
    with config.options(compile_after=0):
        for seed in range(10_000, 10_000 + COUNT // 12):
            check(seed, seed % 2 == 0)


def test_random_graphs_validate_A6() -> None:
    with config.options(validate=True):
        for seed in range(20_000, 20_000 + COUNT // 3):
            check(seed, True)


def test_random_graphs_unfused_B10_A9() -> None:
    with config.options(fusion=False):
        for seed in range(30_000, 30_000 + COUNT // 3):
            check(seed, True)
