"""Numbers go everywhere in random functions: what code of others gets is NumPy's own, by type and
value, and the functions raise what they raise with NumPy.

`campaign.py` says how many, and how to run more.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest

import lazyfuse
from tests import campaign, reached
from tests.campaign import rounds
from tests.numbers.number_programs import Numbers, Other, shown, text_of, tools
from tests.programs.compare import Difference, code_of, complain, failure

pytestmark = campaign.TIMEOUT


@dataclass
class Function:
    """A function whose every statement may be left out."""

    statements: list[str]
    arrays: tuple[Any, Any]

    def __str__(self) -> str:
        return f"\nA, B = {self.arrays!r}\n{text_of(self.statements)}"

    def run(self, module: Any) -> list[Any]:
        """What code of others got, and how the function ended."""
        seen: list[Any] = []

        def keep(*values: Any, **named: Any) -> Any:
            seen.append(shown((*values, *named.values())))
            return values[0] if len(values) == 1 else 3

        names: dict[str, Any] = {}
        random.seed(0)
        try:
            exec(code_of(text_of(self.statements)), names)
            own = [module.asarray(each.copy()) for each in self.arrays]
            ended = names["program"](module, *own, keep, Other(keep, own[1] + 1), tools())
            seen.append(shown(ended))
        except Exception as error:
            seen.append(type(error).__name__)
        seen.append(shown(names.get("shared")))
        return seen


def compare(function: Function) -> None:
    """Raise `Difference` where the two modules' numbers part."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want, got = function.run(numpy), function.run(lazyfuse)
    for at, (first, second) in enumerate(zip(want, got, strict=False)):
        if first != second:
            raise Difference(f"value {at}: NumPy {first}, lazyfuse {second}")
    if len(want) != len(got):
        raise Difference(f"NumPy {want}, lazyfuse {got}")


def check(seeds: Sequence[int]) -> None:
    """Random functions."""
    for seed in seeds:
        numbers = Numbers(seed)
        function = Function(numbers.lines(), numbers.arrays())
        with reached.program(seed):
            what = failure(function, compare)
        if what:
            complain(function, f"seed {seed}: {what}", compare)


@rounds(300)
@pytest.mark.parametrize("plan_after", [0, 3])
def test_numbers_that_leave_are_numpys(seeds: range, plan_after: int) -> None:
    with lazyfuse.options(eager_below=0, plan_after=plan_after):
        check(seeds)


PROGRAM = """\
import random, sys, warnings
import {module} as np
from tests.numbers.number_programs import Numbers, Other, shown, tools as make_tools
warnings.simplefilter("ignore")
def keep(*values, **named):
    print(shown((*values, *named.values())))
    return values[0] if len(values) == 1 else 3
"""
START = """\
print("seed {seed}")
random.seed(0)
A, B = (np.asarray(each) for each in Numbers({seed}).arrays())
other, tools = Other(keep, B + 1), make_tools()
lists, table, real = [], {{}}, tools.eager.copy()
objects, own = np.array([None, 1, 2], dtype=object), np.array([None, 1, 2], dtype=object)
n0 = n1 = n2 = n3 = 1
"""
END = """\
def later{seed}():
    return keep({name}), keep(abs({name})), np.float64(1) + {name}
try: keep(later{seed}())
except Exception as error: keep(type(error))
"""
_AT_ONCE = 50  # programs of one file


def script(module: str, seeds: Sequence[int]) -> str:
    """The statements of several programs in the text of one, whose names its functions read."""
    text = PROGRAM.format(module=module)
    for seed in seeds:
        lines = [line for line in Numbers(seed).lines()[:-1] if "global" not in line]
        text += START.format(seed=seed) + "try:\n"
        text += "".join(f"    {line}\n" for line in lines)
        text += "except Exception as error: print(type(error).__name__)\n"
        text += END.format(seed=seed, name=f"n{seed % 4}")
    return text


@rounds(100, 10**6)
def test_numbers_of_a_program(seeds: range, tmp_path: Path) -> None:
    variables = {"EAGER_BELOW": "0", "PLAN_AFTER": "0", "LAZY_NUMBERS": "off"}
    names = {f"LAZYFUSE_{name}": value for name, value in variables.items()}
    root = str(Path(__file__).parents[2])
    for first in range(0, len(seeds), _AT_ONCE):
        told = []
        for module in ("numpy", "lazyfuse"):
            file = tmp_path / f"{module}_program.py"
            file.write_text(script(module, seeds[first : first + _AT_ONCE]))
            run = subprocess.run(
                [sys.executable, str(file)], capture_output=True, text=True, check=False,
                env={**os.environ, **names, "PYTHONPATH": root},
            )  # fmt: skip
            assert run.returncode == 0, run.stderr[-2000:]
            told.append(run.stdout.split("seed ")[1:])
        for want, got in zip(*told, strict=True):
            assert got == want
