"""`python -m benchmarks.loops`: its programs, how results are compared, variants of texts."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy
import pytest

from benchmarks.loops import child, everyday, turns, variants
from benchmarks.loops.everyday import Found

TEXT = """
import numpy as np

def kernel(A, n):
    total = 0.0
    for i in range(n):
        for j in range(n):
            total += A[i, j]
    return np.sqrt(total)
"""


def described(*values: object) -> list[object]:
    return [child.described(each) for each in values]


def test_programs_are_where_the_table_of_their_file_says() -> None:
    names = everyday.chosen("")
    assert len(names) > 40
    for name in names:
        path, size = everyday.sizes()[name]
        body = ast.parse(path.read_text()).body
        assert name in {each.name for each in body if isinstance(each, ast.FunctionDef)}
        assert size > 0
    assert "sieve" in everyday.chosen("texts,sieve")
    assert "primes" not in everyday.chosen("texts,sieve")


def test_results_are_compared_with_types_and_bits() -> None:
    one = numpy.array([1.0, numpy.nan])
    assert turns.compared(described(one, 2), described(one.copy(), 2)) == ""
    assert turns.compared(described(one), described(one + 1e-12)) == "close"
    assert turns.compared(described(one), described(one + 1)).startswith("WRONG")
    assert turns.compared(described(2), described(numpy.int64(2))).startswith("WRONG")
    assert turns.compared(described(2), described(3)).startswith("WRONG")
    assert turns.compared(described(one, 2), described(one)).startswith("WRONG")


def test_variants_compute_what_they_should(tmp_path: Path) -> None:
    found = []
    for k, text in enumerate((TEXT, variants.other_names(TEXT), variants.another_if(TEXT))):
        path = tmp_path / f"program{k}.py"
        path.write_text(text)
        found.append(child.loaded(str(path))["kernel"](numpy.ones((5, 5)), 5))
    assert found == [5.0] * 3
    assert "my_total" in variants.other_names(TEXT)
    assert "np.sqrt" in variants.other_names(TEXT)
    assert variants.another_if(TEXT).count("if j % 3 == 1") == 1
    assert "if i" not in variants.another_if(TEXT)


def test_other_dtypes() -> None:
    for given, wanted in (("f8", "f4"), ("i4", "i8"), ("u1", "i8"), ("i8", "i4"), ("f4", "f4")):
        assert child.other_dtype(numpy.zeros(3, given)).dtype == numpy.dtype(wanted)
    assert child.other_dtype(3.0) == 3.0


@pytest.mark.parametrize(
    "stays", ["", "line 3: Python has to do line 4 in every turn (a function)"]
)
def test_why_loops_stay_is_told(stays: str) -> None:
    loop = turns.Loop("", 3, "for i in x:", 10, 5.0, 0, 0.0, 0, stays)
    row = Found("sieve", [1.0], [1.0], [1.0], [1.0], loops=[loop])
    assert ("a function" if stays else "no reason is given") in everyday.reasons([row])
    unseen = Found("sieve", [1.0], [1.0], [1.0], [1.0])
    assert everyday.reasons([unseen]).startswith("1 x no loop tells why")
    assert "below 0.95: 0" in everyday.summary([unseen])


def test_a_child_answers(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("def twice(n):\n    return 2 * n, [n]\n")
    job = {"file": str(tmp_path / "program.py"), "function": "twice", "size": 4}
    with turns.children(job, ["python"], str(tmp_path)) as (each,):
        assert len(each.ask("call 2")) == 2
        assert each.results() == described(8, 4)
        assert each.loops() == []
