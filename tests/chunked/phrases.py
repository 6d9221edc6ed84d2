"""The statements of random programs over arrays in chunks.

A phrase gets the grammar (`programs.Grammar`) and gives a statement and the name that it sets;
("", "") where the variables do not fit. Statements may fail: then both worlds have to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Said = tuple[str, str]
Phrase = Callable[[Any], Said]
NOTHING = "", ""


def _numbers(x: Any) -> bool:
    return bool(x.dtype.kind != "b")


def _axed(x: Any) -> bool:
    return bool(x.ndim)


def _real(x: Any) -> bool:
    return bool(x.dtype.kind in "iuf" and x.ndim)


def _axis(g: Any, name: str, none: float = 0.3) -> Any:
    rank = g.names[name].ndim
    if not rank or g.rng.random() < none:
        return None
    return g.rng.randrange(-rank, rank)


def _set(g: Any, expression: str) -> Said:
    name = g.free()
    return f"{name} = {expression}", name


def _like(g: Any, name: str) -> str:
    """A variable of the same shape."""
    shape = g.names[name].shape
    return str(g.pick(lambda x: x.shape == shape))


def _other(g: Any, name: str) -> str:
    """Something that broadcasts against a variable: an array, a real one, a number."""
    x = g.names[name]
    draw = g.rng.random()
    if draw < 0.4:
        return _like(g, name)
    if draw < 0.55 and x.ndim:
        return f"{name}[..., :1]"
    if draw < 0.7 and x.ndim and x.shape[0]:
        return f"{name}[{g.rng.randrange(x.shape[0])}]"
    if draw < 0.8:
        return f"R{g.rng.randrange(len(g.shapes))}"
    return str(g.rng.choice(["2", "3", "0.5", "True", "np.float32(1.5)", "np.int8(3)", "1j", "-1"]))


def key(g: Any, shape: tuple[int, ...], ints: bool = True) -> str:
    """A basic index."""
    parts = []
    for length in shape:
        low, high = g.rng.randint(-length - 1, length), g.rng.randint(-length - 1, length + 1)
        step = g.rng.choice([1, 1, 1, 2, 3, -1, -2])
        any_slice = f"{low}:{high}:{step}"
        choices = [":", ":", "1:-1", ":-1", "1:", "::-1", "::2", any_slice, any_slice]
        if ints and length:
            choices.append(str(g.rng.randrange(-length, length)))
        parts.append(g.rng.choice(choices))
    if g.rng.random() < 0.15:
        parts.insert(g.rng.randint(0, len(parts)), "None")
    if len(parts) > 1 and g.rng.random() < 0.2:
        parts = ["...", parts[-1]]
    return ", ".join(parts) or "..."


UNARY = (
    "negative abs square isfinite isnan sign sqrt exp sin floor conj real imag logical_not "
    "ones_like zeros_like copy positive reciprocal invert"
).split()
BINARY = (
    "add multiply maximum minimum subtract less greater_equal not_equal equal power divide "
    "floor_divide remainder hypot copysign logical_and logical_xor fmax arctan2 bitwise_and"
).split()
REDUCTIONS = "sum max min mean prod any all std var ptp count_nonzero nansum nanmax".split()


def unary(g: Any) -> Said:
    name = g.pick()
    return _set(g, f"np.{g.rng.choice(UNARY)}({name})") if name else NOTHING


def binary(g: Any) -> Said:
    name = g.pick()
    if not name:
        return NOTHING
    operands = [name, _other(g, name)]
    g.rng.shuffle(operands)
    return _set(g, f"np.{g.rng.choice(BINARY)}({', '.join(operands)})")


def operators(g: Any) -> Said:
    name = g.pick()
    if not name:
        return NOTHING
    sign = g.rng.choice("+ - * / // % < >= == != & |".split())
    return _set(g, f"{name} {sign} {_other(g, name)}")


def chain(g: Any) -> Said:
    name = g.pick(_numbers)
    if not name:
        return NOTHING
    axis = g.rng.randrange(max(1, g.names[name].ndim))
    return _set(g, f"({name} - {name}.mean(axis={axis})) / ({name}.std(axis={axis}) + 1)")


def window(g: Any) -> Said:
    name = g.pick(_axed)
    return _set(g, f"{name}[{key(g, g.names[name].shape)}]") if name else NOTHING


def stencil(g: Any) -> Said:
    name = g.pick(lambda x: x.ndim and x.shape[0] > 2 and _numbers(x))
    text = f"{name}[1:-1] * 2 - {name}[2:] - {name}[:-2]"
    return (
        _set(g, text if g.rng.random() < 0.5 else f"np.diff({name}, axis=0)") if name else NOTHING
    )


def transpose(g: Any) -> Said:
    name = g.pick(_axed)
    if not name:
        return NOTHING
    axes = list(range(g.names[name].ndim))
    g.rng.shuffle(axes)
    forms = [f"{name}.T", f"{name}.transpose({axes})", f"np.moveaxis({name}, 0, -1)"]
    return _set(g, g.rng.choice(forms))


def reduction(g: Any) -> Said:
    name = g.pick()
    if not name:
        return NOTHING
    which = g.rng.choice(REDUCTIONS)
    rank = g.names[name].ndim
    axis = _axis(g, name)
    if rank > 1 and g.rng.random() < 0.3:
        axis = tuple(g.rng.sample(range(rank), 2))
    more = ", keepdims=True" if g.rng.random() < 0.3 else ""
    if which in ("sum", "prod", "mean") and g.rng.random() < 0.2:
        more += ", dtype='f4'" if g.rng.random() < 0.5 else ", dtype='f8'"
    if which in ("sum", "max", "min", "any", "mean") and g.rng.random() < 0.1:
        initial = ", initial=1" if which in ("sum", "max", "min") else ""
        more += f", where={name} > 0{initial}" if g.names[name].dtype.kind != "c" else ""
    exact = g.names[name].dtype.kind in "iub"  # parts of others overflow where the whole does not
    operand = name if which != "prod" or exact else f"(np.isnan({name}) + 0.5)"
    return _set(g, f"np.{which}({operand}, axis={axis}{more})")


def extreme(g: Any) -> Said:
    name = g.pick()
    if not name:
        return NOTHING
    operand = g.rng.choice([name, f"np.round({name})", f"({name} > 0)"])
    which = g.rng.choice(["argmin", "argmax", "nanargmin", "argmax"])
    keep = ", keepdims=True" if g.rng.random() < 0.2 else ""
    return _set(g, f"np.{which}({operand}, axis={_axis(g, name)}{keep})")


def select(g: Any) -> Said:
    name = g.pick()
    if not name:
        return NOTHING
    other = _like(g, name)
    forms = [
        f"np.where({name} > {other}, {name}, {_other(g, name)})",
        f"np.clip({name}, -1, 1)",
        f"np.clip({name}, None, {other})",
        f"np.select([{name} > 1, {name} > 0], [{name}, {other}], 7)",
    ]
    return _set(g, g.rng.choice(forms))


def conversion(g: Any) -> Said:
    name = g.pick()
    if not name:
        return NOTHING
    to = g.rng.choice("f8 f4 i8 i4 ? c16".split())
    forms = [
        f"{name}.astype({to!r})",
        f"np.array({name}, {to!r})",
        f"{name}.astype({to!r}, order='F')",
    ]
    if to in ("i8", "i4") and g.names[name].dtype.kind in "fc":
        forms = [f"np.nan_to_num({name}.real).astype({to!r})"]
    return _set(g, g.rng.choice(forms))


def reshape(g: Any) -> Said:
    name = g.pick(lambda x: x.size)
    if not name:
        return NOTHING
    size = g.names[name].size
    shapes = ["-1"] + [f"({d}, -1)" for d in range(2, 9) if size % d == 0]
    shapes += ["(2, -1, 3)"] * (size % 6 == 0)
    order = ", order='F'" if g.rng.random() < 0.15 else ""
    forms = [
        f"{name}.reshape({g.rng.choice(shapes)}{order})",
        f"{name}.ravel()",
        f"{name}.flatten()",
    ]
    return _set(g, forms[0] if g.rng.random() < 0.7 else g.rng.choice(forms))


def cumulative(g: Any) -> Said:
    name = g.pick()
    which = g.rng.choice(["cumsum", "cumsum", "cumprod", "np.maximum.accumulate"])
    if not name:
        return NOTHING
    if which.startswith("np."):
        return _set(g, f"{which}({name})")
    operand = name if which == "cumsum" else f"({name} * 0 + 1)"
    return _set(g, f"np.{which}({operand}, axis={_axis(g, name)})")


def ordered(g: Any) -> Said:
    name = g.pick(_real)
    if not name:
        return NOTHING
    axis = g.rng.randrange(g.names[name].ndim)
    return _set(
        g,
        g.rng.choice(
            [
                f"np.sort({name}, axis={axis})",
                f"np.argsort({name}, axis={axis}, kind='stable')",
                f"np.sort({name}, axis=None)",
                f"np.median({name}, axis={axis})",
                f"np.percentile({name}, [10, 50], axis={axis})",
                f"np.quantile({name}, 0.3)",
                f"np.unique({name})",
                f"np.unique({name}, return_counts=True)",
                f"np.searchsorted(np.sort({name}.ravel()), {name}.ravel()[:5])",
                f"np.histogram(np.nan_to_num({name}), bins=5)",
                f"np.bincount(abs(np.nan_to_num({name}).astype('i8')).ravel() % 7)",
                f"np.digitize({name}, [-1, 0, 1])",
                f"np.partition({name}, 0, axis={axis})",
            ]
        ),
    )


def taken(g: Any) -> Said:
    name = g.pick(lambda x: x.ndim and x.shape[0])
    if not name:
        return NOTHING
    n = g.names[name].shape[0]
    places = [g.rng.randrange(-n, n) for _ in range(3)]
    return _set(
        g,
        g.rng.choice(
            [
                f"np.take({name}, {places}, axis=0)",
                f"{name}[{places}]",
                f"{name}[{name} > 0]",
                f"{name}[np.argsort({name}.ravel()[:{n}])]",
                f"np.nonzero({name})",
                f"np.compress([True, False], {name}, axis=0)",
                f"{name}[{name} == {name}.max()]",
                f"np.argwhere({name})",
                f"{name}[..., [0, -1]]",
                f"{name}[{places[0]}, ..., [0, -1]]",
                f"{name}[[[0, {places[0]}], {places[:2]}]]",
                f"np.ascontiguousarray({name}[:, {name}[0] > 0])",
                f"{name}[{name}[0] > 0]",
                f"{name}[True]",
                f"{name}[None, {places}]",
                f"np.extract({name} < 1, {name})",
                f"np.diagonal({name})",
                f"np.take_along_axis({name}, np.argmax({name}, axis=0, keepdims=True), axis=0)",
            ]
        ),
    )


def joined(g: Any) -> Said:
    name = g.pick(lambda x: x.ndim and 0 < x.size < 400)
    if not name:
        return NOTHING
    axis = g.rng.randrange(g.names[name].ndim)
    other = _like(g, name)
    return _set(
        g,
        g.rng.choice(
            [
                f"np.concatenate([{name}, {other}, {name}[:2]], axis=0)",
                f"np.concatenate([{name}, {other}], axis={axis})",
                f"np.stack([{name}, {other}], axis={axis})",
                f"np.vstack([{name}, {other}])",
                f"np.pad({name}, 1)",
                f"np.pad({name}, (1, 2), mode='edge')",
                f"np.pad({name}, 1, mode='wrap')",
                f"np.roll({name}, {g.rng.randint(-3, 3)}, axis={axis})",
                f"np.roll({name}, 2)",
                f"np.tile({name}, 2)",
                f"np.tile({name}, (2, 3))",
                f"np.repeat({name}, 2, axis={axis})",
                f"np.flip({name})",
                f"np.flip({name}, {axis})",
                f"np.append({name}, 1)",
                f"np.array_split({name}, 2, axis={axis})",
                f"np.insert({name}, 1, 5, axis={axis})",
                f"np.delete({name}, 0, axis={axis})",
                f"np.broadcast_to({name}, (2, *{name}.shape))",
                f"np.expand_dims({name}, {axis})",
                f"np.squeeze({name}[:1], 0)",
                f"np.rot90({name})",
                f"np.tril({name})",
            ]
        ),
    )


def product(g: Any) -> Said:
    """A product; contiguous where dask.array, which may compute it, has another memory order."""
    name = g.pick(lambda x: x.ndim and x.dtype.kind in "fiuc" and 0 < x.size < 300)
    if not name:
        return NOTHING
    other = _like(g, name)
    rank = g.names[name].ndim
    forms = [f"np.tensordot({name}, {other}, axes={rank})", f"np.vdot({name}, {other})"]
    if rank == 1:
        forms += [f"{name} @ {other}", f"np.dot({name}, {other})", f"np.outer({name}, {other})"]
        forms += [
            f"np.einsum('i,i->', {name}, {other})",
            f"np.ascontiguousarray(np.einsum('i,j->ij', {name}, {other}))",
        ]
        forms += [f"np.convolve({name}, {other}[:3])", f"np.inner({name}, {other})"]
    if rank == 2:
        forms += [f"{name} @ {other}.T", f"np.dot({name}.T, {other})", f"{name} @ {name}[0]"]
        forms += [
            f"np.ascontiguousarray(np.einsum('ij,kj->ik', {name}, {other}))",
            f"np.ascontiguousarray(np.einsum('ij,ij->j', {name}, {other}))",
        ]
        forms += [
            f"{name}[:, 0] @ {other}",
            f"np.ascontiguousarray(np.einsum('ij->i', {name}))",
            f"np.trace({name})",
        ]
        forms += [f"np.ascontiguousarray(np.einsum('ii->i', {name}[:2, :2]))"]
        forms += [f"R0 @ {name}.T", f"{name}.T @ R0", f"np.kron({name}[:2], {other}[:2])"]
    if rank == 3:
        forms += [f"{name} @ {other}.swapaxes(1, 2)", f"{name} @ {name}[0, 0]"]
        forms += [
            f"np.ascontiguousarray(np.einsum('bij,bkj->bik', {name}, {other}))",
            f"{name}[0] @ {other}.swapaxes(1, 2)",
        ]
    return _set(g, g.rng.choice(forms))


def contraction(g: Any) -> Said:
    """A product of any kind, of operands that fit: an array's own parts, others, the host's."""
    name = g.pick(lambda x: x.ndim and x.size < 300)
    if not name:
        return NOTHING
    rank = g.names[name].ndim
    first, second = f"{name}", _like(g, name)
    if g.rng.random() < 0.3:
        first = g.rng.choice([f"({name} + 1)", f"({name} * {second})", f"{name}[::-1]", f"-{name}"])
    if g.rng.random() < 0.3:
        shapes = [at for at, each in enumerate(g.shapes) if each == g.names[name].shape]
        second = f"R{g.rng.choice(shapes)}" if shapes else f"{name}[..., ::-1]"
    turned = f"np.swapaxes({second}, -1, -2)"
    if rank == 1:
        forms = [f"{first} @ {second}", f"np.multiply.outer({first}, {second})"]
        forms += [f"np.vecdot({first}, {second})", f"np.correlate({first}, {second}[:3])"]
        forms += [f"np.tensordot({first}, {second}, axes=0)", f"{first}[:, None] @ {second}[None]"]
        forms += [f"{first} @ np.ones(({g.names[name].size}, 3))"]
        return _set(g, g.rng.choice(forms))
    forms = [
        f"{first} @ {turned}",
        f"np.matmul({turned}, {first})",
        f"{first} @ {second}[..., 0, :]",
    ]
    forms += [f"np.matvec({first}, {second}[..., 0, :])", f"np.vecdot({first}, {second})"]
    forms += [f"np.vecmat({second}[..., :, 0], {first})", f"np.linalg.matmul({first}, {turned})"]
    forms += [f"np.dot({first}, {second}.T)", f"np.inner({first}, {second})"]
    axes = g.rng.choice([1, 2, [[0], [0]], [[rank - 1], [rank - 1]], [[0, 1], [0, 1]]])
    forms += [f"np.tensordot({first}, {second}, axes={axes})"]
    forms += [f"np.ascontiguousarray(np.einsum('...ij,...kj->...ik', {first}, {second}))"]
    forms += [f"({first} @ {turned}).sum(axis=-1)", f"({first} @ {turned}) * 2 + 1"]
    forms += [
        f"{first} @ {turned} @ {first}",
        f"(lambda p: p - p.mean(axis=0))({first} @ {turned})",
    ]
    if rank == 2:
        forms += [f"np.linalg.multi_dot([{first}, {turned}, {second}])"]
        forms += [f"np.matmul({first}, {turned}, out=np.zeros({(g.names[name].shape[0],) * 2}))"]
        forms += [f"{second}[:, 0] @ {first}", f"np.outer({first}[0], {second}[:, 0])"]
    if rank == 3:
        forms += [
            f"{first}[0] @ {turned}",
            f"{first} @ {turned}[:1]",
            f"{first}[:, None] @ {turned}",
        ]
    return _set(g, g.rng.choice(forms))


def spectrum(g: Any) -> Said:
    name = g.pick(lambda x: x.ndim and x.size)
    if not name:
        return NOTHING
    axis = g.rng.randrange(g.names[name].ndim)
    which = g.rng.choice(["fft", "ifft", "rfft"])
    # contiguous: dask.array does not have NumPy's memory order
    return _set(g, f"np.ascontiguousarray(np.fft.{which}(np.nan_to_num({name}), axis={axis}))")


# ------------------------------------------------------------------------------- writes and views


def write(g: Any) -> Said:
    name = g.pick(_axed)
    if not name:
        return NOTHING
    shape = g.names[name].shape
    index = key(g, shape)
    value = g.rng.choice(["1", "0", "True", f"{name}[{index}]", f"{_like(g, name)}[{index}]"])
    sign = g.rng.choice(["=", "=", "+=", "*=", "-="])
    return f"{name}[{index}] {sign} {value}", name


def shifted(g: Any) -> Said:
    """A write that reads what it overwrites."""
    name = g.pick(lambda x: x.ndim and x.shape[0] > 2)
    forms = [
        f"{name}[1:] = {name}[:-1]",
        f"{name}[1:] += {name}[:-1]",
        f"{name}[:-1] *= {name}[1:]",
        f"{name}[...] = {name}[::-1]",
        f"{name}[::2] = {name}[0]",
        f"{name} += {name}[0]",
        f"np.add({name}[1:], {name}[:-1], out={name}[1:])",
        f"np.multiply({name}, 2, out={name})",
        f"{name}[1:-1] = ({name}[2:] + {name}[:-2]) / 2",
        f"{name} *= {name} > 0",
        f"np.maximum({name}, 0, out={name})",
        f"np.copyto({name}, 3, where={name} > 0)",
        f"{name}[{name} > 0] = 1",
        f"{name}[[0, -1]] = {name}[[1, 0]]",
        f"np.putmask({name}, {name} < 0, 0)",
        f"{name}.sort(axis=0)",
        f"{name}.fill(2)",
        f"np.fill_diagonal({name}, 7)",
        f"{name}.flat[::2] = 1",
        f"np.cumsum({name}, axis=0, out={name})",
    ]
    return (g.rng.choice(forms), name) if name else NOTHING


def through_view(g: Any) -> Said:
    """A view, or a view of a view, that is written to at once."""
    name = g.pick(_axed)
    if not name:
        return NOTHING
    view = g.free()
    if view == name:
        return NOTHING
    first = key(g, g.names[name].shape, ints=False)
    second = g.rng.choice(["", ".T", "[1:]", "[::-1]", "[..., :2]", ".T[1:]", ".reshape(-1)"])
    act = g.rng.choice(
        [f"{view}[...] = 5", f"{view} += 1", f"{view}[:1] = {view}[-1:]", f"{view} *= {view}"]
    )
    return f"{view} = {name}[{first}]{second}; {act}", name


def written_by_host(g: Any) -> Said:
    """A real array, recorded before it changes."""
    name = g.pick(lambda x: x.shape in g.shapes)
    if not name:
        return NOTHING
    at = g.shapes.index(g.names[name].shape)
    target = g.free()
    form = g.rng.choice(
        [f"{target} = {name} + R{at}", f"{target} = {name}.copy(); {target}[...] = R{at}"]
    )
    return f"{form}; R{at}[:1] = R{at}[-1:]", target


def out_host(g: Any) -> Said:
    name = g.pick(lambda x: x.shape in g.shapes)
    if not name:
        return NOTHING
    at = g.shapes.index(g.names[name].shape)
    return f"np.add({name}, 1, out=R{at}, casting='unsafe')", f"R{at}"


# ------------------------------------------------------------------------------ what programs do


def forgotten(g: Any) -> Said:
    name = g.pick()
    return (f"del {name}", "") if name else NOTHING


def sink(g: Any) -> Said:
    name = g.pick()
    target = g.free()
    forms = [
        f"{target} = float(abs({name}).sum())",
        f"{target} = {name}.tolist()",
        f"{target} = bool(({name} > 0).any())",
        f"{target} = {name}.ravel()[:3].tolist()",
        f"{target} = len({name})",
        f"{target} = [float(abs(x).sum()) for x in {name}]",
    ]
    return (g.rng.choice(forms), target) if name else NOTHING


def moved(g: Any) -> Said:
    name = g.pick()
    if not name:
        return NOTHING
    return _set(
        g,
        g.rng.choice(
            [f"keep({name})", f"through({name})", f"computed({name})", f"keep({name}.copy())"]
        ),
    )


def again(g: Any) -> Said:
    at = g.rng.randrange(len(g.shapes))
    return _set(g, g.made(at))


def loop(g: Any) -> Said:
    """A solver's sweeps."""
    name = g.pick(lambda x: x.ndim and x.shape[0] > 2 and x.dtype.kind == "f")
    form = g.rng.choice(
        [
            f"{name}[1:-1] = 0.5 * ({name}[2:] + {name}[:-2])",
            f"{name} = {name} * 0.5 + {name}.mean()",
        ]
    )
    return (f"for k in range(3): {form}", name) if name else NOTHING


ALL: list[Phrase] = [
    unary, binary, binary, operators, operators, chain, window, window, stencil, transpose,
    reduction, reduction, reduction, extreme, select, conversion, reshape, cumulative, ordered,
    taken, joined, joined, product, spectrum, write, write, shifted, shifted, through_view,
    through_view, written_by_host, out_host, forgotten, sink, moved, moved, again, loop,
]  # fmt: skip

PRODUCTS: list[Phrase] = [
    *[contraction, product] * 6, unary, binary, operators, chain, window, transpose, reduction,
    conversion, reshape, joined, write, shifted, through_view, written_by_host, moved, again, sink,
]  # fmt: skip
"""Phrases of which most multiply matrices."""
