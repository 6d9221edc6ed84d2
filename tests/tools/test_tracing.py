"""Events of real programs: what is told, when, in which order, and that nobody pays unasked.

Test names end with the feature rows that they show.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse.codegen.graph import interpret
from lazyfuse.devices.base import DeviceError
from lazyfuse.runtime.events import counters, decisions, tracing
from lazyfuse.runtime.events.tracing import (
    Compile,
    Copy,
    Event,
    Fallback,
    Flush,
    KernelBegin,
    KernelEnd,
    Plan,
    Record,
    Single,
    StageTimes,
    collect,
)
from lazyfuse.runtime.execution import executor
from lazyfuse.runtime.placement import devices, residency
from lazyfuse.runtime.scheduling import evaluate

N = 50_000


@pytest.fixture(autouse=True)
def _nobody_listens_afterwards() -> Iterator[None]:
    counters.reset()
    yield
    assert tracing.listeners == ()


def operands() -> tuple[Any, Any, Any]:
    """An array of NumPy's and two of ours."""
    real = numpy.random.default_rng(1).uniform(1, 2, N)
    return real, np.array(real), np.array(real + 1)


def line_of(function: Any, offset: int) -> int:
    return int(function.__code__.co_firstlineno) + offset


# ------------------------------------------------------------------------------ what is told


def test_recorded_operations_are_told_at_once_with_their_lines_A10_F8() -> None:
    _, a, b = operands()
    with collect(Record) as events:
        y = a * b
        assert len(events) == 1
        (y + 1.0).sum()
    assert [event.operation.name for event in events] == ["multiply", "add", "add.reduce"]
    first = events[0].operation
    assert (first.dtype, first.shape, first.file) == ("float64", (N,), __file__)
    assert first.function == "test_recorded_operations_are_told_at_once_with_their_lines_A10_F8"
    here = line_of(test_recorded_operations_are_told_at_once_with_their_lines_A10_F8, 3)
    assert [event.operation.line for event in events] == [here, here + 2, here + 2]


def test_kernels_tell_their_original_operations_and_stages_A8_A10_A7() -> None:
    real, a, b = operands()
    with collect(KernelBegin, KernelEnd) as events:
        found = (numpy.sqrt(a) * b - 1.0).to_numpy()
    numpy.testing.assert_array_equal(found, numpy.sqrt(real) * (real + 1) - 1.0)
    begin, end = events
    assert type(begin) is KernelBegin
    assert type(end) is KernelEnd
    for event in events:
        assert [each.name for each in event.operations] == ["sqrt", "multiply", "subtract"]
        assert {each.file for each in event.operations} == {__file__}
        assert event.stages == 3
        assert event.elements == N
        assert event.device == devices.current().traits.name
        assert event.cost > 3, "a square root costs more than an addition"
    assert begin.program == end.program
    assert begin.time <= end.time
    assert end.bytes_read == 2 * real.nbytes
    assert end.bytes_written == real.nbytes
    assert 0 <= end.seconds <= end.time


def test_flushes_tell_their_reason_and_size_F6() -> None:
    _, a, b = operands()
    with collect(Flush) as events:
        (a + b).to_numpy()
        float((a * b - a).sum())
    assert events[0].nodes >= 1
    assert events[-1].kernels == 1
    assert all(event.reason and event.code for event in events)
    for changes, rule in (({}, decisions.LOOP), ({"flush_nodes": 6}, decisions.NODES)):
        with np.options(**changes):
            (a + b).to_numpy()  # the limits are looked at anew
            with collect(Flush) as events:
                kept = [a + i for i in range(12)]
        assert events[0].reason == str(rule)
        assert events[0].code == rule.name
        assert len(kept) == 12


def test_plans_tell_passes_and_whether_they_were_found_C6() -> None:
    _, a, b = operands()
    evaluate.clear_plans()
    with collect(Plan) as events:
        for _ in range(2):
            (a / b + a * 2.0 - b).to_numpy()
    first, second = events
    assert not first.hit
    assert {"simplify", "dedupe", "cluster"} <= {name for name, _ in first.passes}
    assert first.seconds == pytest.approx(sum(seconds for _, seconds in first.passes))
    assert (first.kernels, first.recorded, first.planned) == (1, 4, 4)
    assert second.hit
    assert second.passes == ()


def compiles(a: Any, b: Any) -> tuple[Any, list[Any]]:
    evaluate.clear_plans()
    with collect(Compile) as events:
        value = (a * 5.0 - b / 3.0).to_numpy()
    return value, events


def test_programs_tell_where_they_were_found_and_why_they_had_to_be_built_C10(
    tmp_path: Path,
) -> None:
    real, a, b = operands()
    expected = real * 5.0 - (real + 1) / 3.0
    with np.options(cache_dir=str(tmp_path), cache=True, compile_after=0, device="cpu"):
        np.cache_clear()
        seen = []
        for again in ("new", "same", "cleared"):
            if again == "cleared":
                np.cache_clear()
            value, (event,) = compiles(a, b)
            numpy.testing.assert_array_equal(value, expected)
            assert event.language == "numba"
            assert event.device == "cpu"
            assert event.seconds > 0
            seen.append((event.found, bool(event.why)))
    assert seen == [("built", True), ("memory", False), ("disk", False)]
    text = str(np.report())
    assert "1 numba built: " in text
    assert "1 numba from memory" in text
    assert "1 numba from disk" in text
    assert "plans" in text


def test_operations_alone_are_told() -> None:
    _, a, _ = operands()
    with np.options(device="cpu"), collect(Single) as events:
        np.cumsum(a).to_numpy()
    assert [event.operation.name for event in events] == ["accumulate"]


def test_copies_are_told_and_counted_C8_D6() -> None:
    with collect(Copy) as events:
        counters.copied("upload", 800, "opencl:0", "operand of multiply")
        counters.copied("upload", 200, "opencl:0", "operand of multiply")
    assert [(event.direction, event.bytes) for event in events] == [
        ("upload", 800),
        ("upload", 200),
    ]
    key = ("upload", "opencl:0", "operand of multiply")
    assert (counters.totals().copies[key], counters.totals().copied[key]) == (2, 1000)
    assert "2 upload opencl:0, 0.0 MB: operand of multiply" in str(np.report())


def test_the_report_says_how_much_lies_where_C8_D6(monkeypatch: Any) -> None:
    there = SimpleNamespace(traits=SimpleNamespace(name="opencl:0"))
    resident = SimpleNamespace(device=there, array=numpy.empty(250_000))
    monkeypatch.setattr(residency, "residents", lambda: [resident, resident])
    assert "2 arrays on opencl:0, 4.0 MB" in str(np.report())


def refuse(*_: Any) -> Any:
    raise DeviceError("[compile] not today\nand more")


def test_fallbacks_tell_tiers_reason_and_operations_C12_D6(monkeypatch: Any) -> None:
    real, a, b = operands()
    evaluate.clear_plans()
    monkeypatch.setattr(counters, "compiled", refuse)
    with collect() as events:
        value = (a * 7.0 - b).to_numpy()
    numpy.testing.assert_array_equal(value, real * 7.0 - (real + 1))
    event = next(each for each in events if type(each) is Fallback)
    assert [each.name for each in event.operations] == ["multiply", "subtract"]
    assert event.reason.endswith("[compile] not today")
    assert event.to
    assert "not today" in str(np.report())


def test_the_order_of_events_is_the_order_of_work_A10() -> None:
    _, a, b = operands()
    evaluate.clear_plans()
    with collect() as events:
        (a * b + 3.0).to_numpy()
    kinds = [type(event) for event in events if type(event) is not Copy]
    assert kinds == [Record, Record, Plan, Flush, Compile, KernelBegin, KernelEnd]
    times = [event.time for event in events]
    assert times == sorted(times)
    assert {event.thread for event in events} == {threading.get_ident()}


def test_stage_times_are_made_on_request_only_A10() -> None:
    real, a, b = operands()
    with collect(stages=True) as events:
        x = a * b
        x += numpy.sqrt(real)  # in place: the stages must not see their own result
        value = (x - 1.0).to_numpy()
    numpy.testing.assert_array_equal(value, real * (real + 1) + numpy.sqrt(real) - 1.0)
    (stages,) = [event for event in events if type(event) is StageTimes]
    (end,) = [event for event in events if type(event) is KernelEnd]
    assert stages.operations == end.operations
    assert stages.program == end.program
    assert len(stages.seconds) == end.stages
    assert all(seconds > 0 for seconds in stages.seconds)
    with collect() as events:
        (a * b - 1.0).to_numpy()
    assert StageTimes not in [type(event) for event in events]


# -------------------------------------------------------------------------------- who listens


def test_nobody_pays_while_nobody_listens_F2(monkeypatch: Any) -> None:
    def unwanted(*_: Any, **__: Any) -> Any:
        raise AssertionError("an event was made for nobody")

    for name in ("emit", "recorded", "operation_of", "Watched"):
        monkeypatch.setattr(tracing, name, unwanted)
    monkeypatch.setattr(counters, "operation_of", unwanted)
    monkeypatch.setattr(Event, "__init__", unwanted)
    _, a, b = operands()
    evaluate.clear_plans()
    (a * b - np.exp(a)).to_numpy()
    np.cumsum(a).to_numpy()
    monkeypatch.setattr(counters, "compiled", refuse)
    evaluate.clear_plans()
    (a * b - np.exp(a)).to_numpy()
    counters.copied("upload", 1, "nowhere")


def test_listeners_come_and_go() -> None:
    _, a, b = operands()
    heard: list[Any] = []
    listener = np.tracing.add(heard.append, KernelEnd)
    with np.tracing(heard.append, KernelEnd) as second:
        (a * b - 1.0).to_numpy()
    assert len(heard) == 2
    (a * b - 2.0).to_numpy()
    assert len(heard) == 3
    listener.remove()
    listener.remove()
    second.remove()
    (a * b - 3.0).to_numpy()
    assert len(heard) == 3


def test_recording_costs_nothing_for_listeners_to_other_events_F2(monkeypatch: Any) -> None:
    _, a, b = operands()
    called: list[Any] = []
    monkeypatch.setattr(tracing, "recorded", called.append)
    with collect(KernelEnd):
        assert a + b is not None
    assert not called
    with collect():
        assert a + b is not None
    assert len(called) == 1


def test_limits_of_recorded_work_hold_while_somebody_listens_F6() -> None:
    _, a, _ = operands()
    counts = []
    for listening in (False, True):
        counters.reset()
        with np.options(flush_nodes=20):
            (a + 5.0).to_numpy()  # the limits are looked at anew
            listener = np.tracing(lambda event: None) if listening else None
            kept = [(a + 1.0, a - 1.0, a * 2.0, a / 2.0) for _ in range(6)]
            if listener:
                listener.remove()
        counts.append(dict(counters.totals().flushes))
        assert len(kept) == 6
    assert counts[0] == counts[1]
    assert counts[0][decisions.NODES] == 1


def test_a_callback_that_raises_is_dropped_and_nothing_is_lost() -> None:
    real, a, b = operands()
    heard: list[Any] = []

    def broken(event: Any) -> None:
        raise KeyError("mine")

    np.tracing.add(broken, KernelEnd)
    with np.tracing(heard.append, KernelEnd):
        with pytest.warns(RuntimeWarning, match=r"\[tracing\].*broken.*mine.*not called any more"):
            value = (a * b - 1.0).to_numpy()
        (a * b - 2.0).to_numpy()
    numpy.testing.assert_array_equal(value, real * (real + 1) - 1.0)
    assert len(heard) == 2


def test_a_failing_evaluation_still_tells_what_happened(monkeypatch: Any) -> None:
    _, a, b = operands()
    monkeypatch.setattr(executor.Run, "commit", lambda self, indices: 1 / 0)
    y = a * b - 4.0
    with (
        np.options(device="cpu"),
        collect(KernelBegin, KernelEnd) as events,
        pytest.raises(ZeroDivisionError),
    ):
        y.to_numpy()
    assert [type(event) for event in events] == [KernelBegin, KernelEnd]


def test_a_callback_may_compute_with_arrays() -> None:
    real, a, b = operands()
    y = a * b
    y += 1.0
    seen: list[float] = []

    def compute(event: Any) -> None:
        seen.append(float((y * 2.0).sum()))  # looks at what is being evaluated, and records

    with np.tracing(compute):
        value = y.to_numpy().copy()
        y -= 1.0
    numpy.testing.assert_array_equal(value, real * (real + 1) + 1.0)
    numpy.testing.assert_array_equal(y.to_numpy(), real * (real + 1) + 1.0 - 1.0)
    assert len(seen) >= 3


def test_threads_tell_their_own_events_and_no_lock_is_held_F12() -> None:
    _, a, b = operands()
    told: list[tuple[int, int]] = []

    def callback(event: Any) -> None:
        if threading.current_thread() not in threads:
            return
        told.append((event.thread, threading.get_ident()))
        other = threading.Thread(target=lambda: (a - b).to_numpy())
        other.start()  # would wait for ever if the evaluation still held its lock
        other.join(20)
        assert not other.is_alive()

    def work() -> None:
        for i in range(3):
            (a * b - float(i)).to_numpy()

    threads = [threading.Thread(target=work) for _ in range(3)]
    with np.tracing(callback, Flush):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(told) == 9
    assert all(event == caller for event, caller in told)


# --------------------------------------------------------------------------------- timelines


PROGRAM = """
    import numpy as np
    x = np.arange(60000.0)
    print((x * 2.0 + 1.0).sum())
"""


def test_a_program_leaves_a_timeline_F9_A10(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    target = tmp_path / "trace.json"
    for arguments in (["--trace", str(target)], [f"--trace={target}", "--report"]):
        target.unlink(missing_ok=True)
        command = [sys.executable, "-W", "error", "-m", "lazyfuse", *arguments, "program.py"]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert result.returncode == 0, result.stderr
        assert result.stdout == "3600000000.0\n"
        rows = json.loads(target.read_text())["traceEvents"]
        assert {"Record", "Plan", "Flush", "Compile", "KernelEnd"} <= {row["cat"] for row in rows}
        check_timeline(rows)
    (kernel,) = [row for row in rows if row["cat"] == "KernelEnd"]
    assert "program.py:4" in kernel["args"]["operations"][0]
    assert kernel["name"] == "multiply add add.reduce"
    assert "launched on" in result.stderr


LONGEST_NAME = 60


def check_timeline(rows: list[dict[str, Any]]) -> None:
    """What Perfetto wants, and what keeps a timeline legible."""
    named = [row for row in rows if row["ph"] == "M"]
    assert rows[: len(named)] == named
    assert {row["name"] for row in named} == {"process_name", "thread_name"}
    threads = {row["tid"] for row in named if row["name"] == "thread_name"}
    rest = rows[len(named) :]
    for row in rest:
        assert row["ph"] in "Xisf"
        assert isinstance(row["ts"], float)
        assert row["ts"] >= 0
        assert ("dur" in row) == (row["ph"] == "X")
        assert isinstance(row["pid"], int)
        assert row["tid"] in threads
        assert 0 < len(row["name"]) <= LONGEST_NAME
        assert row["name"] != "KernelBegin"
    times = [row["ts"] for row in rest]
    assert times == sorted(times)
    begun = {row["id"]: row for row in rest if row["ph"] == "s"}
    ended = {row["id"]: row for row in rest if row["ph"] == "f"}
    assert begun.keys() == ended.keys()
    assert len(begun) + len(ended) == sum(row["ph"] in "sf" for row in rest), "one of each"
    bars = [row for row in rest if row["ph"] == "X"]
    for number, end in ended.items():
        assert begun[number]["ts"] <= end["ts"]
        for flow, kind in ((begun[number], "Record"), (end, "KernelEnd")):
            assert any(
                bar["cat"] == kind and bar["ts"] == flow["ts"] and bar["tid"] == flow["tid"]
                for bar in bars
            )
    for thread in threads:  # bars of one thread lie in each other or apart
        open_until: list[float] = []
        for bar in sorted(
            (bar for bar in bars if bar["tid"] == thread), key=lambda bar: (bar["ts"], -bar["dur"])
        ):
            while open_until and open_until[-1] <= bar["ts"] + 0.01:
                open_until.pop()
            assert not open_until or bar["ts"] + bar["dur"] <= open_until[-1] + 0.01
            open_until.append(bar["ts"] + bar["dur"])


def test_threads_and_flows_of_a_timeline(tmp_path: Path) -> None:
    _, a, b = operands()

    def work() -> None:
        for _ in range(3):
            c = a * b
            d = np.sqrt(c)
            (c - d).to_numpy()

    with tracing.chrome(tmp_path / "trace.json"):
        thread = threading.Thread(target=work, name="second")
        thread.start()
        thread.join()
        work()
    rows = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    check_timeline(rows)
    names = {row["args"]["name"] for row in rows if row["name"] == "thread_name"}
    assert names == {threading.current_thread().name, "second"}
    kernels = [row for row in rows if row["cat"] == "KernelEnd"]
    flows = [row for row in rows if row["ph"] == "f"]
    assert len(kernels) == 6
    assert len(flows) == 18, "each kernel's operations were recorded at three lines"
    assert not [row for row in rows if row["cat"] == "Plan" and row["args"]["hit"]]


def test_a_timeline_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("print('ran')")
    for arguments in (["--trace", "no/where.json", "program.py"], ["--trace"]):
        command = [sys.executable, "-m", "lazyfuse", *arguments]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert result.returncode == 2
        assert result.stdout == ""
    with pytest.raises(OSError, match="where"), tracing.chrome(tmp_path / "no" / "where.json"):
        raise AssertionError("entered")


def test_every_event_fits_into_a_timeline(tmp_path: Path) -> None:
    _, a, b = operands()
    with np.options(device="cpu"), tracing.chrome(tmp_path / "trace.json", stages=True):
        (a * b - np.sqrt(a)).to_numpy()
        np.cumsum(a).to_numpy()
        counters.copied("gather", 8, "opencl:0")
        counters.fell_back([], "lost", "opencl:0", "cpu")
    rows = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {"StageTimes", "Single", "Copy", "Fallback"} <= {row["cat"] for row in rows}
    copy = next(row for row in rows if row["cat"] == "Copy")
    assert copy["ph"] == "i"


# ------------------------------------------------------------------------------------- errors


def failing_on(name: str) -> Any:
    real = interpret.run_node

    def run_node(op: Any, *rest: Any) -> Any:
        if op.name == name:
            raise ValueError("no such value")
        return real(op, *rest)

    return run_node


def test_errors_name_stage_and_operation_also_after_a_fallback_A11(monkeypatch: Any) -> None:
    _, a, b = operands()
    evaluate.clear_plans()
    y = a * b
    y = np.sqrt(y)
    y = y - 1.0
    with monkeypatch.context() as patch:
        patch.setattr(counters, "compiled", refuse)
        patch.setattr(interpret, "run_node", failing_on("sqrt"))
        with pytest.raises(ValueError, match="no such") as caught:
            y.to_numpy()
    line = line_of(test_errors_name_stage_and_operation_also_after_a_fallback_A11, 4)
    notes = caught.value.__notes__
    assert notes[0].startswith(f'[sqrt] recorded in File "{__file__}", line {line}, in test_errors')
    assert notes[1] == "[sqrt] fused stage: multiply -> sqrt -> subtract"
    assert len(notes) == 2
    numpy.testing.assert_array_equal(y.to_numpy(), numpy.sqrt(a.to_numpy() * b.to_numpy()) - 1.0)
