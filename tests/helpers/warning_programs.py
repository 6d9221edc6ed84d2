"""Random programs that raise floating-point exceptions, under changing filters and error states.

A program is the text of a function `program(np, data, turn)` with a statement a line. Its arrays
hold zeros, infinities, NaN, and the largest and smallest numbers. What it gives is `told`: each
warning and each call of the error state's handler, with words and line, and the class of an
exception that ended it. `python -m tests.helpers.warning_programs JSON` runs seeds in a process
of their own.
"""

from __future__ import annotations

import collections
import importlib
import json
import random
import re
import sys
import types
import warnings
from typing import Any

import numpy

Told = list[tuple[str, str, int]]

TERMS = {
    "F": ["a", "b", "c", "a", "b", "c", "d", "a[::-1]", "W[0]"],
    "S": ["0.5", "2.0", "0.0", "1e300", "3", "-1.5", "1e-300"],
    "T": ["0.5", "2", "0.0", "1e30", "3", "1e38"],
    "G": ["f", "g", "f", "g", "f[::-1]"],
    "E": ["h", "k", "h[::-1]"],
    "I": ["i", "j", "i", "j", "i[::-1]"],
    "N": ["0", "3", "-1", "7"],
    "Z": ["z", "w", "z"],
}
EXPRESSIONS = {
    "F": [
        "(<F> + <F>)", "(<F> - <F>)", "(<F> * <F>)", "(<F> / <F>)", "(<F> * <S>)", "(<F> / <S>)",
        "(<S> / <F>)", "(<F> - <S>)", "np.sqrt(<F>)", "np.where(<M>, <F>, <F>)", "(<F> // <F>)",
        "(<F> % <S>)", "np.maximum(<F>, <F>)", "np.square(<F>)", "np.reciprocal(<F>)", "abs(<F>)",
        "np.exp(<F>)", "np.log(<F>)", "<G>.astype('f8')", "np.floor(<F>)", "np.power(<F>, <S>)",
        "(<F> - <F>.sum())", "(<F> / <F>.max())", "np.fmod(<F>, <F>)", "np.sin(<F>)",
        "np.nan_to_num(<F>)", "np.clip(<F>, -1.0, <S>)", "np.hypot(<F>, <F>)", "(<I> * <F>)",
        "np.arctan2(<F>, <F>)", "np.log1p(<F>)", "(<F> - <F>.mean())", "np.sign(<F>)",
        "W.sum(axis=0)", "(W * <S>).max(axis=0)", "np.stack([<F>, <F>]).min(axis=0)",
        "np.fmax(<F>, <F>)", "-<F>", "np.divide(<F>, <I>)", "np.add(<F>, <F>)", "<Z>.real",
    ],
    "M": ["(<F> > <F>)", "(<F> == <F>)", "(<F> < <S>)", "np.isnan(<F>)", "np.isfinite(<F>)"],
    "G": [
        "(<G> + <G>)", "(<G> * <G>)", "(<G> / <G>)", "(<G> * <T>)", "(<G> - <G>)", "np.sqrt(<G>)",
        "<F>.astype('f4')", "np.square(<G>)", "np.exp(<G>)", "(<G> / <T>)",
    ],
    "E": ["(<E> + <E>)", "(<E> * <E>)", "(<E> / <E>)", "(<E> * 2.0)", "<F>.astype('f2')",
          "(<E> + 1e6)", "np.sqrt(<E>)"],
    "I": ["(<I> + <I>)", "(<I> // <I>)", "(<I> % <I>)", "(<I> // <N>)", "(<I> * <N>)",
          "<F>.astype('i8')", "(<I> % <N>)", "np.remainder(<I>, <I>)"],
    "Z": ["(<Z> + <Z>)", "(<Z> * <Z>)", "(<Z> / <Z>)", "(<Z> * 2.0)", "(<Z> - <F>)"],
    "R": ["<F>.sum()", "<F>.mean()", "<F>.max()", "<G>.sum()", "<F>.min()", "<Z>.sum()",
          "(<F> * <F>).sum()", "<F>.std()", "<F>.var()", "<I>.sum()", "<F>.prod()",
          "np.nanmax(<F>)", "(<F> @ <F>)", "np.add.reduce(<F>)", "np.maximum.reduce(<F>)"],
}  # fmt: skip
STATEMENTS = {
    "F": ["a = <F>", "b = <F>", "c = <F>", "d = <F>", "a *= <S>", "b += <F>",
          "a /= <F>", "q *= <S>", "q = a[: n // 2]", "q = q / <S>", "u = q / 0", "c -= <F>",
          "b[::2] *= <S>",
          "np.multiply(a, <S>, out=a)", "W = np.stack([<F>, <F>])",
          "a = <F>; b = <F>", "a[<M>] = <S>", "q /= <S>", "c[1:-1] += c[2:] * <S>"],
    "G": ["f = <G>", "g = <G>", "f *= <T>", "g += <G>", "f /= <G>"],
    "E": ["h = <E>", "k = <E>", "h += <E>", "h *= <E>"],
    "I": ["i = <I>", "j = <I>", "i += <I>", "i //= <N>", "j %= <I>"],
    # no `z *= <Z>`: it overflows within some turns. NumPy contracts products of complex numbers,
    # kernels do not, so that a part is infinite in one and NaN in the other (docs/exactness.md:
    # inexact), and what follows warns of other things.
    "Z": ["z = <Z>", "w = <Z>", "z += <Z>", "z -= <Z>"],
    "R": ["r = <R>", "s = float(abs(<R>))", "a = a + <R>.real.astype('f8')"],
}  # fmt: skip
STATES = (
    "all='ignore'", "divide='ignore'", "invalid='ignore'", "over='ignore'",
    "divide='ignore', invalid='ignore'", "all='warn'", "under='ignore', over='warn'",
    "invalid='ignore', over='ignore'",
)  # fmt: skip
HANDLED = (
    "all='call', call=handle", "all='print'", "all='log', call=log", "divide='raise'",
    "over='print'", "invalid='call', call=handle", "under='warn'", "all='raise'",
)  # fmt: skip
FILTERS = (
    "simplefilter('ignore')", "simplefilter('always')", "simplefilter('default')",
    "filterwarnings('ignore', 'divide by zero')", "filterwarnings('ignore', '.*in multiply')",
    "filterwarnings('always', 'invalid')", "simplefilter('once')",
    "filterwarnings('ignore', category=RuntimeWarning)", "simplefilter('error')",
    "filterwarnings('error', 'overflow')", "simplefilter('module')",
)  # fmt: skip

_PYTHON = re.compile(r"\.(sum|mean|max|min|std|var|prod|stack)\(|nan")
"""What NumPy computes in lines of its own: its rule of once per line is then not the program's."""
_NAME = re.compile(r"(?:^|; )(\w) = ")
_ONCE = re.compile("default|once|module")
_CHANGES = re.compile(r"catch_warnings|filter(warnings)?\(")
_COMPLEX = re.compile(r"\b[zw]\b")
_OVERFLOW = "overflow encountered in multiply"
_HOLE = re.compile(r"<([A-Z])>")


class Program:
    """A random program: its text, its number of elements and the seed of its data."""

    def __init__(self, seed: int, structures: int = 0) -> None:
        rng = random.Random(seed // structures if structures else seed)
        self.n = rng.choice([40, *[3000] * 8, 40000])
        kinds = rng.choice(["FR", "FR", "FR", "FG", "FI", "FZ", "FE", "FGIZER"])
        self.statements = [self._statement(rng, kinds) for _ in range(rng.randint(3, 9))]
        self.seed = seed
        self.rng = random.Random(seed + 1)
        self.text = self._text()

    def _statement(self, rng: random.Random, kinds: str) -> str:
        text = rng.choice(STATEMENTS[rng.choice(kinds)])
        depth = rng.choice([0, 1, 1, 2, 3])
        while (hole := _HOLE.search(text)) is not None:
            kind = hole.group(1)
            room = kind in EXPRESSIONS and (kind not in TERMS or rng.random() < 0.3 * depth)
            depth -= room and rng.random() < 0.5
            made = rng.choice(EXPRESSIONS[kind] if room else TERMS[kind])
            text = f"{text[: hole.start()]}{made}{text[hole.end() :]}"
        return text

    def _text(self) -> str:
        rng = self.rng
        lines = ["def program(np, data, warnings, handle, log, turns, kept):"]
        lines.append(f"    n = {self.n}")
        lines.append("    a, b, c, d, f, g, h, k, i, j, z, w, W = data")
        half = "q = a[: n // 2]; q = q if rng_views else q.copy(); kept.append(q)"
        lines.append(f"    {half}; r = s = u = 0")
        whole = "\n".join(self.statements)
        filters = [each for each in FILTERS if not (_PYTHON.search(whole) and _ONCE.search(each))]
        first = filters[:2] if len(filters) < len(FILTERS) else FILTERS[:3]
        lines.append(f"    warnings.{rng.choice(first)}")
        lines.append("    for turn in turns:")
        for statement in self.statements:
            roll = rng.random()
            pad = "        "
            if roll < 0.25:
                lines.append(f"{pad}with np.errstate({rng.choice(STATES)}):")
                pad += "    "
            elif roll < 0.30:
                lines.append(f"{pad}with np.errstate({rng.choice(HANDLED)}):")
                pad += "    "
            elif roll < 0.40:
                lines.append(f"{pad}with warnings.catch_warnings():")
                pad += "    "
                lines.append(f"{pad}warnings.{rng.choice(filters)}")
            elif roll < 0.44:
                lines.append(f"{pad}warnings.{rng.choice(filters[:6])}")
            elif roll < 0.47:
                lines.append(f"{pad}np.seterr({rng.choice(STATES)})")
            lines.append(pad + statement)
            names = _NAME.findall(statement)  # what nobody looks at might never be computed
            lines += [f"        kept.append({name})" for name in names]
        if rng.random() < 0.5:
            lines.append("        float(a.sum()); float(c[0])")
        lines[5:] = [f"    {line}" for line in lines[5:]]
        lines.insert(5, "    try:")
        names = "a, b, c, d, f, g, h, k, i, j, z, w, W, q, r, s, u"
        lines += ["    finally:", f"        kept += [{names}]"]
        return "\n".join(lines) + "\n"

    def data(self, np: Any) -> list[Any]:
        """The arrays; equal for equal seeds."""
        rng = numpy.random.default_rng(self.seed)
        n = self.n
        special = numpy.array(
            [0.0, -0.0, numpy.inf, -numpy.inf, numpy.nan, 1e308, -1e308, 5e-324, 1e-300, 1e200]
        )

        def numbers() -> Any:
            made = rng.uniform(0.5, 2.0, n)
            share = rng.choice([0, 0, 1, 3, 8])
            some = rng.choice(special, rng.integers(1, 4))
            made[rng.integers(0, n, share)] = rng.choice(some, share)
            return made

        with numpy.errstate(all="ignore"):
            found = [numbers() for _ in range(4)]
            found += [numbers().astype("f4") for _ in range(2)]
            found += [numbers().astype("f2") for _ in range(2)]
            found += [rng.integers(rng.choice([0, 1]), 50, n) for _ in range(2)]
            found += [numbers() + 1j * numbers() for _ in range(2)]
            found += [numpy.stack([numbers(), numbers()])]
        return [np.array(each) for each in found]

    def agree(self, got: Told, expected: Told) -> bool:
        """Whether the same was told.

        What filters show once they show again after any change of filters. One may have passed
        before an operation that was recorded earlier is computed, or come between two operations
        of one line, of which one is told at once.
        """
        if self._contracted(expected):
            got, expected = ([t for t in told if "invalid" not in t[1]] for told in (got, expected))
        if not _ONCE.search(self.text):
            return got == expected
        more = collections.Counter(got) - collections.Counter(expected)
        changes = _CHANGES.search(self.text, self.text.index("for turn"))
        return set(got) == set(expected) and (not more or bool(changes))

    def _contracted(self, expected: Told) -> bool:
        """Whether a product of complex numbers has overflowed: see `STATEMENTS`."""
        lines = self.text.split("\n")
        over = {lines[number - 1] for _, words, number in expected if words == _OVERFLOW}
        return any(_COMPLEX.search(line) for line in over)

    def told(self, np: Any, turns: int) -> Told:
        """What is told while the program runs that many turns, and its values are looked at."""
        found: Told = []
        name = f"<program {self.seed}>"
        scope: dict[str, Any] = {"__name__": name, "rng_views": bool(self.seed % 2)}
        module = types.ModuleType(name)
        module.__file__ = name
        vars(module).update(scope)
        scope = vars(module)
        sys.modules[name] = module
        exec(compile(self.text, name, "exec"), scope)

        def line() -> int:
            frame: Any = sys._getframe(2)
            while frame is not None and frame.f_code.co_filename != name:
                frame = frame.f_back
            return frame.f_lineno if frame is not None else 0

        def handle(words: str, bits: int) -> None:
            found.append(("call", f"{words} {bits}", line()))

        class Log:
            @staticmethod
            def write(words: str) -> None:
                found.append(("log", words, line()))

        data = self.data(np)

        def show(words: Any, category: Any, file: str, number: int, *_: Any) -> None:
            if category is RuntimeWarning or "Complex" in category.__name__:
                found.append((category.__name__, str(words), number if file == name else line()))

        data, kept = self.data(np), list[Any]()
        before = np.geterr()
        with warnings.catch_warnings():
            warnings.showwarning = show
            try:
                scope["program"](np, data, warnings, handle, Log(), range(turns), kept)
            except (RuntimeWarning, FloatingPointError) as error:
                found.append((type(error).__name__, str(error), 0))
            finally:
                for each in (*kept, *data):
                    numpy.asarray(each)
                np.seterr(**before)
                del sys.modules[name]
        return sorted(found)


def differences(seeds: range, turns: list[int], structures: int = 0) -> dict[str, Any]:
    """Run each program by NumPy and by lazyfuse; what differs, and what has been reached."""
    np = importlib.import_module("lazyfuse")
    from lazyfuse.runtime.events import counters, decisions

    totals = counters.totals()
    found = []
    warned = lost = 0
    for seed in seeds:
        program = Program(seed, structures)
        for count in turns:
            expected = program.told(numpy, count)
            before = totals.decisions[decisions.LOST_OPERANDS]
            got = program.told(np, count)
            warned += bool(expected)
            if totals.decisions[decisions.LOST_OPERANDS] > before:  # names are guessed
                lost += got != expected
            elif not program.agree(got, expected):
                more = collections.Counter(got) - collections.Counter(expected)
                less = collections.Counter(expected) - collections.Counter(got)
                found.append((seed, count, str(dict(less)), str(dict(more))))
                break
    return {
        "found": found,
        "lost": lost,
        "warned": warned,
        "kernels": totals.kernels,
        "singles": totals.singles,
        "replays": {str(k): v for k, v in totals.decisions.items() if "replay" in str(k).lower()},
    }


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    seeds = range(asked["from"], asked["to"])
    print(json.dumps(differences(seeds, asked["turns"], asked.get("structures", 0))))
