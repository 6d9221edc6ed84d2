"""Random graphs through the whole compiler, against the oracle: values, aliasing, memory.

`campaign.py` says how many, and how to run more.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from lazyfuse import config
from lazyfuse.codegen.graph import interpret
from lazyfuse.codegen.graph.node import Node, topological
from lazyfuse.codegen.table import ops
from lazyfuse.devices.base import DeviceError
from lazyfuse.runtime.events import decisions
from lazyfuse.runtime.execution import executor, program_tiers
from lazyfuse.runtime.scheduling import evaluate
from tests import campaign, reached
from tests.campaign import rounds
from tests.codegen.random_graphs import random_graph

pytestmark = campaign.TIMEOUT


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
    with warnings.catch_warnings(), reached.program(seed):
        warnings.simplefilter("ignore")
        evaluate.evaluate(roots, decisions.CALLED)
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


@rounds(300)
@pytest.mark.parametrize("keep", [True, False])
def test_random_graphs_equal_the_oracle_A6_B9(seeds: range, keep: bool) -> None:
    for seed in seeds:
        check(seed, keep)


@rounds(300)
@pytest.mark.parametrize("keep", [True, False])
def test_random_graphs_equal_the_oracle_when_every_kernel_fails_E2(
    seeds: range, keep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> int:
        raise DeviceError("injected")

    monkeypatch.setattr(executor.Run, "launch", fail)
    for seed in seeds:
        check(seed, keep)


@rounds(12, 10_000)
def test_random_graphs_equal_the_oracle_compiled(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_tiers, "COMPILE_ELEMENTS", 0)
    with config.options(compile_after=0):
        for seed in seeds:
            check(seed, seed % 2 == 0)


@rounds(100, 20_000)
def test_random_graphs_validate_A6(seeds: range) -> None:
    with config.options(validate=True):
        for seed in seeds:
            check(seed, True)


@rounds(60, 30_000)
def test_random_graphs_unfused_B10_A9(seeds: range) -> None:
    with config.options(fusion=False):
        for seed in seeds:
            check(seed, True)
