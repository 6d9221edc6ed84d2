"""Random recorded graphs for the tests of the planner: maps, reductions, views, updates."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from lazyfuse.codegen.graph import shapes
from lazyfuse.codegen.graph.linearize import memory_strides
from lazyfuse.codegen.graph.node import Layout, Memory, Node, Reduction
from lazyfuse.codegen.table import ops, promotion

SIZES = (1, 2, 3, 5)
DTYPES = ("f8", "f4", "i8", "i4", "u1", "b1")
UNARY = ("negative", "absolute", "square", "conjugate", "positive", "invert", "logical_not")
BINARY = ("add", "subtract", "multiply", "maximum", "less", "equal", "logical_and", "bitwise_or")
REDUCTIONS = ("add", "maximum", "multiply", "logical_or")


class Maker:
    """Builds one random graph; `made` are its nodes in order."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numpy_rng = np.random.default_rng(seed)
        self.made: list[Node] = []

    def leaf(self, shape: tuple[int, ...], dtype: str) -> Node:
        raw = self.numpy_rng.integers(0, 100, shape)
        value = np.asarray(raw).astype(dtype)
        node = Node(ops.LEAF, (), Memory(True), shape, value.dtype, None, None)
        node.value = value
        node.arg.leaves.append(node)
        return node

    def scalar(self, dtype: np.dtype[Any]) -> Node:
        node = Node(ops.SCALAR, (), None, (), dtype, None, None)
        node.value = np.asarray(self.rng.randrange(1, 9)).astype(dtype)
        return node

    def shape(self) -> tuple[int, ...]:
        return tuple(self.rng.choice(SIZES) for _ in range(self.rng.randrange(1, 4)))

    def map(self, name: str, *src: Node) -> Node | None:
        op = ops.TABLE[name]
        try:
            loop = promotion.resolve(op, tuple(node.dtype for node in src))
            shape = shapes.broadcast_all([node.shape for node in src])
        except (TypeError, ValueError):
            return None
        return Node(op, src, loop, shape, loop.out, None, None)

    def cast(self, node: Node, dtype: np.dtype[Any]) -> Node:
        loop = promotion.cast_loop(node.dtype, dtype)
        return Node(ops.TABLE["cast"], (node,), loop, node.shape, dtype, None, None)

    def reduce(self, node: Node) -> Node | None:
        if not node.shape:
            return None
        op = ops.TABLE["reduce:" + self.rng.choice(REDUCTIONS)]
        count = self.rng.randrange(1, len(node.shape) + 1)
        axes = tuple(sorted(self.rng.sample(range(len(node.shape)), count)))
        accumulator, result = promotion.resolve_reduce(op, node.dtype)
        keep = self.rng.random() < 0.5
        shape = shapes.reduced_shape(node.shape, axes, keep)
        return Node(op, (node,), Reduction(axes, keep, accumulator), shape, result, None, None)

    def layout(self, node: Node) -> Layout:
        """What a random basic index and transposition leaves of a dense array."""
        strides = memory_strides(node.shape, node.perm)
        offset, shape, steps = 0, [], []
        for size, stride in zip(node.shape, strides, strict=True):
            start = self.rng.randrange(size)
            step = self.rng.choice((1, 1, 2, -1))
            indices = range(size)[start::step]
            offset += start * stride
            shape.append(len(indices))
            steps.append(stride * step)
        if self.rng.random() < 0.5:
            offset, shape, steps = 0, list(node.shape), list(strides)
        axes = list(range(len(shape)))
        if self.rng.random() < 0.5:
            self.rng.shuffle(axes)
        return Layout(offset, tuple(shape[a] for a in axes), tuple(steps[a] for a in axes))

    def view(self, node: Node) -> Node:
        layout = self.layout(node)
        return Node(ops.VIEW, (node,), layout, layout.shape, node.dtype, None, None)

    def update(self, old: Node, value: Node) -> Node | None:
        layout = self.layout(old)
        try:
            if shapes.broadcast(layout.shape, value.shape) != layout.shape:
                return None
        except ValueError:
            return None
        value = value if value.dtype == old.dtype else self.cast(value, old.dtype)
        return Node(ops.UPDATE, (old, value), layout, old.shape, old.dtype, old.perm, None)

    def step(self) -> Node | None:
        rng = self.rng
        node = rng.choice(self.made)
        kind = rng.random()
        if kind < 0.25:
            return self.map(rng.choice(UNARY), node)
        if kind < 0.6:
            pool = [n for n in self.made if n.shape == node.shape] if rng.random() < 0.7 else None
            other = rng.choice(pool or self.made) if rng.random() < 0.8 else self.scalar(node.dtype)
            return self.map(rng.choice(BINARY), node, other)
        if kind < 0.68:
            return self.cast(node, np.dtype(rng.choice(DTYPES)))
        if kind < 0.8:
            return self.reduce(node)
        if kind < 0.9:
            return self.view(node)
        if kind < 0.95:
            return Node(
                ops.FULL, (self.scalar(node.dtype),), None, node.shape, node.dtype, None, None
            )
        same = [n for n in self.made if n.shape == node.shape]
        return (
            self.update(node, rng.choice(same))
            if rng.random() < 0.7
            else self.update(node, self.scalar(node.dtype))
        )


def random_graph(seed: int, length: int = 14) -> list[Node]:
    """The roots of a random graph."""
    maker = Maker(seed)
    base = maker.shape()
    for _ in range(maker.rng.randrange(1, 4)):
        shape = base if maker.rng.random() < 0.7 else maker.shape()
        maker.made.append(maker.leaf(shape, maker.rng.choice(DTYPES)))
    for _ in range(length):
        node = maker.step()
        if node is not None:
            maker.made.append(node)
    pending = [node for node in maker.made if node.value is None]
    count = min(len(pending), maker.rng.randrange(1, 4))
    return maker.rng.sample(pending, count) if pending else []
