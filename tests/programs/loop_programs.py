"""Random programs whose structure comes round again, with other values, slices, numbers and sizes.

A program is a header that makes arrays of `m` by `n` elements, a body of a few statements in terms
of `k` and `s`, and turns: each sets these and runs the same text again, looking at some of what it
set or at nothing. Between turns the arrays may be made anew, at another size, in another order.
What is kept from one run for the next (plans, launches, replays) has to hold for all of them.

Expressions are drawn from a grammar of texts: `<F>` stands for an expression of `m` by `n`
elements, `<I>` for the inner ones (a border of one less), `<H>` for every second row, `<R>` for a
row, `<C>` for a column, `<S>` for a number, `<M>` for a mask. All operations are exact.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.programs.compare import Statement
from tests.programs.deep import DeepProgram

SMALL = (2, 4, 6, 8, 12, 16, 18)
MIDDLE = (6, 16, 34, 60)
LARGE = (130, 150, 190)

TERMS = {
    "F": [
        "a", "b", "a", "b", "c", "X[k : k + m, :n]", "X[1 : m + 1, k : k + n]",
        "Y[k : k + n, :m].T",
        "X[k : k + m, k : k + n]", "X[k % 2 : k % 2 + 2 * m : 2, :n]", "X[k : k + m][::-1, :n]",
        "X[:m, k : k + 2 * n : 2]", "X[2 : m + 2, n + k : k : -1]", "a[::-1]", "b[:, ::-1]",
        "W[k % 3]", "W[k % 2 : k % 2 + 1, ::-1][0]", "X[I[k : k + m], :n]", "X[:m, J[k : k + n]]",
        "np.broadcast_to(V[k : k + n], (m, n))", "X[-m:, k : k + n]",
        "V[k : k + m * n].reshape(m, n)",
    ],
    "I": [
        "a[1:-1, 1:-1]", "a[:-2, 1:-1]", "a[2:, 1:-1]", "a[1:-1, :-2]", "a[1:-1, 2:]",
        "b[1:-1, 1:-1]", "b[2:, 2:]", "X[k : k + m - 2, 1 : n - 1]", "c[:-2, ::-1][:, 2:]",
        "a[1:-1, 1:-1]", "X[1 : m - 1, k : k + n - 2]", "b[:-2, :-2]", "Y[k : k + n - 2, 2:m].T",
    ],
    "H": ["a[::2]", "a[1::2]", "b[1::2]", "X[k : k + m : 2, :n]", "b[::-2]", "c[::2, ::-1]"],
    "R": [
        "V[k : k + n]", "a[k % m]", "X[k, :n]", "X[k + m, k : k + n]", "a[-1]", "b[0, ::-1]",
        "V[k + n : k : -1]", "Y[k : k + n, 1]", "V[k : k + 2 * n : 2]",
    ],
    "C": ["a[:, k % n, None]", "X[k : k + m, 1:2]", "V[k : k + m, None]", "b[:, :1]", "c[:, -1:]"],
    "S": ["s", "2", "3", "s", "k", "1"],
    "M": ["P", "~P", "P[::-1]", "(a > b)", "(<F> > s)"],
}  # fmt: skip
"""What expressions end in."""

COMMON = {
    "F": [
        "(<F> + <F>)", "(<F> - <F>)", "(<F> + <R>)", "(<C> + <F>)", "(<R> - <C>)", "(<F> + <S>)",
        "(<S> - <F>)", "np.where(<M>, <F>, <F>)", "np.where(<M>, <F>, <S>)", "-<F>",
        "W[k % 2 : k % 2 + 3].sum(axis=0)", "(W[k % 2 : k % 2 + 3] - <F>).sum(axis=0)",
        "(<F> - <F>.sum(axis=1, keepdims=True))", "(<F> + <F>.sum(axis=0))", "<F>[::-1]",
        "np.roll(<F>, k % 3, axis=0)", "<F>.copy()", "np.stack([<F>, <F>])[k % 2]",
        "(X[k : k + m][:, None, :n] + X[:3, :n]).sum(axis=1)", "np.concatenate([<H>, <H>])",
        "np.cumsum(<F>, axis=k % 2)", "np.diff(X[k : k + m + 1, :n], axis=0)", "(<F> + <S>)",
        "np.where(<M>, <F>, <F>)", "np.pad(<I>, 1)", "(<F> - <F>)", "np.add(<F>, <F>)",
        "np.select([<M>, <M>], [<F>, <F>], 0)", "<F>.reshape(-1).reshape(m, n)",
        "W[::-1][k % 3 : k % 3 + 2].sum(axis=0)", "np.take(<F>, I[:m] % m, axis=0)",
    ],
    "I": ["(<I> + <I>)", "(<I> - <I>)", "(<I> + <S>)", "<F>[1:-1, 1:-1]", "(<I> + <I> - 2 * <I>)"],
    "H": ["(<H> + <H>)", "(<H> - <S>)", "<F>[::2]", "(<H> + <R>)"],
    "R": ["(<R> + <R>)", "<F>.sum(axis=0)", "<F>[k % m]", "(<R> - <S>)", "(<R> + <S>)"],
    "C": ["<F>.sum(axis=1)[:, None]", "<F>[:, :1]", "(<C> + <C>)", "(<C> - <S>)"],
    "S": ["<F>.sum()", "a[0, k % n]", "V[k]", "<F>[k % m, -1]", "<R>.sum()", "(<S> + <S>)"],
    "M": ["(<F> > <F>)", "(<F> <= <R>)", "(<M> & <M>)", "(<F> == <F>)", "(<F> != <S>)"],
}  # fmt: skip
ORDERED = {
    "F": [
        "(<F> * <F>)", "(<F> * <S>)", "abs(<F>)", "np.maximum(<F>, <F>)", "np.minimum(<F>, <R>)",
        "np.clip(<F>, -<S>, <S>)", "(<F> * <C>)", "(<F> - <F>.max(axis=0))", "np.square(<F>)",
        "W[k % 2 : k % 2 + 3].max(axis=0)", "(W[k % 3 : k % 3 + 2] * <F>).min(axis=0)",
        "np.sort(<F>, axis=k % 2)", "(<F> * <F> + <F>)", "(<F> * <S> + <F>)", "np.sign(<F>)",
        "<F>.argmax(axis=k % 2, keepdims=True) * <F>", "<F>.argsort(axis=0, kind='stable') + <F>",
        "(X[k : k + m, None, :n] * X[None, :3, :n]).max(axis=1)", "(<F> * <R>)", "<F> * <M>",
        "np.fmax(<F>, <S>)", "np.maximum.accumulate(<F>, axis=0)", "(<F> * <F>)", "(<F> * <S>)",
        "(X[k : k + m, :n, None] - X[None, k, :3]).min(axis=2)",
    ],
    "I": ["(<I> * <I>)", "(<I> * <S>)", "np.maximum(<I>, <I>)", "abs(<I>)"],
    "H": ["(<H> * <H>)", "(<H> * <S>)"],
    "R": ["(<R> * <R>)", "<F>.max(axis=0)", "<F>.min(axis=0)", "(<R> * <S>)"],
    "C": ["<F>.max(axis=1, keepdims=True)", "<F>.argmin(axis=1)[:, None]"],
    "S": ["<F>.max()", "<F>.min()", "(<F> * <F>).sum()", "np.abs(<F>).max()", "<M>.sum()"],
    "M": ["(<F> < <F>.max(axis=0))"],
}  # fmt: skip
MOVES = {
    "F": [
        "np.roll(<F>, (k % 3, -k), (0, 1))", "np.roll(<F>, -s if s == 1 else k, axis=1)",
        "(np.roll(<F>, 1, 0) + np.roll(<F>, -1, 1))", "np.roll(<F>, k)", "np.flip(<F>, k % 2)",
        "np.pad(<I>, 1, mode='edge')", "np.pad(<I>, 1, mode='wrap')", "np.rot90(<F>, 2)",
        "np.pad(<F>[k % 2 : -1], ((k % 2, 1), (0, 0)), mode='symmetric')", "np.pad(<R>, 1)[1:-1]",
        "np.pad(<F>[:, 1:], ((0, 0), (1, 0)), constant_values=s)", "np.tile(<R>, (m, 1))",
        "np.pad(<F>[:-2], ((1, 1), (0, 0)), mode='reflect')", "np.fft.fftshift(<F>, axes=k % 2)",
        "np.concatenate([<F>[k % m :], <F>[: k % m]])", "np.concatenate([<C>, <F>[:, 1:]], axis=1)",
        "np.concatenate([<F>, <F>], axis=k % 2)[:m, -n:]", "np.stack([<R>] * 3)[k % 3]",
        "np.stack([<F>, <F>], axis=2)[..., k % 2]", "np.vstack([<F>[1:], <R>])",
        "np.insert(<F>[1:], k % m, s, axis=0)", "np.delete(np.vstack([<F>, <R>]), k % m, axis=0)",
        "np.resize(<F>, (m, n))", "np.tile(<F>, (2, 1))[k % m : k % m + m]", "<F>[::-1, ::-1]",
        "np.pad(<F>, (k % 3, 2), mode='wrap')[k % 3 : k % 3 + m, 1 : n + 1]",
        "np.append(<F>, <F>)[: m * n].reshape(m, n)",
        "np.diff(np.pad(<F>, ((1, 0), (0, 0)), mode='edge'), axis=0)",
        "(<F> - np.roll(<F>, k, 0))[::-1]", "np.roll(<F> + <F>, 2, 1).sum(axis=0) + <F>",
    ],
    "I": ["np.pad(<F>, 1, mode='edge')[2:-2, 2:-2]", "np.roll(<I>, k, 0)", "<I>[::-1]"],
    "H": ["np.roll(<H>, 1, 0)", "np.roll(<F>, k, 0)[::2]"],
    "R": ["np.roll(<R>, k)", "<R>[::-1]", "np.pad(<R>[1:], (1, 0), mode='wrap')"],
    "M": ["np.roll(<M>, 1, 0)", "<M>[::-1]"],
}  # fmt: skip
"""Results whose elements are elements of operands: maps of indices."""
FLOATS = {
    "F": [
        "(<F> / <F>)", "(<F> * 0.25)", "np.sqrt(abs(<F>))", "np.floor(<F>)", "(<F> / (1 + <F>))",
        "(<F> - <F>.mean(axis=0))", "(<F> - <F>.mean())", "(<F> * <F>.mean(axis=1)[:, None])",
        "(<F> / <F>.std())", "<F>.astype('f4')", "<F>.astype('f8')", "(<F> * np.float64(s))",
        "np.copysign(<F>, <F>)", "np.rint(<F>)", "(W[k % 2 : k % 2 + 3] * 0.5).mean(axis=0)",
        "np.isnan(<F>)", "(<F> / <F>.sum(axis=1, keepdims=True))",
    ],
    "I": ["(<I> * 0.25)", "0.25 * (<I> + <I> + <I> + <I>)", "(<I> / <S>)"],
    "R": ["<F>.mean(axis=0)", "<F>.var(axis=0)", "(<R> * 0.5)"],
    "C": ["<F>.mean(axis=1, keepdims=True)"],
    "S": ["<F>.mean()", "np.sqrt(<F>.max())", "float(<F>[0, 0])", "0.5"],
}  # fmt: skip
WHOLE = {
    "F": [
        "(<F> % 7)", "(<F> // 3)", "(<F> & <F>)", "(<F> | <S>)", "(<F> ^ <F>)", "(<F> % 5)",
        "(<F> >> 1)", "<F>.astype('i8')",
        "np.bincount(abs(<F>).ravel() % 5, minlength=n)[:n] + <F>",
        "<F>.argmin(axis=0) + <F>", "(<F> // <F>)", "np.cumsum(<M>, axis=1)", "(<F> @ Z)",
        "np.digitize(<F>, [-1, 2, 5])", "np.searchsorted(np.sort(<R>), <F>)",
    ],
    "I": ["(<I> % 5)", "(<I> & 3)", "(<I> == 3) | (<I> & (<I> == 2))"],
    "S": ["<F>.argmax()", "np.count_nonzero(<F>)"],
}  # fmt: skip

WRITES = [
    "a = <F>", "b = <F>", "c = <F>", "t = <F>", "t = <F>", "a[...] = <F>", "b[...] = <F>",
    "a += <F>", "a -= <F>", "b -= <R>", "a += <C>", "b += <S>", "a[1:-1, 1:-1] += <I>",
    "a[1:-1, 1:-1] = <I>", "b[1:-1, 1:-1] = <I>", "b[1:-1, 1:-1] -= <I>", "a[::2] += <H>",
    "a[1::2] = <H>", "b[::2] -= <H>", "a[k % m] = <R>", "a[k % m] += <R>",
    "b[:, k % n] = <C>[:, 0]",
    "a[:, :1] -= <C>", "a[k % 3 : k % 3 + 4] -= <S>", "a[<M>] = <S>", "b[<M>] += <S>",
    "a[<M>] -= 1",
    "np.add(<F>, <F>, out=a)", "np.subtract(<F>, <R>, out=b)", "np.copyto(a, <F>, where=<M>)",
    "np.add(<I>, <I>, out=a[1:-1, 1:-1])", "np.add(a, <F>, out=a, where=<M>)", "a, b = b, a",
    "w = a[1:-1, 1:-1]; w += <I>", "w = b[::-1]; w -= <F>", "w = a[k % m]; t = w + <S>; w += <R>",
    "kept = [*kept[-2:], <F>]", "kept = [*kept[-2:], <R>]", "kept = [*kept[-1:], <F>[1:]]",
    "r = <S>", "r = <S>; a = a + r", "r = <F>.sum(); b = b - r", "t = <F>[<M>]",
    "r = <F>[<M>].sum()",
    "X[k] = X[k + 1]", "X[k : k + m, :n] = <F>", "X[k] += V[k]", "V[k : k + n] += <R>",
    "V[k] = <S>",
    "numpy.asarray(a)[0] = 1", "h = numpy.asarray(b)", "h = np.asarray(a); t = <F>", "h = None",
    "R0[k] = k", "a = np.asarray(numpy.asarray(a))", "del t", "t = a[k % m : k % m + 1] + 0",
    "b = np.zeros_like(a); b[1:-1] = <F>[1:-1]", "c = a.copy()", "c = a.copy(); c[0] = <R>",
    "a = np.concatenate([a[1:], a[:1]])", "a[0], a[-1] = a[-1], a[0].copy()", "a[:, 0] = b[:, -1]",
    "a[I[k : k + 4] % m] = <R>", "a[I[k : k + 4] % m] += 1", "t = X[I[k : k + 4] % m, J[:4]]",
    "np.add.at(V, I[k : k + 4], <S>)", "a = a.T.copy().T", "a = a[::-1]", "b = b[:, ::-1]",
    "for j in range(3):\n    a[j] += <R>", "for j in range(2):\n    a = a + b[j]",
    "t = <F>; r = t.sum(); t2 = t + <F>", "t = <F>; b = t - <R>; r = t.sum(axis=0)",
    "P = <M>", "P[k % m] = ~P[0]", "r = <M>.any()", "t = np.nonzero(<M>)[0]", "Z[0] += k % 2",
    "if <S> > <S>:\n    a = a - 1", "r = [<S>, <R>]", "a -= a[k % m : k % m + 1]",
    "np.negative(a, out=a)", "np.add(a, a[:, ::-1], out=a)", "a[::-1] = a", "a += a[::-1]",
]  # fmt: skip
SCALING = [
    "a *= <F>", "b *= <S>", "a[1:-1, 1:-1] *= <S>", "a[::2] *= <H>", "a[<M>] *= <S>",
    "w = a[1:-1, 1:-1]; w *= <I>",
    "np.multiply(<F>, <F>, out=a)", "np.minimum(a, <C> + <R>, out=a)", "np.maximum(b, <F>, out=b)",
    "a -= a[:, k % n, None] * a[k % m]", "np.minimum(a, a[:, k % n, None] + a[None, k % m], out=a)",
    "a[k % m :] -= a[k % m :, :1] * a[k % m, None]", "t = np.sort(<F>[<M>])", "a.sort(axis=0)",
    "a[k + 1 :, k + 1 :] -= a[k + 1 :, k, None] * a[k, k + 1 :]", "a[k + 1 :, k] //= 3",
    "b[k:, 1:] -= b[k:, :1] * b[:1, 1:]", "a[:, 1:] -= <S> * (b[:, 1:] - b[:, :-1])",
    "b[1:] -= a[1:] * <S> - a[:-1]", "r = (<F> * b).sum(); t = a + r * b; r2 = (t * t).sum()",
    "a[k : k + 3] *= <R>", "a[:, k % n] *= <S>", "a[1:-1] += <S> * (b[2:] - 2 * b[1:-1] + b[:-2])",
    "r = np.unique(<F>)", "t = np.argsort(<R>, kind='stable')", "r = <F>.argmax()",
]  # fmt: skip
BOUNDED = {
    "f": ("a, b = np.clip(a, -9, 9), np.clip(b, -9, 9)", "np.clip(a, -9, 9, out=a); b = np.rint(b)",
          "a = np.rint(a) * 0.5; np.clip(b, -9, 9, out=b)", "pass"),
    "i": ("a %= 11; b %= 7", "a = a % 9; b = b & 7", "pass"),
    "c": ("pass",),
}  # fmt: skip

HEADER = (
    "X = np.array(R0[: (2 * m + 8) * (2 * n + 8)].reshape(2 * m + 8, 2 * n + 8), order=order)",
    "Y = np.array(R1[: (2 * n + 8) * (m + 8)].reshape(2 * n + 8, m + 8))",
    "V = np.array(R1[-(m * n + 2 * max(m, n) + 8) :])",
    "a, b, c = X[:m, :n] + 1, np.array(X[3 : m + 3, 3 : n + 3], order=order), X[-m:, -n:].copy()",
    "W = np.array(R1[: 6 * m * n].reshape(6, m, n)); P = X[:m, -n:] > 0; t = r = h = None",
    "I, J = np.arange(3, m + 11) % (m + 4), np.arange(2, n + 10)[::-1] % (n + 3); kept = []",
    "Z = (np.arange(n * n) % 3).reshape(n, n).astype(a.dtype)",
)


@dataclass
class TurnProgram(DeepProgram):
    """A program that says how its inputs are made instead of spelling them."""

    made_by: str = ""

    def __str__(self) -> str:
        lines = ["", self.made_by]
        looks = (each.look and each.target for each in self.statements)
        pairs = zip(self.statements, looks, strict=True)
        return "\n".join([*lines, *(each.text + "  # look" * bool(look) for each, look in pairs)])

    __repr__ = __str__


class Turns:
    """One program in the making."""

    def __init__(self, seed: int, sizes: Sequence[int] = SMALL, moves: int = 0) -> None:
        """`moves`: how often each of `MOVES` is among the forms that expressions are drawn from."""
        self.seed = seed
        self.rng = random.Random(seed)
        self.sizes = sizes
        self.dtype = self.rng.choice("f8 f8 f8 f4 i8 i8 i4 u1 i2 c16".split())
        self.kind = np.dtype(self.dtype).kind.replace("u", "i")
        tables: list[Mapping[str, list[str]]] = [COMMON, *[MOVES] * moves]
        if self.kind != "c":
            tables.append(ORDERED)
        tables += {"f": [FLOATS], "i": [WHOLE], "c": []}[self.kind]
        self.rules = {key: [form for each in tables for form in each.get(key, ())] for key in TERMS}
        self.depth = self.rng.choice((1, 2, 2, 3, 3, 4))

    def inputs(self) -> dict[str, Any]:
        """The program's real arrays, the same at each call."""
        rng = np.random.default_rng(self.seed)
        longest = 6 * (max(self.sizes) + 4) ** 2 + 64
        return {name: drawn(rng, longest, self.dtype) for name in ("R0", "R1")}

    def expand(self, text: str, depth: int) -> str:
        """The text with an expression for each symbol."""

        def expression(found: re.Match[str]) -> str:
            symbol = found[1]
            ends = depth <= 0 or self.rng.random() < (0.7 if symbol == "S" else 0.2)
            form = self.rng.choice(TERMS[symbol] if ends else self.rules[symbol])
            return self.expand(form, depth - 1)

        return re.sub("<([A-Z])>", expression, text)

    def statement(self) -> str:
        table = WRITES if self.kind == "c" or self.rng.random() < 0.8 else SCALING
        return self.expand(self.rng.choice(table), self.depth)

    def program(self) -> TurnProgram:
        """Write a program."""
        rng = self.rng
        body = [self.statement() for _ in range(rng.choice((1, 1, 2, 2, 3, 4, 6, 8)))]
        body.append(rng.choice(BOUNDED[self.kind]))
        looks = rng.choice(("never", "never", "last", "some", "all"))
        found: list[Statement] = []
        size = self.size()
        for _ in range(rng.choice((1, 1, 2, 3))):
            found += self.phase(size, body, looks)
            size = self.size() if rng.random() < 0.7 else size
        made_by = (
            f"import numpy; from tests.programs.loop_programs import Turns; import lazyfuse as np\n"
            f"R0, R1 = Turns({self.seed}, {tuple(self.sizes)}).inputs().values()"
        )
        return TurnProgram(self.inputs, found, usual=rng.random() < 0.7, made_by=made_by)

    def size(self) -> str:
        m, n = self.rng.choice(self.sizes), self.rng.choice(self.sizes)
        return f"m, n, order = {max(m, 4)}, {max(n, 3)}, {self.rng.choice('CCCF')!r}"

    def phase(self, size: str, body: Sequence[str], looks: str) -> list[Statement]:
        """The body for some turns, on arrays made anew."""
        rng = self.rng
        found = [Statement(size), *map(Statement, HEADER)]
        if rng.random() < 0.3:
            found.append(Statement("X = np.asarray(X[::-1])"))
        turns = self.numbers(rng.choice((3, 5, 6, 8, 8, 14)))
        if rng.random() < 0.2:
            text = "\n".join([f"for k, s in {turns}:", *body]).replace("\n", "\n    ")
            return [*found, Statement(text)]
        for k, s in turns:
            found.append(Statement(f"k, s = {k}, {s}"))
            for text in body:
                look = looks == "all" or (looks == "some" and rng.random() < 0.2)
                look = look or (looks == "last" and text is body[-2])
                found.append(Statement(text, target(text), look))
        return found

    def numbers(self, count: int) -> list[tuple[int, Any]]:
        """What `k` and `s` are in each turn."""
        rng = self.rng
        way = rng.choice(("up", "same", "any", "two"))
        ks = {"up": range(count), "same": [1] * count, "two": [0, 2] * count}
        chosen = ks.get(way) or [rng.randrange(4) for _ in range(count)]
        numbers = [0.5, -1.25, 2.0, 0.1, 3.0, -0.0] if self.kind == "f" else [1, 2, 3, 5, 0]
        fixed = rng.random() < 0.3
        first = rng.choice(numbers)
        return [(k % 8, first if fixed else rng.choice(numbers)) for k in list(chosen)[:count]]


def target(text: str) -> str:
    """The name whose value shows what a statement did; "" if none does."""
    found = re.match(r"([a-zA-Z]\w*)( =|\[| \+=| -=| \*=)", text)
    if found and ";" not in text and found[1] not in ("np", "numpy"):
        return found[1]
    return ""


def drawn(rng: np.random.Generator, length: int, dtype: str) -> Any:
    """Small numbers of a dtype, now and then a special one among floats."""
    kind = np.dtype(dtype).kind
    if kind in "iu":
        return rng.integers(0 if kind == "u" else -6, 9, length).astype(dtype)
    found = np.round(rng.normal(0, 2, length), rng.integers(0, 6))
    if rng.random() < 0.2:
        odd = rng.choice([0.0, -0.0, np.inf, np.nan, 1e300, 0.5], length)
        found = np.where(rng.random(length) < 0.02, odd, found)
    with np.errstate(all="ignore"):
        if kind == "c":
            found = found + 1j * rng.permutation(found)
        return found.astype(dtype)
