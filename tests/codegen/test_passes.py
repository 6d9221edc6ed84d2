"""Every pass keeps the meaning of every graph; the plan and its text do too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lazyfuse.codegen.graph import interpret
from lazyfuse.codegen.graph.linearize import Graph, linearize
from lazyfuse.codegen.graph.node import Layout, Node
from lazyfuse.codegen.plan.plan import make_plan
from lazyfuse.codegen.rewrite.passes import PASSES
from lazyfuse.codegen.table import ops
from tests.campaign import TIMEOUT, rounds
from tests.codegen.as_numpy import as_numpy
from tests.codegen.random_graphs import Maker, random_graph

pytestmark = TIMEOUT


def meaning(graph: Graph, nodes: Sequence[Node]) -> list[np.ndarray[Any, Any]]:
    """The outputs of a graph by the oracle, in the order of their recorded nodes."""
    values: list[np.ndarray[Any, Any]] = []
    outputs = []
    with np.errstate(all="ignore"):
        for value in graph.values:
            if value.op in (ops.LEAF, ops.SCALAR):
                found = nodes[value.origin].value
                assert found is not None
            else:
                sources = [values[s] for s in value.src]
                perms = [graph.values[s].perm for s in value.src]
                found = interpret.run_node(
                    value.op, value.arg, value.shape, value.dtype, value.perm, sources, perms
                )
            assert found.shape == value.shape
            assert found.dtype == value.dtype
            values.append(found)
            if value.output:
                outputs.append((value.origin, found))
    return [found for _, found in sorted(outputs, key=lambda pair: pair[0])]


def same(first: list[np.ndarray[Any, Any]], second: list[np.ndarray[Any, Any]]) -> bool:
    pairs = zip(first, second, strict=True)
    return all(a.shape == b.shape and np.array_equal(a, b, equal_nan=True) for a, b in pairs)


@rounds(200)
def test_every_pass_keeps_the_meaning_of_random_graphs_A6(seeds: Sequence[int]) -> None:
    for seed in seeds:
        roots = random_graph(seed)
        if not roots:
            continue
        recording = linearize(roots)
        graph = recording.graph()
        expected = meaning(graph, recording.nodes)
        for rewrite in PASSES:
            graph = rewrite(graph)
            assert same(meaning(graph, recording.nodes), expected), (seed, rewrite.__name__)


@rounds(60)
def test_printed_graphs_run_as_numpy_code(seeds: Sequence[int]) -> None:
    for seed in seeds:
        roots = random_graph(seed)
        if not roots:
            continue
        recording = linearize(roots)
        graph = make_plan(recording.graph()).graph
        scope: dict[str, Any] = {}
        exec(as_numpy(graph), scope)  # the text is ours: that it runs is what is tested
        leaves = {i: recording.nodes[v.origin].value for i, v in enumerate(graph.values)}
        with np.errstate(all="ignore"):
            outputs = scope["run"](leaves)
        by_origin = sorted(outputs, key=lambda i: graph.values[i].origin)
        assert same([outputs[i] for i in by_origin], meaning(graph, recording.nodes)), seed


def test_a_view_written_back_is_read_without_the_update() -> None:
    maker = Maker(0)
    leaf = maker.leaf((6,), "f8")
    value = maker.map("negative", maker.leaf((3,), "f8"))
    assert value is not None
    layout = Layout(0, (3,), (2,))
    update = Node(ops.UPDATE, (leaf, value), layout, (6,), leaf.dtype, None, None)
    view = Node(ops.VIEW, (update,), layout, (3,), leaf.dtype, None, None)

    plan = make_plan(linearize([view]).graph())
    assert plan.kernels, "the view is computed"
    assert all(each.op is not ops.VIEW for each in plan.graph.values)


def test_what_views_show_of_views_is_read_where_it_lies() -> None:
    """Each view of a sum moves to the operands, of which one is a view already."""
    maker = Maker(0)
    first, second = maker.leaf((6,), "f8"), maker.leaf((6,), "f8")
    layout = Layout(5, (6,), (-1,))
    value = first
    for _ in range(4):
        total = maker.map("add", value, second)
        assert total is not None
        value = Node(ops.VIEW, (total,), layout, (6,), total.dtype, None, None)
    wanted = maker.map("negative", value)
    assert wanted is not None
    del total, value  # what the program holds is stored

    plan = make_plan(linearize([wanted]).graph())
    assert len(plan.kernels) == 1
    values = plan.graph.values
    views = [each for each in values if each.op is ops.VIEW]
    assert views
    assert all(values[each.src[0]].op is ops.LEAF for each in views)
    assert all(each.op is not ops.TABLE["copy"] for each in values)
