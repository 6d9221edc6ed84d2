"""Numbers go everywhere in random functions: what code of others gets is NumPy's own, by type and
value, and the functions raise what they raise with NumPy.

`campaign.py` says how many, and how to run more.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import pytest

import lazyfuse
from tests import campaign
from tests.campaign import rounds
from tests.programs.compare import Difference, code_of, complain, failure
from tests.programs.number_programs import Numbers, Other, text_of, tools

pytestmark = campaign.TIMEOUT


def shown(value: Any, depth: int = 0) -> Any:
    """What can be told of a value: its type first, then all that it holds."""
    kind = type(value)
    if kind in (numpy.ndarray, lazyfuse.ndarray):
        real = numpy.asarray(value)
        return "array", real.dtype, real.shape, [shown(each, depth) for each in real.ravel()]
    if kind in (list, tuple) or isinstance(value, tuple):
        return kind.__name__, [shown(each, depth + 1) for each in value]
    if kind is dict:
        return [(shown(k, depth + 1), shown(v, depth + 1)) for k, v in value.items()]
    if isinstance(value, Iterator):
        return [shown(each, depth + 1) for each in value] if depth < 3 else kind.__name__
    if isinstance(value, type):
        return value.__name__
    if kind.__repr__ is object.__repr__ or callable(value) or kind in (Other, Exception):
        return kind.__name__
    return kind.__name__, repr(value)


@dataclass
class Function:
    """A function whose every statement may be left out."""

    numbers: Numbers
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
        function = Function(numbers, numbers.lines(), numbers.arrays())
        what = failure(function, compare)
        if what:
            complain(function, f"seed {seed}: {what}", compare)


@rounds(300)
@pytest.mark.parametrize("plan_after", [0, None])
def test_numbers_that_leave_are_numpys(seeds: range, plan_after: int | None) -> None:
    planned = {} if plan_after is None else {"plan_after": plan_after}
    with lazyfuse.options(eager_below=0, **planned):
        check(seeds)
