"""The report: lines that add up to the wall clock, advice, and the same data in every form."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy
import pytest

import lazyfuse as np
from lazyfuse.arrays import base
from lazyfuse.runtime.events import counters, numpy_calls, spans
from lazyfuse.tools import report
from lazyfuse.tools.report import Line, Report

N = 60_000
needs_c = pytest.mark.skipif(not base.COMPILED, reason="native/graph/spans.c measures operators")


@pytest.fixture(autouse=True)
def _measured() -> Iterator[None]:
    with np.options(report=True):
        counters.reset()
        numpy_calls.clear_counts()
        yield
    counters.reset()
    numpy_calls.clear_counts()


def lines_of(found: Report, name: str = __file__) -> list[Line]:
    return [
        line for each in found.threads if each.is_main for line in each.lines if line.file == name
    ]


def line_with(found: Report, code: str) -> Line:
    (line,) = [line for line in lines_of(found) if code in line.code]
    return line


def check_sums(found: Report) -> None:
    """Lines and the rest make up the wall clock of each thread."""
    for thread in found.threads:
        assert thread.elsewhere >= 0
        total = sum(line.seconds for line in thread.lines) + thread.elsewhere
        assert total == pytest.approx(found.seconds, rel=1e-6)
        for line in thread.lines:
            assert line.seconds >= 0
            assert line.share == pytest.approx(line.seconds / found.seconds)


# ---------------------------------------------------------------------------------- where the time


def test_lines_and_the_rest_are_the_wall_clock() -> None:
    began = time.perf_counter()
    counters.reset()
    a = np.linspace(0.0, 1.0, N)
    for turn in range(30):
        b = a * 2.0 + float(turn)
        c = np.sqrt(b) - a
        float(c.sum())
    found = np.report()
    assert 0 < found.seconds <= time.perf_counter() - began
    check_sums(found)
    for code in ("b = a * 2.0 +", "c = np.sqrt(b) - a", "float(c.sum())"):
        line = line_with(found, code)
        assert line.evaluations == 30
        assert line.seconds > 0
        assert line.tiers
    assert line_with(found, "float(c.sum())").kernels == 30
    assert line_with(found, "float(c.sum())").bytes_moved >= 30 * 8 * N
    assert line_with(found, "float(c.sum())").looks == {"gather": 30}


@needs_c
def test_replays_are_measured_as_first_runs_are(at_home: None) -> None:
    a = np.linspace(0.0, 1.0, N)
    for _ in range(40):
        (a * 3.0 - 1.0).to_numpy()
    found = np.report()
    assert any(name.startswith("replay") for name in found.decisions), "lines change no decision"
    line = line_with(found, "(a * 3.0 - 1.0).to_numpy()")
    assert line.evaluations == line.kernels == sum(line.tiers.values()) == 40
    assert line.bytes_moved == 40 * 2 * 8 * N
    check_sums(found)


def test_each_thread_has_its_lines() -> None:
    a = np.linspace(0.0, 1.0, N)

    def work() -> None:
        for _ in range(5):
            np.exp(a).to_numpy()

    thread = threading.Thread(target=work, name="second")
    thread.start()
    thread.join()
    float((a + 1.0).sum())
    found = np.report()
    check_sums(found)
    names = {each.name: each for each in found.threads}
    assert names[threading.main_thread().name].is_main
    (line,) = [line for line in names["second"].lines if line.evaluations]
    assert line.code == "np.exp(a).to_numpy()"
    assert line.evaluations == 5
    assert "of second, by line" in str(found)


def test_a_span_leaves_out_the_spans_in_it() -> None:
    outer = spans.begin()
    inner = spans.begin()
    time.sleep(0.02)
    own = spans.end(inner)
    spans.skip(0.001)
    rest = spans.end(outer)
    assert own >= 0.02
    assert 0 <= rest < own


def test_nothing_is_measured_unasked() -> None:
    with np.options(report=False):
        counters.reset()
        float(np.exp(np.linspace(0.0, 1.0, N) * 2.0).sum())
        found = np.report()
    assert not found.measured
    assert found.threads == ()
    assert found.kernels == 1
    assert report.NOT_MEASURED in str(found)


def test_a_reset_begins_anew() -> None:
    a = np.linspace(0.0, 1.0, N)
    float(np.exp(a * 2.0).sum())
    first = np.report(reset=True)
    second = np.report()
    assert first.kernels == 1
    assert second.kernels == 0
    assert second.seconds < first.seconds + 60
    assert not lines_of(second)


# ---------------------------------------------------------------------------------- what to change


@needs_c
def test_element_reads_in_a_loop_are_told() -> None:
    a = np.linspace(0.0, 1.0, 1000)
    total = 0.0
    for i in range(1000):
        total += a[i]
    line = line_with(np.report(), "total += a[i]")
    assert line.at_once == {"element reads": 1000}
    assert line.how == "at once"
    assert line.advice.startswith("runs at once: element reads in a loop")


@needs_c
def test_operations_on_small_arrays_are_told_and_raise_as_before() -> None:
    x = np.arange(10.0)
    for _ in range(1000):
        x = x * 0.5
    line = line_with(np.report(), "x = x * 0.5")
    assert line.at_once["operations"] == 1000
    assert line.advice.startswith("runs at once: operations on small arrays")
    with pytest.raises(ValueError, match="broadcast"):
        x + np.arange(3.0)
    with pytest.raises(IndexError):
        x[10]
    assert (x < 1.0).all()
    assert (2 ** np.arange(3.0)).tolist() == [1.0, 2.0, 4.0]


def test_functions_that_numpy_runs_are_told() -> None:
    mask = np.linspace(0.0, 1.0, 500_000) > 0.5
    assert mask.any()
    np.packbits(mask)
    line = line_with(np.report(), "np.packbits")
    assert line.advice == "falls back to NumPy: `np.packbits`"


def counts(**given: Any) -> spans.LineCounts:
    found = spans.LineCounts(seconds=1.0)
    for name, value in given.items():
        setattr(found, name, value)
    return found


def test_advice_is_about_the_greatest_cost() -> None:
    said = report.advice
    assert said(counts(), []) == ""
    assert "waits for the compiler" in said(counts(waited=0.4, compiled=0.3), [])
    assert said(counts(waited=0.4), ["pad"]) == "falls back to NumPy: `np.pad`"
    snapshot = counts(copied=counters.Counter({"snapshot": 3_000_000}))
    assert said(snapshot, []) == "copied because other code holds the memory: 3.0 MB"
    upload = counts(copied=counters.Counter({"upload opencl:0": 2_000_000}))
    assert said(upload, []) == "copied (upload opencl:0): 2.0 MB"
    looks = counts(looks=counters.Counter({"gather": 500}))
    assert said(looks, []).startswith("looks at a value 500 times")
    loop = counts(looks=counters.Counter({"loop": 500}))
    assert said(loop, []) == ""


# ------------------------------------------------------------------------------------- the forms


class Page(HTMLParser):
    """What a page refers to, and whether its tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        assert not {"src", "href", "onclick"} & {name for name, _ in attrs}
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_text_json_and_page_hold_the_same() -> None:
    a = np.linspace(0.0, 1.0, N)
    assert float(np.where(a < 2, a, 3.0).sum()) > 0
    found = np.report()
    data = json.loads(found.to_json())
    assert data == found.to_dict() | {
        key: json.loads(json.dumps(found.to_dict()[key])) for key in found.to_dict()
    }
    assert data["threads"][0]["lines"][0]["file"] == found.threads[0].lines[0].file
    page = Page()
    page.feed(found.to_html())
    assert page.open == []
    assert not {"script", "link", "img", "iframe"} & page.tags
    assert "float(np.where(a < 2, a, 3.0).sum())" in page.text
    assert f"{found.seconds:.3f} s" in page.text
    assert "http" not in found.to_html()
    assert found._repr_html_() in found.to_html()
    assert repr(found) == str(found)
    shares = [float(each) for each in re.findall(r"([\d.]+) % ", str(found))]
    assert sum(shares) == pytest.approx(100, abs=0.1 * len(shares))


PROGRAM = """
    import numpy as np
    a = np.linspace(0.0, 1.0, 60_000)
    for i in range(3):
        print((a * 2.0 + i).sum())
"""


def launch(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(textwrap.dedent(PROGRAM))
    command = [sys.executable, "-W", "error", "-m", "lazyfuse", *arguments, "program.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)


def test_the_launcher_writes_each_form(tmp_path: Path) -> None:
    result = launch(tmp_path, "--report=json", "--report=out.html", "--report=out.txt")
    assert result.returncode == 0, result.stderr
    data = json.loads(result.stderr)
    (main,) = data["threads"]
    places = {Path(line["file"]).name: line for line in main["lines"]}
    assert "program.py" in places
    seconds = sum(line["seconds"] for line in main["lines"]) + main["elsewhere"]
    assert seconds == pytest.approx(data["seconds"], rel=1e-6)
    assert (tmp_path / "out.html").read_text().startswith("<!DOCTYPE html>")
    assert "wall clock" in (tmp_path / "out.txt").read_text()


def test_reports_that_cannot_be_written_are_refused_at_the_start(tmp_path: Path) -> None:
    for to, why in (("out.pdf", ".html, .json, .txt"), ("no/out.html", "can't write"), ("", "")):
        result = launch(tmp_path, f"--report={to}")
        assert result.returncode == (2 if why else 0)
        assert bool(result.stdout) == (not why)
        assert why in result.stderr


# --------------------------------------------------------------------------------------- the log


def test_what_lazyfuse_tells_goes_to_its_logger(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    a = np.linspace(0.0, 1.0, N)
    with caplog.at_level(logging.DEBUG, logger="lazyfuse"):
        (a * 2.0 - 7.0).to_numpy()
        counters.fell_back([], "lost", "opencl:0", "cpu")
    told = [(each.name, each.levelname, each.getMessage()) for each in caplog.records]
    assert any(text.startswith("evaluate ") for _, _, text in told)
    assert ("lazyfuse", "INFO", "fallback: : lost") in told
    assert capsys.readouterr().err == ""
    assert any(type(each) is logging.NullHandler for each in logging.getLogger("lazyfuse").handlers)
    caplog.clear()
    with np.options(debug=1):
        (a * 2.0 - 8.0).to_numpy()
    assert capsys.readouterr().err.startswith("lazyfuse: evaluate ")
    assert not caplog.records, "the logger's level is WARNING"


def test_lazyfuse_imports_no_logging() -> None:
    program = (
        "import sys, numpy; before = 'logging' in sys.modules; import lazyfuse as np;"
        "np.linspace(0, 1, 60000).sum().item(); import logging;"
        "print(before or logging.getLogger('lazyfuse').handlers)"
    )
    command = [sys.executable, "-W", "error", "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() in ("True", "[]")


def test_numbers_are_the_same_while_lines_are_measured() -> None:
    real = numpy.linspace(0.0, 1.0, 100)
    with np.options(report=False):
        a = np.array(real)
        plain = (a * 2.0 + a**2 - a / 3.0)[3:50].copy()
    a = np.array(real)
    timed = (a * 2.0 + a**2 - a / 3.0)[3:50].copy()
    a[0] = 5.0
    a += 1
    assert a[0] == 6.0
    assert plain.tobytes() == timed.tobytes()
