"""A graph as runnable NumPy code, which any stage of the planner can print.

The text defines `run(leaves)`, whose argument maps the index of each leaf or scalar to its array
and whose result maps the index of each output to its value.
"""

from __future__ import annotations

from lazyfuse.codegen.graph.linearize import Graph, Value
from lazyfuse.codegen.table import ops

_HEAD = """\
import numpy as np
from numpy.lib.stride_tricks import as_strided

def window(flat, offset, shape, strides):
    return as_strided(flat[offset:], shape, tuple(s * flat.itemsize for s in strides))

def flat(value, perm):
    return (value if perm is None else value.transpose(perm)).ravel()

def whole(memory, shape, perm):
    if perm is None:
        return memory.reshape(shape)
    return memory.reshape([shape[a] for a in perm]).transpose(np.argsort(perm))

def update(old, perm, offset, shape, strides, value):
    memory = flat(old, perm).copy()
    window(memory, offset, shape, strides)[...] = value
    return whole(memory, old.shape, perm)

def moved(shape, dtype, pieces, sources):
    result = np.empty(shape, dtype)
    for start, size, source, first, steps in pieces:
        where = tuple(slice(a, a + n) for a, n in zip(start, size))
        at = np.indices(size)
        index = []
        for axis, begin in enumerate(first):
            along = [(j, s) for j, (a, s) in enumerate(steps) if a == axis]
            place = begin + sum(s * at[j] for j, s in along) + np.zeros(size, int)
            index.append(place)
        value = sources[source]
        index = index[len(index) - value.ndim:]
        index = [n * (value.shape[k] != 1) for k, n in enumerate(index)]
        result[where] = value[tuple(index)]
    return result

def run(leaves, host={}):
"""


def as_numpy(graph: Graph) -> str:
    """The graph as the text of a NumPy function."""
    lines = [f"    v{i} = {_expression(i, value, graph)}" for i, value in enumerate(graph.values)]
    outputs = ", ".join(f"{i}: v{i}" for i, value in enumerate(graph.values) if value.output)
    return _HEAD + "\n".join(lines) + f"\n    return {{{outputs}}}\n"


def _expression(index: int, value: Value, graph: Graph) -> str:
    args = [f"v{source}" for source in value.src]
    if value.op in (ops.LEAF, ops.SCALAR):
        return f"leaves[{index}]"
    if value.op is ops.FULL:
        return f"np.full({value.shape}, {args[0]}, {value.dtype.str!r})"
    if value.op is ops.EMPTY:
        return f"np.empty({value.shape}, {value.dtype.str!r})"
    if value.op in (ops.VIEW, ops.UPDATE):
        layout = value.arg
        perm = graph.values[value.src[0]].perm
        place = f"{layout.offset}, {layout.shape}, {layout.strides}"
        if value.op is ops.VIEW:
            return f"window(flat({args[0]}, {perm}), {place})"
        return f"update({args[0]}, {perm}, {place}, {args[1]})"
    if value.op is ops.INDEX:
        pieces = tuple([tuple(piece) for piece in value.arg.pieces])
        space = value.arg.space or value.shape
        found = f"moved({space}, {value.dtype.str!r}, {pieces}, [{', '.join(args)}])"
        return f"{found}.reshape({value.shape})" if value.arg.space else found
    if value.op.kind == "reduce":
        return _reduction(value, args[0])
    if value.op.kind == "host":
        return f"np.asarray(host[{index}]({', '.join(args)}))"
    return _map(value, args)


def _reduction(value: Value, argument: str) -> str:
    name = value.op.name.removesuffix(".reduce")
    axes, keep = value.arg.axes, value.arg.keepdims
    if value.op.ufunc is None:
        axis = axes[0] if len(axes) == 1 else None
        return f"np.{name}({argument}, axis={axis}, keepdims={keep})"
    accumulator = value.arg.accumulator.str
    return f"np.{name}.reduce({argument}, axis={axes}, dtype={accumulator!r}, keepdims={keep})"


def _map(value: Value, args: list[str]) -> str:
    loop = value.arg
    pairs = zip(args, loop.ins, strict=True)
    cast = [f"np.asarray({arg}).astype({dtype.str!r}, copy=False)" for arg, dtype in pairs]
    if value.op.ufunc is not None:
        types = tuple(dtype.str for dtype in (*loop.ins, loop.out))
        signature = f"signature=tuple(map(np.dtype, {types}))"
        if {dtype.kind for dtype in loop.ins} == {"i", "u"}:
            return f"np.{value.op.ufunc.__name__}({', '.join(cast)})"  # the loop NumPy has for them
        name = value.op.ufunc.__name__
        return f"np.{name}({', '.join(cast)}, {signature}, casting='unsafe')"
    if value.op.name in ("cast", "copy"):
        return f"{cast[0]}.astype({loop.out.str!r})"
    return f"np.{value.op.name}({', '.join(cast)}).astype({loop.out.str!r})"
