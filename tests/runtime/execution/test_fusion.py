"""Fusion as a user sees it: how many kernels, what is in them, and what the results are.

Test names end with the feature rows that they show.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.execution import executor
from lazyfuse.runtime.scheduling import evaluate, flush

N = 50_000


@pytest.fixture(autouse=True)
def _fresh() -> None:
    counters.reset()


def pair(shape: Any = N) -> tuple[Any, Any]:
    """Two recorded arrays and their NumPy twins are one call away."""
    rng = numpy.random.default_rng(1)
    return rng.uniform(1, 2, shape), rng.uniform(1, 2, shape)


def test_sin_x_times_x_plus_b_is_one_kernel_E1_U3() -> None:
    x, b = pair()
    lx, lb = np.array(x), np.array(b)
    y = np.sin(lx) * lx + lb
    assert len(np.explain(y).kernels) == 1
    numpy.testing.assert_allclose(y.to_numpy(), numpy.sin(x) * x + b, rtol=1e-14)
    assert counters.totals().kernels == 1


def test_ten_chained_operations_are_one_kernel_A2_A5() -> None:
    x, b = pair()
    lx, lb = np.array(x), np.array(b)

    def chain(u: Any, v: Any) -> Any:
        return ((((u + v) * 2.0 - v) / 3.0 + u) * u - 1.0) * 0.5 + v * v

    y = chain(lx, lb)
    why = np.explain(y)
    assert len(why.kernels) == 1
    assert len(why.kernels[0].operations) >= 10
    assert why.kernels[0].bytes_read == x.nbytes + b.nbytes
    assert why.kernels[0].bytes_written == x.nbytes
    assert why.kernels[0].bytes_unfused > 5 * x.nbytes
    numpy.testing.assert_array_equal(y.to_numpy(), chain(x, b))


def test_a_map_goes_into_its_reduction_in_one_pass_U3() -> None:
    a, b = pair()
    la, lb = np.array(a), np.array(b)
    m = ((la - lb) ** 2).mean()
    why = np.explain(m)
    assert len(why.kernels) == 1
    assert why.kernels[0].bytes_written <= 8
    assert float(m) == ((a - b) ** 2).mean()


@pytest.mark.parametrize(
    "name", ["sum", "prod", "min", "max", "any", "all", "mean", "var", "std", "argmin", "argmax"]
)
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_reductions_fuse_with_their_producer_C3(name: str, axis: int | None) -> None:
    a, b = pair((220, 301))
    la, lb = np.array(a), np.array(b)
    found = getattr((la * lb - 1.0) / 2.0, name)(axis=axis)
    expected = getattr((a * b - 1.0) / 2.0, name)(axis=axis)
    numpy.testing.assert_allclose(numpy.asarray(found), expected, rtol=1e-12)


def test_several_outputs_share_a_kernel_A12() -> None:
    a, b = pair()
    la, lb = np.array(a), np.array(b)
    total, difference = la + lb, la - lb
    product = total * difference
    assert len(np.explain(product).kernels) == 1
    product.to_numpy()
    assert counters.totals().kernels == 1, "held values are outputs of the same kernel"
    difference.to_numpy()
    assert counters.totals().kernels == 1, "what a kernel has stored is not computed again"
    numpy.testing.assert_array_equal(difference.to_numpy(), a - b)


def test_branches_are_selects_inside_the_kernel_A12() -> None:
    a, b = pair()
    la, lb = np.array(a), np.array(b)
    y = np.where(la > lb, la - lb, 0.0) + np.clip(la, 1.2, 1.7)
    assert len(np.explain(y).kernels) == 1
    numpy.testing.assert_array_equal(
        y.to_numpy(), numpy.where(a > b, a - b, 0.0) + numpy.clip(a, 1.2, 1.7)
    )


def test_equal_expressions_are_computed_once_B5() -> None:
    a, _ = pair()
    la = np.array(a)
    why = np.explain(np.exp(la) * 2.0 + np.exp(la) * 3.0)
    names = [operation.name for operation in why.kernels[0].operations]
    assert names.count("exp") == 1


def test_a_kernel_knows_the_lines_of_its_operations_A8_F8() -> None:
    a, b = pair()
    y = np.array(a) + np.array(b)
    y = y * 2.0
    operations = np.explain(y).kernels[0].operations
    assert {operation.file for operation in operations} == {__file__}
    assert operations[1].line == operations[0].line + 1
    assert operations[0].function == "test_a_kernel_knows_the_lines_of_its_operations_A8_F8"


def test_fusion_can_be_switched_off_and_limited_A9() -> None:
    a, b = pair()
    la, lb = np.array(a), np.array(b)
    expected = (a + b) * a - b
    for changes, kernels in (({"fusion": False}, 3), ({"fusion_max_length": 2}, 2)):
        with np.options(**changes):
            y = (la + lb) * la - lb
            why = np.explain(y)
            assert len(why.kernels) == kernels
            assert why.refusals
            numpy.testing.assert_array_equal(y.to_numpy(), expected)


def test_constants_are_arguments_and_structures_are_planned_once_B1_C6_A3() -> None:
    before = evaluate.plan_cache_info()["plan misses"]
    for size in (40_000, 50_000, 60_000):
        for factor in (0.5, 1.5, 2.5):
            x = numpy.linspace(0, 1, size)
            y = (np.array(x) * factor + 1.0).to_numpy()
            numpy.testing.assert_array_equal(y, x * factor + 1.0)
    assert evaluate.plan_cache_info()["plan misses"] <= before + 1


def test_shape_mismatch_and_refusals_are_explained_C2() -> None:
    a, b = pair((200, 300))
    la, lb = np.array(a), np.array(b)
    y = la - lb.sum(axis=0)
    why = str(np.explain(y))
    assert "reads the result of a reduction" in why or len(np.explain(y).kernels) == 2
    numpy.testing.assert_array_equal(y.to_numpy(), a - b.sum(axis=0))


def test_explain_runs_nothing_and_gives_the_source_D1() -> None:
    a, b = pair()
    y = np.array(a) * np.array(b)
    why = np.explain(y)
    assert counters.totals().kernels == 0
    assert "def " in why.kernels[0].source("numba")
    assert "multiply" in why.kernels[0].source("numpy")
    assert "multiply" in str(why)


def test_programs_that_never_look_never_evaluate_U1_U2(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import lazyfuse as np
        import numpy
        x = np.array(numpy.linspace(0, 1, 100_000))
        b = np.array(numpy.linspace(1, 2, 100_000))
        y = np.sin(x) * x + b
        m = ((x - b) ** 2).mean()
        z = y - m
        z[1:] += z[:-1]
        w = np.where(z > 0, z, -z).reshape(100, 1000).T[::2] + 1
        s = w.sum(axis=0).max() + m
        assert w.shape == (500, 100) and s.dtype == "f8"
        try:
            float(s)
        except Exception as error:
            print(type(error).__name__, "switched off" in str(error))
        """
    )
    script = tmp_path / "lazy.py"
    script.write_text(program)
    done = subprocess.run(
        [sys.executable, script],
        env={"LAZYFUSE_DEVICE": "raise", "PATH": "", "LAZYFUSE_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "EvaluationError True", done.stderr


def test_a_failing_kernel_falls_back_with_its_state_intact_E2(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from lazyfuse.devices.base import DeviceError

    a, b = pair()
    la, lb = np.array(a), np.array(b)

    def fail(*_: Any) -> int:
        raise DeviceError("injected")

    monkeypatch.setattr(executor.Run, "launch", fail)
    y = la * lb
    y[5:10] = 1.0
    expected = a * b
    expected[5:10] = 1.0
    numpy.testing.assert_array_equal(y.to_numpy(), expected)
    assert any("injected" in why for why in counters.totals().fallbacks)


def test_an_output_takes_the_buffer_of_an_input_that_nobody_reads_again_E3() -> None:
    a, _ = pair()
    x = np.array(a) * 2.0
    address = x.to_numpy().__array_interface__["data"][0]
    x = np.array(a) * 2.0
    x += 1.0
    x.to_numpy()
    for _ in range(3):
        x += 1.0
        x.to_numpy()
    assert address
    numpy.testing.assert_array_equal(x.to_numpy(), a * 2.0 + 1.0 + 1.0 + 1.0 + 1.0)


def test_errors_while_evaluating_name_the_line_and_the_stage_F8(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, b = pair()
    y = np.array(a) * np.array(b) + 1.0
    line = sys._getframe().f_lineno - 1

    def fail(*_: Any) -> int:
        raise MemoryError("injected")

    with monkeypatch.context() as patch:
        patch.setattr(executor.Run, "launch", fail)
        with pytest.raises(MemoryError, match="injected") as caught:
            y.to_numpy()
    notes = "\n".join(caught.value.__notes__)
    assert f'File "{__file__}", line {line}' in notes
    assert "multiply -> add" in notes
    numpy.testing.assert_array_equal(y.to_numpy(), a * b + 1.0)


def test_warnings_name_the_line_that_recorded_the_operation_F8() -> None:
    x = np.array(numpy.zeros(N))
    y = 1.0 / x
    with pytest.warns(RuntimeWarning, match="divide by zero encountered in divide") as caught:
        y.to_numpy()
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("name", "platforms"),
    [
        ("opencl:none", ""),  # no such device
        ("opencl", ""),  # PoCL aborts the process where there is no linker: a child finds that out
        ("opencl", "/nowhere"),  # no platform
    ],
)
def test_a_refused_device_costs_a_line_in_the_report_and_nothing_else_C12(
    tmp_path: Path, name: str, platforms: str
) -> None:
    program = (
        "import lazyfuse as np; print((np.ones(50_000) + 1.0).sum()); "
        "print([name for name in np.cache_info() if '.' not in name]); "
        "print('device opencl' in str(np.report())); np.cache_clear()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={
            "LAZYFUSE_DEVICE": name,
            "PATH": "",
            "LAZYFUSE_CACHE_DIR": str(tmp_path),
            "OCL_ICD_VENDORS": platforms,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split("\n")[:3] == [
        "100000.0",
        "['plans', 'tables', 'programs', 'buffers']",
        "True",
    ], done.stderr


def test_kernels_that_were_parted_for_their_length_stay_parted() -> None:
    a = numpy.random.default_rng(7).uniform(1, 2, 40_000)
    with np.options(flush_nodes=0, flush_bytes=0), pytest.MonkeyPatch.context() as patch:
        patch.setattr(flush, "WORTH_A_LAUNCH", 1 << 62)
        evaluate.clear_plans()
        counters.reset()
        x, expected = np.array(a), a
        for _ in range(600):
            x, expected = x + 1.0, expected + 1.0
        numpy.testing.assert_array_equal(x.to_numpy(), expected)
    assert counters.totals().kernels == 3
