"""Statements that fail, for the grammar's random programs: by NumPy's rules, or in what they call.

Each is to raise what NumPy raises and to leave every array as NumPy leaves it, so that whatever
comes later is right. `tools()` are the objects in them that raise.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.programs import phrases
from tests.programs.phrases import Phrase, Written

if TYPE_CHECKING:
    from tests.programs.grammar import Grammar


class Planned(Exception):
    """What the tools raise."""


def fail(*args: Any, **kwargs: Any) -> Any:
    """A callback that raises."""
    raise Planned("of a callback")


class Later:
    """A callback that raises at its third call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        if self.calls == 3:
            raise Planned("of the third call")
        return 1.0


class FailingArray:
    """Raises when it is to become an array."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise Planned("of __array__")


class FailingIndex:
    """Raises when it is asked for its number."""

    def __index__(self) -> int:
        raise Planned("of __index__")


class FailingFloat:
    """Raises when it is to become a number."""

    def __float__(self) -> float:
        raise Planned("of __float__")


class FailingOverride:
    """Raises in ufuncs and functions that meet it."""

    def __array_ufunc__(self, *args: Any, **kwargs: Any) -> Any:
        raise Planned("of __array_ufunc__")

    def __array_function__(self, *args: Any, **kwargs: Any) -> Any:
        raise Planned("of __array_function__")


class FailingSequence:
    """Raises at its second element."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, place: int) -> float:
        if place:
            raise Planned("of __getitem__")
        return 1.0


class Equal:
    """Raises in comparisons and arithmetic from the right."""

    def __radd__(self, other: Any) -> Any:
        raise Planned("of __radd__")

    __rmul__ = __rsub__ = __radd__
    __array_ufunc__ = None


def failing_iterator() -> Any:
    """Raises after two elements."""
    yield 1.0
    yield 2.0
    raise Planned("of an iterator")


def tools() -> dict[str, Any]:
    """Names for the programs; each program has its own."""
    return {
        "fail": fail,
        "later": Later,
        "broken": FailingArray(),
        "nowhere": FailingIndex(),
        "unknown": FailingFloat(),
        "override": FailingOverride(),
        "sequence": FailingSequence(),
        "reflected": Equal(),
        "iterator": failing_iterator,
        "warnings": warnings,
    }


NAMES = frozenset(tools())


def array(grammar: Grammar) -> str | None:
    return grammar.pick(lambda x: isinstance(x, np.ndarray))


def choose(grammar: Grammar, forms: list[str], **values: Any) -> Written:
    """One of the forms for an array `x` and another `y`; expressions set a name."""
    x, y = array(grammar), array(grammar)
    if x is None or y is None:
        return None
    shape = np.shape(grammar.names[x])
    other = (*shape[:-1], shape[-1] + 2) if shape else (2, 3)
    text = grammar.rng.choice(forms).format(x=x, y=y, other=other, rank=len(shape), **values)
    if text.startswith("!"):
        return text[1:], ""
    return phrases.result(grammar, text)


def bad_shapes(grammar: Grammar) -> Written:
    forms = [
        "{x} + np.ones({other})", "!{x}[...] = np.ones({other})", "!{x} += np.ones({other})",
        "!{x} *= np.ones((2, 3, 5))", "{x}.reshape(7, 11, -1)", "{x}.reshape(-1, -1)",
        "np.concatenate([{x}, np.ones((3, 1, 1, 2))])", "np.stack([{x}, np.ones({other})])",
        "np.where({x} == 1, np.ones({other}), {x})", "np.broadcast_to({x}, (2, 3, 5, 7))",
        "{x}.transpose(0, 0)", "{x}.sum(axis={rank})", "{x}.max(axis=(0, 0))",
        "np.split({x}, 3)", "!np.copyto({x}, np.ones({other}))", "np.ones(-3) + {x}",
        "!np.add({x}, 1, out=np.ones({other}, {x}.dtype))", "{x} + {y} + np.ones({other}) * {x}",
        "!{x}[1:-1] = np.ones((2, 3))[{x}.ndim:]", "({x} + {y}) @ np.ones((3, 1, 2))",
        "np.arange(3, dtype='f4', step=0)", "np.swapaxes({x}, 0, {rank})",
        "!np.minimum({x}, np.ones({other}), out={x})", "np.expand_dims({x}, 99)",
        "{x}.squeeze(0) + np.ones({other})", "np.cumsum({x}, axis={rank})",
        "np.sort({x}, axis={rank})", "np.repeat({x}, [1, 2, 3, 4, 5, 6])",
        "{x}.max() + np.ones((0, 2)).max()", "np.linalg.inv(np.ones((2, 3)))",
        "!{x}.shape = (3, 7)", "np.einsum('ij,jk', {x}, {x})", "np.clip({x}, np.ones({other}), 3)",
        "np.moveaxis({x}, 0, {rank})", "np.tile({x}, 'a')", "{x}[{x}.size:].min()",
    ]  # fmt: skip
    return choose(grammar, forms)


def bad_dtypes(grammar: Grammar) -> Written:
    forms = [
        "{x} & 1.5", "{x} << 0.5", "~({x} * 1.5)", "{x}.astype('nonsense')", "{x} + None",
        "{x} + 'a'", "{x} @ 3", "np.bitwise_and({x}, 1.5)", "np.floor({x} * 1j)", "{x} % 1j",
        "np.gcd({x}, 0.5)", "!{x} += 1j", "!{x} -= 'a'", "!{x}[...] = 'abc'",
        "!{x}[...] = [1, [2, 3]]", "!{x}[...] = object()", "!{x} //= 1j", "-({x} == 1)",
        "({x} == 1) - ({x} == 2)", "np.add({x}, 1, dtype='M8[s]')", "{x} < {{}}", "np.sqrt('a')",
        "np.array({x}, dtype='x9')", "!{x}.fill('abc')", "!{x}[...] = np.array(['a'])",
        "{x} + np.array(['a', 'b'])", "np.maximum({x}, None)", "np.where({x} == 1, {x}, 'a') + 1",
        "np.sum({x}, dtype='S3')", "np.logical_and.reduce({x}, dtype='M8[s]')", "{x} ** 'a'",
        "{x}.view('V7')", "float({x} + 2j)", "int({x})", "bool({x})", "{x}.item(0, 0, 0, 0)",
        "np.add({x})", "np.add({x}, 1, 2, 3)", "np.add({x}, 1, nonsense=3)", "{x}.sum(nonsense=3)",
        "np.arange('a')", "np.ones(3.5)", "{x}.round('a')", "{x}.nonsense", "hash({x})",
        "np.copysign({x}, 1j)", "np.ldexp({x}, 1.5)", "!{x} @= 3", "np.dot({x}, 'a')",
    ]  # fmt: skip
    return choose(grammar, forms)


def bad_indices(grammar: Grammar) -> Written:
    places = [
        "99999", "-99999", "0.5", "'a'", "None, ..., ...", "[0, 99999]", "numpy.array([0.5])",
        "np.ones((3, 17), '?')", "::0", "1:2:'a'", "0, 0, 0, 0, 0", "{{}}", "numpy.array('a')",
        "0:2, 99999", "[0.5]", "..., 99999", "{x} + 0.5", "[[0, 1], [2]]", "True, False, 99999",
    ]  # fmt: skip
    place = grammar.rng.choice(places)
    forms = [
        "{x}[" + place + "]", "!{x}[" + place + "] = 1", "!{x}[" + place + "] += {y}",
        "({x} + {y})[" + place + "]", "!{x}[1:][" + place + "] = 2",
    ]  # fmt: skip
    if grammar.rng.random() < 0.3:
        forms = [
            "np.take({x}, 99999)", "!np.put({x}, [0, 99999], 2)", "!del {x}[0]",
            "{x}.item(99999)", "np.delete({x}, 99999)", "np.insert({x}, 99999, 0)",
            "!np.add.at({x}, [0, 99999], 1)", "np.take_along_axis({x}, np.array([[9999]]), 0)",
            "!np.put_along_axis({x}, np.array([99999]), 1, 0)", "np.choose([9], [{x}])",
            "!{x}[{x} == {x}] = np.ones(12345)", "!{x}[[0, 0, 0]] = np.ones((4, 99))",
            "!{x}.flat[99999] = 1", "!{x}.flat[0.5] = 1", "!np.putmask({x}, [True] * 77, 1)",
            "np.compress([True] * 9999, {x})", "np.unravel_index(99999, {x}.shape)",
        ]  # fmt: skip
    return choose(grammar, forms)


def bad_out(grammar: Grammar) -> Written:
    forms = [
        "np.add({x}, 1, out=3)", "np.add({x}, 1, out=({x}, {x}))", "np.add({x}, 1, where='a')",
        "np.add({x}, 1, out=np.empty({other}))", "!np.sum({x}, out=np.empty(99))",
        "!np.add({x}, 1.5, out={x}.view('i1'))", "!np.multiply({x}, 2j, out={x})",
        "!np.add({x}, {y}, out={x}, where=np.ones({other}, '?'))", "!np.add({x}, 1, out=[1])",
        "!np.sqrt({x}, out=np.broadcast_to({x}, (3, *{x}.shape)))", "np.max({x}, out='a')",
        "!np.divide({x}, 2, out=np.zeros({x}.shape, 'i4'))", "!np.less({x}, 2, out={x})",
        "!{x}.cumsum(out=np.ones({other}))", "!{x}.sum(out={y})", "!np.add({x}, {y}, {x}, {y})",
        "!np.add({x}, 1, out={x}, casting='nonsense')", "!np.add({x}, 1, out={x}, order='Q')",
        "!np.add({x}, 1, out={x}, dtype='nonsense')", "np.add.reduce({x}, out=np.ones(3, 'i1'))",
        "!np.negative({x}, out={x}[:0])", "!np.copyto(3, {x})", "!np.clip({x}, 0, 2, out='a')",
        "!np.take({x}, [0], out=np.ones((9, 9)))", "!np.dot({x}, {x}, out=np.ones((9, 9)))",
    ]  # fmt: skip
    if grammar.rng.random() < 0.3:
        write = grammar.rng.choice(
            ["{x} += 1", "{x}[0] = 1", "{x}[...] = {y}", "np.add({x}, 1, out={x})", "{x}.sort()",
             "{x}[{x} == 1] = 2", "{x}.fill(3)", "np.copyto({x}, {y})", "{x}[1:] *= 2"]
        )  # fmt: skip
        forms = [
            "!{x}.flags.writeable = False\ntry:\n    " + write
            + "\nfinally:\n    {x}.flags.writeable = True"
        ]  # fmt: skip
        x = array(grammar)
        if x is None or not grammar.names[x].flags.writeable:
            return None
        y = array(grammar)
        return forms[0][1:].format(x=x, y=y), ""
    return choose(grammar, forms)


def bad_casts(grammar: Grammar) -> Written:
    forms = [
        "{x}.astype('i1', casting='no')", "{x}.astype('S1', casting='safe')",
        "np.add({x}, 1, dtype='i1', casting='no')", "!np.copyto({x}, 1j)", "!{x} += 1.5",
        "!np.copyto({x}, {y}, casting='no')", "!{x} /= 2", "!{x} **= 0.5", "!{x} += {y}",
        "!{x} -= 0.25 * {y}", "!np.multiply({x}, {y}, out={x})", "!{x}[1:] += 0.5",
        "!np.copyto({x}, 'a')", "np.concatenate([{x}, {y}], dtype='i1', casting='safe')",
        "np.concatenate([{x}, {y}], dtype='i1')", "!{x} += np.uint64(3)", "!{x} += 1 << 70",
        "{x} + (1 << 70)", "!{x}[...] = 1 << 70", "{x} + -(1 << 40)", "!{x}[0] = 300",
        "np.full(3, 1 << 70, dtype='i4')", "{x} == (1 << 70)", "!{x} <<= {y}", "!{x} &= {y}",
        "np.stack([{x}, {x}], casting='nonsense')", "np.array([{x}, 'a']).astype('i4')",
    ]  # fmt: skip
    return choose(grammar, forms)


def raising(grammar: Grammar) -> Written:
    forms = [
        "{x} + broken", "np.add({x}, broken)", "{x}[nowhere]", "{x}[nowhere:]", "{x}[1:nowhere]",
        "!{x}[nowhere] = 1", "!{x}[nowhere:] += 1", "!{x}[1:] = broken", "!{x}[...] = unknown",
        "np.array([{x}, broken])", "np.concatenate([{x}, broken])", "{x} + override",
        "!np.multiply({x}, override, out={x})", "!{x} += override", "np.sum(override)",
        "np.concatenate([{x}, override])", "np.apply_along_axis(fail, 0, {x})",
        "np.vectorize(fail)({x})", "np.frompyfunc(fail, 1, 1)({x})", "{x} + reflected",
        "np.piecewise({x}, [{x} == 1], [fail])", "np.fromfunction(fail, (3,))",
        "np.fromiter(iterator(), 'f8')", "np.array(sequence)", "{x} + sequence",
        "{x}.reshape(nowhere)", "np.where({x} == 1, {x}, broken)", "np.full(3, broken)",
        "!{x}.fill(unknown)", "!{x}[:] = sequence", "np.ones(nowhere)", "np.zeros((2, nowhere))",
        "np.frompyfunc(later(), 1, 1)({x})", "np.apply_along_axis(later(), 0, {x})",
        "[later_ for later_ in map(fail, {x})]", "np.where({x} == 1, override, {x})",
        "!{x} += broken", "!{x} -= sequence", "np.maximum({x}, unknown)", "!{x} *= reflected",
        "{x}.sum(axis=nowhere)", "np.roll({x}, nowhere)", "np.stack([{x}, broken])",
        "np.take({x}, nowhere)", "!np.copyto({x}, broken)", "!np.put({x}, [0], broken)",
        "np.add({x}, 1, out=broken)", "np.add({x}, 1, out=override)", "np.add.reduce(broken)",
        "np.add({x}, 1, where=broken)", "{x}.max(initial=broken)", "np.clip({x}, broken, 3)",
        "np.dot({x}, broken)", "np.array(broken)", "{x}[broken]", "!{x}[broken] = 2",
        "!{x}[[0, nowhere]] = 2", "!{x}[{x} == 1] = broken", "np.arange(unknown)", "{x} @ override",
    ]  # fmt: skip
    return choose(grammar, forms)


def halfway(grammar: Grammar) -> Written:
    """Several writes with an error among them: those before it stand, those after it do not."""
    found = grammar.rng.choice((bad_shapes, bad_dtypes, bad_indices, bad_out, bad_casts, raising))
    wrong = found(grammar)
    x = array(grammar)
    if wrong is None or x is None or grammar.value(x).dtype.kind == "b" or "\n" in wrong[0]:
        return None
    text = wrong[0]
    before = grammar.rng.choice((f"{x} += 1", f"{x}[1:] = {x}[:-1]", f"{x}[...] = {x}[::-1]"))
    after = grammar.rng.choice((f"{x} -= 3", f"{x}[...] = 0"))
    if grammar.rng.random() < 0.4:
        after = f"try:\n    {text}\nfinally:\n    {after}"
        return f"{before}\n{after}", wrong[1]
    return f"{before}\n{text}\n{after}", wrong[1]


def conditions(grammar: Grammar) -> Written:
    """Floating-point conditions as errors, by `errstate` and by filters of warnings."""
    x, y = (grammar.pick(lambda x: isinstance(x, np.ndarray) and x.dtype.kind == "f") for _ in "xy")
    if x is None or y is None or not grammar.fits(x, y):
        return None
    rng = grammar.rng
    bodies = [
        "c = {x} / 0", "{x} /= 0", "{x} /= {y}", "np.sqrt(-abs({x}) - 1, out={x})", "{x} *= 1e300",
        "c = {x} * 1e300 * 1e300", "{x}[1:] /= {x}[1:] - {x}[1:]", "c = 1 / ({x} - {x})",
        "{x} *= {y}", "c = np.sqrt({x} - 3)", "{x}[...] = 2 / {y}", "c = {x} + {y} / 0",
        "c = ({x} / 0).sum()", "{x} %= 0", "{x} //= 0", "c = {x}.max() / 0", "{x}.sum() / 0",
    ]  # fmt: skip
    lines = [rng.choice(bodies).format(x=x, y=y) for _ in range(rng.choice((1, 1, 2)))]
    states = ["all='raise'", "divide='raise'", "invalid='raise', over='raise'",
              "all='call', call=fail", "all='ignore'"]  # fmt: skip
    head = f"with np.errstate({rng.choice(states)}):"
    return "\n    ".join([head, *lines]), ""


WRONG: list[tuple[Phrase, float]] = [
    (bad_shapes, 4), (bad_dtypes, 4), (bad_indices, 5), (bad_out, 4), (bad_casts, 4), (raising, 6),
    (halfway, 4), (conditions, 3),
]  # fmt: skip


def among(table: list[tuple[Phrase, float]], part: float = 0.35) -> list[tuple[Phrase, float]]:
    """A table of phrases, of which this part is wrong."""
    right, wrong = (sum(weight for _, weight in each) for each in (table, WRONG))
    factor = right * part / (1 - part) / wrong
    return [*table, *[(phrase, weight * factor) for phrase, weight in WRONG]]
