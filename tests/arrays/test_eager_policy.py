"""Each question about what NumPy does at once is answered with the rule that decides, or with None.

That the answers are right is shown by the tests of operators, updates and writes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy
import pytest

import lazyfuse as np
from lazyfuse import config
from lazyfuse.arrays import eager_policy
from lazyfuse.arrays.ndarray import ndarray
from lazyfuse.codegen.table.ops import TABLE
from lazyfuse.runtime.events import decisions

ADD = TABLE["add"]


@pytest.fixture(autouse=True)
def _limits() -> Iterator[None]:
    with config.options(eager_below=100, device="cpu"):
        yield


def recorded(count: int) -> ndarray:
    """An array on a storage, its values there."""
    x = np.array(numpy.arange(float(count)))
    x[:]
    return x


def test_operations_on_real_operands() -> None:
    few, many, column = numpy.zeros(9), numpy.zeros(200), numpy.zeros((30, 1))
    ask = eager_policy.operation_on_values
    assert ask(few, 2.0) is ask(few, few) is ask(few, column[:3]) is decisions.SMALL
    assert ask(many, many) is None
    assert ask(few, column) is None
    assert ask(many.astype("O"), many) is decisions.UNRECORDED_DTYPE
    assert ask(few, many) is decisions.FAILS
    small, pending = np.array(few), np.array(many) + 1.0
    assert eager_policy.elementwise([small, small]) is decisions.SMALL
    assert eager_policy.elementwise([small, pending]) is None
    assert eager_policy.elementwise([small, np.zeros(5)]) is decisions.FAILS


def test_the_error_state_and_exported_memory() -> None:
    x = recorded(200)
    assert eager_policy.operation(ADD, x, 1.0) is None
    with np.errstate(over="raise"):
        assert eager_policy.operation(ADD, x, 1.0) is decisions.ERROR_STATE
    held = numpy.asarray(x)
    assert eager_policy.operation(ADD, x, 1.0) is decisions.EXPORTED
    assert eager_policy.update(ADD, x, 1.0) is decisions.EXPORTED_TARGET
    assert eager_policy.write_to((x,)) is decisions.EXPORTED_TARGET
    with config.options(exported_at_once=False):
        assert eager_policy.operation(ADD, x, 1.0) is None
    del held
    assert eager_policy.write_to((x,)) is None


def test_updates_and_writes() -> None:
    block, large = recorded(700), recorded(900)
    assert eager_policy.update(ADD, block, recorded(700)) is decisions.MIDDLING_BLOCK
    assert eager_policy.update(ADD, large, recorded(900)) is None
    assert eager_policy.update(ADD, block[:9], 1.0) is decisions.VALUES_THERE
    assert eager_policy.assignment(block, numpy.empty(9), 1.0) is decisions.SMALL_WRITE
    assert eager_policy.assignment(block, numpy.empty(200), 1.0) is None
    reader = block * 2.0
    assert eager_policy.update(ADD, block, recorded(700)) is None
    assert eager_policy.assignment(block, numpy.empty(9), 1.0) is None
    del reader
    numbers = np.zeros(300, complex)
    numbers[:9] = 1.0
    assert eager_policy.update(ADD, numbers.real, 1.0) is decisions.PART_OF_NUMBER
