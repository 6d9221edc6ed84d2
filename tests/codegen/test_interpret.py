"""The interpreter: each kind of node against the NumPy expression it stands for."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from lazyfuse.codegen.graph import shapes
from lazyfuse.codegen.graph.interpret import empty_in_order, interpret, run_node
from lazyfuse.codegen.graph.node import HostCall, Layout, Memory, Node, Reduction
from lazyfuse.codegen.table.ops import CAST, FULL, HOST, LEAF, SCALAR, TABLE, UPDATE, VIEW
from lazyfuse.codegen.table.promotion import cast_loop, resolve, resolve_reduce

Array = np.ndarray[Any, Any]
Perm = tuple[int, ...] | None


def leaf(value: Array, perm: Perm = None) -> Node:
    node = Node(LEAF, (), Memory(True), value.shape, value.dtype, perm, None)
    node.value = value
    return node


def scalar(value: Any, dtype: str) -> Node:
    node = Node(SCALAR, (), None, (), np.dtype(dtype), None, None)
    node.value = np.asarray(value, dtype)
    return node


def mapped(name: str, *sources: Node, perm: Perm = None) -> Node:
    loop = resolve(TABLE[name], tuple(source.dtype for source in sources))
    shape = shapes.broadcast_all([source.shape for source in sources])
    return Node(TABLE[name], sources, loop, shape, loop.out, perm, None)


def reduced(name: str, source: Node, axis: Any, keepdims: bool = False, perm: Perm = None) -> Node:
    op = TABLE[f"reduce:{name}"]
    accumulator, dtype = resolve_reduce(op, source.dtype)
    axes = shapes.normalize_axes(axis, len(source.shape))
    shape = shapes.reduced_shape(source.shape, axes, keepdims)
    return Node(op, (source,), Reduction(axes, keepdims, accumulator), shape, dtype, perm, None)


def assert_packed(value: Array, perm: Perm) -> None:
    ordered = value if perm is None else value.transpose(perm)
    assert ordered.flags.c_contiguous


ORDERS = list(itertools.permutations(range(3)))


@pytest.mark.parametrize("perm", ORDERS)
def test_empty_in_order_is_packed_in_that_order(perm: tuple[int, ...]) -> None:
    value = empty_in_order((2, 3, 4), np.dtype("f4"), perm)
    assert value.shape == (2, 3, 4)
    assert_packed(value, perm)


def test_a_chain_of_maps_broadcasts_and_promotes() -> None:
    a = np.arange(6, dtype="i4").reshape(2, 3)
    b = np.linspace(0, 1, 3)
    x, y = leaf(a), leaf(b)
    (got,) = interpret([mapped("multiply", mapped("add", x, y), scalar(2.0, "f8"))])
    want = (a + b) * 2.0
    assert got.dtype == want.dtype
    assert np.array_equal(got, want)


@pytest.mark.parametrize("perm", [None, *ORDERS])
def test_results_have_the_memory_order_of_the_node(perm: Perm) -> None:
    a = np.random.default_rng(0).normal(size=(2, 3, 4))
    short = np.dtype("i4")
    nodes = [
        mapped("negative", leaf(a), perm=perm),
        mapped("real", leaf(a), perm=perm),
        Node(CAST, (leaf(a),), cast_loop(a.dtype, short), a.shape, short, perm, None),
        Node(FULL, (scalar(7, "i8"),), None, a.shape, np.dtype("i8"), perm, None),
        Node(HOST, (leaf(a),), HostCall("sort", np.sort), a.shape, a.dtype, perm, None),
        Node(HOST, (leaf(a),), HostCall("itself", np.asarray), a.shape, a.dtype, perm, None),
        reduced("add", leaf(a), 1, keepdims=True, perm=perm),
    ]
    wants = [-a, a, a.astype("i4"), np.full(a.shape, 7), np.sort(a), a, a.sum(1, keepdims=True)]
    for node, got, want in zip(nodes, interpret(nodes), wants, strict=True):
        assert_packed(got, perm)
        assert got.dtype == node.dtype
        assert np.array_equal(got, want)
        assert not np.shares_memory(got, a)


def test_interpret_does_not_write_to_leaves() -> None:
    a = np.arange(10.0)
    a.flags.writeable = False
    x = leaf(a)
    update = Node(UPDATE, (x, scalar(5, "f8")), Layout(2, (3,), (2,)), x.shape, x.dtype, None, None)
    (got,) = interpret([update])
    want = a.copy()
    want[2:8:2] = 5
    assert np.array_equal(got, want)
    assert np.array_equal(a, np.arange(10.0))


def test_shared_nodes_run_once() -> None:
    calls = []

    def count(value: Array) -> Array:
        calls.append(1)
        return value + 1

    x = leaf(np.ones(3))
    node = Node(HOST, (x,), HostCall("count", count), (3,), x.dtype, None, None)
    first, second = interpret([mapped("add", node, node), node])
    assert len(calls) == 1
    assert np.array_equal(first, 2 * second)


def test_evaluated_nodes_are_read_not_run() -> None:
    node = mapped("add", leaf(np.ones(3)), leaf(np.ones(3)))
    node.value = np.full(3, 9.0)
    assert np.array_equal(interpret([mapped("negative", node)])[0], [-9.0] * 3)


@pytest.mark.parametrize("perm", [None, *ORDERS])
def test_views_and_updates_address_the_memory_of_their_source(perm: Perm) -> None:
    source = empty_in_order((2, 3, 4), np.dtype("f8"), perm)
    source[...] = np.arange(24.0).reshape(2, 3, 4)
    flat = (source if perm is None else source.transpose(perm)).ravel()
    node = leaf(source, perm)
    for layout in (
        Layout(0, (4, 6), (6, 1)),
        Layout(23, (5,), (-2,)),
        Layout(3, (2, 2, 2), (0, 5, 1)),
        Layout(7, (), ()),
        Layout(0, (0, 3), (1, 1)),
    ):
        strides = tuple(8 * stride for stride in layout.strides)
        view = Node(VIEW, (node,), layout, layout.shape, node.dtype, None, None)
        want = as_strided(flat[layout.offset :], layout.shape, strides)
        (got,) = interpret([view])
        assert np.array_equal(got, want)
        assert got.shape == layout.shape
        assert_packed(got, None)
        alone = run_node(VIEW, layout, layout.shape, node.dtype, None, [source])
        assert np.array_equal(alone, want)
    layout = Layout(1, (2, 3), (12, 4))
    update = Node(UPDATE, (node, leaf(np.ones(3))), layout, source.shape, source.dtype, perm, None)
    changed = flat.copy()
    as_strided(changed[1:], (2, 3), (96, 32))[...] = 1
    (got,) = interpret([update])
    assert_packed(got, perm)
    assert np.array_equal((got if perm is None else got.transpose(perm)).ravel(), changed)


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "fmin", "logical_or", "argmax"])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), ()])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(name: str, axis: Any, keepdims: bool) -> None:
    if name == "argmax" and isinstance(axis, tuple):
        pytest.skip("argmax takes one axis or all")
    a = np.random.default_rng(1).normal(size=(2, 3, 4))
    op = TABLE[f"reduce:{name}"]
    function = np.argmax if name == "argmax" else op.ufunc.reduce
    want = function(a, axis=axis, keepdims=keepdims)
    (got,) = interpret([reduced(name, leaf(a), axis, keepdims)])
    assert np.array_equal(got, want)
    assert got.shape == np.shape(want)
    assert got.dtype == want.dtype


def test_small_integers_are_summed_in_64_bits() -> None:
    (got,) = interpret([reduced("add", leaf(np.full(300, 100, "i1")), None)])
    assert got == 30000
    assert isinstance(got, np.ndarray)


def test_casts_of_complex_numbers_drop_the_imaginary_part_without_a_warning() -> None:
    a = np.array([1 + 2j, -3.5j])
    loop = cast_loop(a.dtype, np.dtype("f4"))
    node = Node(CAST, (leaf(a),), loop, a.shape, loop.out, None, None)
    assert np.array_equal(interpret([node])[0], a.real)


def test_selection_rows() -> None:
    a = np.array([-1.0, np.nan, 3.0])
    x = leaf(a)
    chosen = mapped("where", mapped("isnan", x), scalar(0.0, "f8"), x)
    clipped = mapped("clip", x, scalar(0.0, "f8"), scalar(1.0, "f8"))
    got = interpret([chosen, clipped])
    assert np.array_equal(got[0], np.where(np.isnan(a), 0.0, a))
    assert np.array_equal(got[1], np.clip(a, 0, 1), equal_nan=True)


def test_a_contraction() -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    op = TABLE["matmul"]
    loop = resolve(op, (a.dtype, b.dtype))
    node = Node(op, (leaf(a), leaf(b)), loop, (2, 4), loop.out, None, None)
    assert np.array_equal(interpret([node])[0], a @ b)


def test_a_long_chain_does_not_recurse() -> None:
    node = leaf(np.zeros(2))
    one = scalar(1, "f8")
    for _ in range(20_000):
        node = mapped("add", node, one)
    assert np.array_equal(interpret([node])[0], [20_000.0] * 2)
