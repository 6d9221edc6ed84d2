"""Random programs of moves: what shows, repeats, joins or turns elements, with writes between.

`program(seed)` draws one. NumPy runs along while it is drawn, so that shapes fit, and now and then
they are meant not to. Holds no test.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy

from tests.programs.compare import Program, Statement, attempt, world

DTYPES = ("f8", "f8", "f4", "i8", "i4", "c16", "?")
MOST = 4000  # elements of an array, above which only parts of it are used again
ONES = (
    "np.roll({x}, {i}, {a})", "np.roll({x}, {i})", "np.roll({x}, ({i}, {j}), (0, -1))",
    "np.flip({x}, {a})", "np.rot90({x}, {j})", "np.flipud({x})", "np.fliplr({x})",
    "np.pad({x}, {n})", "np.pad({x}, {n}, mode='{m}')", "np.pad({x}, ({n}, {t}), mode='{m}')",
    "np.pad({x}, 1, constant_values=3)", "np.tile({x}, {t})", "np.tile({x}, ({t}, {n}))",
    "np.repeat({x}, {t}, {a})", "np.repeat({x}, {t})", "np.repeat({x}, 2, {a})",
    "np.diff({x}, axis={a})", "np.diff({x}, 2)", "np.gradient({x})", "np.gradient({x}, axis={a})",
    "np.ediff1d({x})", "np.triu({x}, {j})", "np.tril({x}, {j})", "np.diag({x}, {j})",
    "np.diagonal({x})", "np.diagflat({x})", "np.insert({x}, {n}, 7, axis={a})",
    "np.delete({x}, {n}, axis={a})", "np.delete({x}, slice({n}, None, 2), axis={a})",
    "np.resize({x}, ({t}, {k}))", "np.resize({x}, {x}.shape[::-1])", "np.fft.fftshift({x})",
    "np.fft.ifftshift({x}, {a})", "np.moveaxis({x}, 0, -1)", "np.swapaxes({x}, 0, -1)", "{x}.T",
    "{x}.reshape(-1)", "{x}.reshape({x}.shape[::-1])", "{x}.reshape(2, -1)", "{x}.ravel()",
    "{x}[None]", "{x}[..., None]", "np.squeeze({x})", "np.split({x}, 2)[1]",
    "np.array_split({x}, 3, {a})[{n}]", "np.broadcast_to({x}, (2, *{x}.shape))", "{x}.copy()",
    "np.broadcast_to({x}[..., :1], {x}.shape)", "{x}.real", "{x}.imag", "{x}.T.copy()",
    "np.lib.stride_tricks.sliding_window_view({x}, 2, axis={a})", "{x}[::-1]", "{x}[..., ::-1]",
    "{x}[::2]", "{x}[1:]", "{x}[:-1]", "{x}[..., 1:]", "{x}[..., :-1]", "{x}[1:-1]", "{x}[{n}]",
    "{x}[..., ::-2]", "{x}[{n}:{k}]", "np.kron({x}[:3], {x}[:2])", "np.ascontiguousarray({x})",
    "np.asfortranarray({x})", "np.atleast_2d({x})", "np.take({x}, range({n}, {t}), {a})",
    "np.meshgrid({x}.ravel()[:9], {x}.ravel()[:5])[{b}]", "np.expand_dims({x}, {a})",
    "np.convolve({x}.ravel(), [1, 2, 1])", "np.concatenate([{x}[1:], {x}[:1]])",
    "{x}.astype('f8')", "{x}.view({x}.dtype)", "np.block([[{x}, {x}], [{x}, {x}]])",
)  # fmt: skip
TWOS = (
    "np.concatenate([{x}, {y}])", "np.concatenate([{x}, {y}], {a})", "np.stack([{x}, {y}], {a})",
    "np.concatenate([{x}, {x} * 2, {y}], -1)", "np.vstack([{x}, {y}])", "np.hstack([{x}, {y}])",
    "np.dstack([{x}, {y}])", "np.column_stack([{x}, {y}])", "np.append({x}, {y}, {a})",
    "np.append({x}, {y})", "np.concatenate([{x}, {y}], None)", "np.stack([{x}, {x}, {y}])",
    "np.where({x} > {y}, {x}, {y})", "{x} + {y}", "{x} - {y}", "{x} * {y}", "np.maximum({x}, {y})",
    "{x} + np.roll({y}, {i}, {a})", "np.roll({x}, 1, 0) - np.roll({y}, -1, 0)",
)  # fmt: skip
PLAIN = (
    "{x} * 2", "{x} + 1", "-{x} * 0.5", "abs({x})", "{x} - {x}.ravel()[0]", "np.sqrt(abs({x}))",
    "{x}.astype('f4')", "{x} * 1j", "{x} > 1",
)  # fmt: skip
PARTS = ("[1:]", "[:-1]", "[::2]", "[...]", "[::-1]", "[..., 1:-1]", "[0]", "[..., 0]", "[..., 1:]")
WRITES = (
    "{x}{p} = {y}{q}", "{x}{p} += {y}{q}", "{x}{p} *= 2", "{x}{p} = 3", "{x}{p} = {x}{q} * 2",
    "{x}{p} = np.roll({y}{q}, {i}, {a})", "{x} += np.roll({x}, {i}, {a})", "{x}[1:] = {x}[:-1]",
    "{x}[:-1] += {x}[1:]", "{x}.T[...] = {y}", "{x}.real[...] = {y}", "{x}[...] = {y}[::-1]",
    "np.add({x}{p}, {y}{q}, out={x}{p})", "{x}.ravel()[{n}::3] = 5", "np.copyto({x}, {y})",
    "{x}.reshape(-1)[{n}] = 8", "{x}[...] = np.pad({y}{q}, 1)[1:-1]", "{x}.fill({n})",
)  # fmt: skip
LOOKS = ("float({x}.ravel()[{n}].real)", "numpy.asarray({x})", "{x}.sum()", "{x}.max(axis={a})")


def _inputs(seed: int) -> dict[str, Any]:
    draw = random.Random(seed)
    rank = draw.choice((1, 2, 2, 2, 3))
    sizes = (1, 2, 3, 4, 6) if rank == 3 else (1, 2, 3, 5, 6, 8, 12)
    shape = tuple(draw.choice(sizes) for _ in range(rank))
    found = {}
    for number in range(3):
        count = numpy.arange(numpy.prod(shape)) * (7, 31, 101)[number] % 97
        array = (count * 0.5 - 9).astype(draw.choice(DTYPES)).reshape(shape)
        found[f"R{number}"] = numpy.asfortranarray(array) if draw.random() < 0.2 else array
    return found


def program(seed: int) -> Program:
    """The program of a seed."""
    draw = random.Random(seed)
    made = Program(lambda: _inputs(seed))
    names = world(numpy, _inputs(seed))
    arrays: list[str] = []

    def add(text: str, target: str = "") -> None:
        with numpy.errstate(all="ignore"):
            failed = attempt(text, names)
        if failed and draw.random() < 0.9:
            return  # errors are seldom to be compared
        made.statements.append(Statement(text, target, draw.random() < 0.1))
        if target and not failed:
            value = names[target]
            if isinstance(value, numpy.ndarray) and 0 < value.size <= MOST and value.ndim < 5:
                arrays[:] = [*[each for each in arrays if each != target], target]

    def drawn(text: str) -> str:
        return text.format(
            x=draw.choice(arrays), y=draw.choice(arrays), i=draw.randint(-9, 9),
            j=draw.randint(-2, 2), n=draw.randint(0, 3), t=draw.randint(1, 4), k=draw.randint(1, 9),
            a=draw.choice((0, 0, -1, 1, None)), b=draw.randint(0, 1), p=draw.choice(PARTS),
            q=draw.choice(PARTS), m=draw.choice(("edge", "wrap", "reflect", "symmetric")),
        )  # fmt: skip

    for number in range(3):
        add(f"x{number} = np.array(R{number})", f"x{number}")
    kinds: tuple[Callable[[], str], ...] = tuple(
        [lambda kind=kind: draw.choice(kind) for kind in (ONES, ONES, ONES, TWOS, PLAIN, PLAIN)]
    )
    for _ in range(draw.randint(4, 22)):
        way = draw.random()
        if way < 0.2:
            add(drawn(draw.choice(WRITES)))
        elif way < 0.26:
            add(f"n{draw.randint(0, 3)} = {drawn(draw.choice(LOOKS))}")
        elif way < 0.3 and len(arrays) > 2:
            gone = arrays.pop(draw.randrange(len(arrays)))
            add(f"del {gone}")
        else:
            target = f"x{draw.randint(0, 6)}"
            add(f"{target} = {drawn(draw.choice(kinds)())}", target)
    return made
