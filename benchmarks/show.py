"""The results as a table: rich where it is installed, plain text elsewhere."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.libraries import OURS
from benchmarks.measure import Row

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def seconds(value: float) -> str:
    """A time with a unit that suits it."""
    for unit, name in _UNITS:
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return "-"


def power(size: int) -> str:
    """A size as 1e4, or in digits where that would not be exact; 0 stands for programs' own."""
    if not size:
        return "own"
    text = f"{size:.0e}".replace("e+0", "e")
    return text if float(text) == size else str(size)


def megabytes(value: int | None) -> str:
    """A size in MB."""
    return "-" if value is None else f"{value / 1e6:.0f}"


def means(rows: Iterable[Row]) -> dict[tuple[int, str], tuple[float, int, int]]:
    """By size (0: programs at their own) and library: geometric mean of the ratios, cases slower
    than NumPy, cases.
    """
    ratios: dict[tuple[int, str], list[float]] = {}
    for row in rows:
        if row.ratio and row.library != "numpy":
            ratios.setdefault((0 if row.own else row.size, row.library), []).append(row.ratio)
    return {
        key: (
            math.exp(sum(map(math.log, values)) / len(values)),
            sum(value < 1.0 for value in values),
            len(values),
        )
        for key, values in ratios.items()
    }


Line = tuple[str, ...]


def lines(rows: Sequence[Row]) -> list[Line]:
    """The table: a header, a line per case and size, and the geometric means per size."""
    libraries = [name for name in dict.fromkeys(row.library for row in rows) if name != "numpy"]
    header = ("case", "n", "numpy", *libraries, "first call", "peak MB")
    found: dict[tuple[str, int], dict[str, Row]] = {}
    for row in rows:
        found.setdefault((row.case, row.size), {})[row.library] = row
    body = [_case_line(case, size, found[case, size], libraries) for case, size in found]
    sizes = sorted({0 if row.own else row.size for row in rows}, key=lambda size: size or math.inf)
    summary = means(rows)
    return [header, *body, *(_mean_line(size, summary, libraries) for size in sizes)]


def _case_line(case: str, size: int, rows: dict[str, Row], libraries: Sequence[str]) -> Line:
    """Ratios per library; first call and memory as NumPy's > those of our columns."""
    numpy = rows["numpy"]
    shown = [numpy, *(rows[name] for name in libraries if name.startswith(OURS) and name in rows)]
    ratios = [_ratio(rows.get(name)) for name in libraries]
    first = " > ".join(seconds(row.first) for row in shown)
    measured = any(row.peak is not None for row in shown)
    peak = " > ".join(megabytes(row.peak) for row in shown) if measured else ""
    return (case, power(size), seconds(numpy.steady), *ratios, first, peak)


def _ratio(row: Row | None) -> str:
    if row is None:
        return ""
    return "failed" if row.error else f"{row.ratio:.2g}"


def _mean_line(
    size: int, summary: dict[tuple[int, str], tuple[float, int, int]], libraries: Sequence[str]
) -> Line:
    cells = []
    for name in libraries:
        mean, slower, count = summary.get((size, name), (0.0, 0, 0))
        cells.append(f"{mean:.2f} {slower}/{count}" if count else "")
    return ("geometric mean", power(size), "", *cells, "", "")


def table(rows: Sequence[Row]) -> None:
    """Print everything: ratios above 1 are faster than NumPy; means say how many are slower."""
    header, *body = lines(rows)
    if importlib.util.find_spec("rich") is None:
        _print_plain([header, *body])
    else:
        width = sum(max(map(len, column)) + 3 for column in zip(header, *body, strict=True)) + 1
        importlib.import_module("rich.console").Console(width=width).print(_rich(header, body))
    for row in rows:
        if row.error:
            error = next(iter(row.error.splitlines()), "")[:120]
            print(f"{row.case} {power(row.size)} {row.library}: {error}")


def _print_plain(table_lines: Sequence[Line]) -> None:
    widths = [max(map(len, column)) for column in zip(*table_lines, strict=True)]
    for line in table_lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)))


def _rich(header: Line, body: Sequence[Line]) -> Any:
    result = importlib.import_module("rich.table").Table(title="times NumPy's speed")
    for name in header:
        result.add_column(name, justify="left" if name == "case" else "right", no_wrap=True)
    last = ""
    for line in body:
        if line[0] != last:
            result.add_section()
        last = line[0]
        result.add_row(*line[:3], *(_coloured(cell) for cell in line[3:-2]), *line[-2:])
    return result


def _coloured(cell: str) -> str:
    """Green where faster than NumPy, red where slower."""
    number = cell.partition(" ")[0]
    if number in ("", "failed"):
        return cell
    return f"[{'green' if float(number) >= 1.0 else 'red'}]{cell}[/]"
