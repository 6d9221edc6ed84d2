"""The judge of `python -m benchmarks --peers`: what it measures, and what it says of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from benchmarks import __main__ as program
from benchmarks import children, device, judge, measure, probe, show
from benchmarks.case import CASES
from benchmarks.cases.examples import load
from benchmarks.judge import Record
from benchmarks.libraries import Library, of_numpy
from benchmarks.measure import Budget, Row
from benchmarks.peers import examples
from benchmarks.peers.examples_in_jax import REWRITTEN
from benchmarks.peers.examples_in_numexpr import EXAMPLES
from lazyfuse import config


def ours(case: str, size: int, ratio: float, **fields: Any) -> list[Row]:
    """Rows of NumPy and lazyfuse, NumPy taking a second."""
    return [
        Row(case, size, "numpy", steady=1.0, ratio=1.0, **fields),
        Row(case, size, "lazyfuse", steady=1.0 / ratio, ratio=ratio, **fields),
    ]


def peer(case: str, size: int, library: str, seconds: float) -> Row:
    return Row(case, size, library, steady=seconds, ratio=1.0 / seconds)


def test_cases_of_numpy_are_judged_beside_numpy() -> None:
    record = Record(rows=[*ours("a", 10**6, 2.0), *ours("b", 10**7, 0.5), *ours("c", 100, 0.1)])
    verdict = judge.faster_than_numpy(record)
    assert verdict.met is False
    assert verdict.missed == ["b 1e7: 0.50 times NumPy"]
    assert str(verdict).startswith("MISSED n >= 1e6")


def test_the_best_peer_of_each_case_counts() -> None:
    rows = [*ours("a", 10**6, 4.0), peer("a", 10**6, "jax.jit", 0.5)]
    rows += [peer("a", 10**6, "numexpr", 1.0), peer("a", 10**6, "numba.par", 0.01)]
    record = Record(rows=rows)
    assert judge.best_peer(record).met is True
    assert judge.best_peer(record).figure.startswith("2.00 over 1 cases (0.04 beside numba loops")
    assert judge.faster_than_peers(record).met is True
    rows[1].steady = 0.75
    assert judge.best_peer(record).met is False
    assert judge.faster_than_peers(record).missed == ["a 1e6: jax.jit is 1.50 times faster"]


def test_a_peer_that_failed_is_not_beaten() -> None:
    failed = peer("a", 10**6, "jax.jit", 0.1)
    failed.error = "TypeError: no"
    assert judge.best_peer(Record(rows=[*ours("a", 10**6, 2.0), failed])).met is None


def test_small_sizes_have_the_limit_of_their_record_path() -> None:
    rows = [*ours("a", 10, 0.5), *ours("a", 1000, 0.8)]
    pure = Record({"record_path": "pure Python"}, rows)
    compiled = Record({"record_path": "compiled (3 modules)"}, rows)
    assert judge.small_sizes(pure).met is True
    assert judge.small_sizes(compiled).missed == [
        "a 1e1: 0.50 times NumPy",
        "a 1e3: 0.80 times NumPy",
    ]
    assert judge.small_mean(pure).figure == "0.63 (1e1 0.50, 1e3 0.80)"


def test_bandwidth_is_a_share_of_copying() -> None:
    rows = ours("a", 10**6, 2.0, moved=8 * 10**6)
    about = {"copy_by_size": {10**6: 16e6}}
    assert judge.bandwidth(Record(about, rows)).met is True
    figure = "at 1e6 1 of 1, mean 100% of 0.0 GB/s"
    assert judge.bandwidth(Record(about, rows)).figure == figure
    about = {"copy_by_size": {10**6: 32e6}}
    assert judge.bandwidth(Record(about, rows)).missed == ["a 1e6: 50%"]


def test_first_calls_and_memory() -> None:
    cold = {"first": 0.3, "second": 0.1, "import": 0.07}
    first = {"case": "a", "cold": cold, "behind": 0.2, "compiled_warm": 1}
    first["warm"] = {"programs": {"numba": True}}
    record = Record(first=[first])
    assert judge.first_cold(record).missed == ["a: 200 ms behind"]
    assert judge.first_warm(record).missed == ["a: 1 programs compiled, numba imported"]
    peaks = {"peak": 90 << 20, "again": 0, "outputs": 8 << 20}
    found = {"lazyfuse": peaks, "above": 5 << 20, "beyond_results": 82 << 20}
    record.memory = [{"case": name, **found} for name in ("00_add", "30_heat")]
    assert judge.peak_memory(record).missed[0] == "00_add: 94 MB, 5 more than NumPy"
    assert judge.chain_memory(record).missed == ["00_add: 86 MB more"]  # heat is no chain


def test_what_was_not_measured_is_not_judged() -> None:
    assert [goal(Record()).met for goal in judge.GOALS] == [None] * len(judge.GOALS)


def test_faults_of_results() -> None:
    case = CASES["00_add"]
    good = {"digests": ["x"], "alike": True, "same": True, "worst": 0.0}
    found = {way: {"cases": {"00_add 10": dict(good)}} for way in children.WAYS}
    assert children._compared(case, 10, found)["faults"] == []
    found["one thread"]["cases"]["00_add 10"] |= {"digests": ["y"], "same": False, "worst": 1e-9}
    faults = children._compared(case, 10, found)["faults"]
    assert faults == [
        "one thread: not NumPy's bits, off by 1e-09",
        "bits depend on threads, tier or cache",
    ]
    del found["warm"]["cases"]["00_add 10"]
    assert "warm: no result" in children._compared(case, 10, found)["faults"]


def test_distances_see_dtypes_nans_and_bits() -> None:
    one, other = numpy.array([1.0, numpy.nan]), numpy.array([1.0 + 1e-15, numpy.nan])
    assert probe._distance((one,), (one.copy(),)) == {"alike": True, "same": True, "worst": 0.0}
    found = probe._distance((other,), (one,))
    assert not found["same"]
    assert 0.0 < found["worst"] < 1e-14
    assert not probe._distance((one.astype("f4"),), (one,))["alike"]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_probes_answer_in_processes_of_their_own(tmp_path: Path) -> None:
    job = {"case": "00_add", "size": 40_000, "library": "lazyfuse"}
    found = children.run(job | {"kind": "first"}, str(tmp_path))
    assert found["first"] > 0.0
    assert found["programs"]["numba"] is False or found["programs"]["built"] > 0
    found = children.run(job | {"kind": "memory"}, str(tmp_path))
    assert found["outputs"] == 320_000
    assert "error" in children.run({"kind": "first", "case": "no such case"}, str(tmp_path))


def test_equal_results_of_a_small_case(tmp_path: Path) -> None:
    cases = [["10_mask_assign", 40_000], ["03_expsinlog", 500]]
    found = probe.bits({"cases": cases, "calls": 2})["cases"]
    assert found["10_mask_assign 40000"]["same"] is True
    assert len(set(found["10_mask_assign 40000"]["digests"])) == 1
    assert found["03_expsinlog 500"]["alike"] is True


def test_slow_libraries_have_a_budget() -> None:
    def hang(*_: Any) -> Any:
        while True:
            pass

    slow = Library("slow", "1", lambda case: hang, slow=True)
    budget = Budget(total=1.3, call=1.2)
    rows = measure.measure(CASES["00_add"], 10, [of_numpy(), slow], 0.0, budget, memory=False)
    assert rows[1].error == "TimeoutError: the first call took more than 1 s"
    rows = measure.measure(CASES["00_add"], 10, [of_numpy(), slow], 0.0, budget, memory=False)
    assert "spent its" in rows[1].error


def test_programs_have_their_own_size() -> None:
    own = CASES["36_floyd_warshall"]
    assert program.sizes_of(own, "10,100") == [own.ordinary]
    assert program.sizes_of(CASES["00_add"], "1e1,1e2") == [10, 100]
    assert [show.power(size) for size in (0, 512, 10_000)] == ["own", "512", "1e4"]


def test_the_record_is_written_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "record.json"
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--parts", "small"])
    options = program.arguments(
        ["--parts", "small", "--cases", "00", "--sizes", "10", "--json", str(target)]
    )
    program.run_judge(options)
    record = json.loads(target.read_text())
    assert [row["library"] for row in record["rows"]] == ["numpy", "lazyfuse"]
    assert record["machine"]["record_path"] in ("pure Python", judge.machine.record_path())
    assert {"first", "memory", "equal", "verdicts", "command"} <= set(record)
    assert "geometric mean" in capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name in sorted(CASES) if name[:2] in ("30", "35", "37")])
def test_programs_compute_what_numpy_does(name: str) -> None:
    case = CASES[name]
    size = SimpleNamespace(**{"30_heat": 200, "35_lu": 40}).__dict__.get(name, 220)
    found = probe.bits({"cases": [[name, size]], "calls": 2})["cases"][f"{name} {size}"]
    assert found["same"] is case.exact


def test_functions_of_ported_examples_exist() -> None:
    for script, names in examples.CORES.items():
        module = load(script)
        tables = (REWRITTEN.get(script, {}), EXAMPLES.get(script, {}))
        for name in (*names, *(each for table in tables for each in table)):
            assert callable(getattr(module, name)), (script, name)


def test_a_ported_example_is_the_script_with_other_functions() -> None:
    case = CASES["example_game_of_life"]
    asked = []

    def generation(board: Any) -> Any:
        asked.append(board.shape)
        return module.generation(board)

    module = load("game_of_life")
    run = examples.ported(case, {"generation": generation})
    assert run is not None
    assert run(32).tolist() == case.run(numpy, 32).tolist()
    assert (32, 32) in asked
    assert examples.ported(case, {}) is None
    assert examples.name_of(CASES["00_add"]) == ""


def test_a_device_has_figures_and_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    monkeypatch.setattr(device, "COPIED", 1 << 20)
    with config.options(device="opencl"):
        figures = device._bandwidths(device._open("opencl"))
        (row,) = measure.measure(CASES["00_add"], 100_000, [device._staying("opencl")], 0.001)
    assert figures["launch_seconds"] > 0
    assert figures["map_bytes_per_second"] > 0
    assert row.error == ""
    assert row.steady > 0
