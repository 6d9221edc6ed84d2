"""A report as a page: text, tables and bars, in one file without scripts.

`fragment` is what a notebook shows, `page` a whole file. Everything that comes from the user's
program is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lazyfuse.tools.report import Line, Report, Thread

MOST = 100
"""Lines shown per thread, the costliest first."""

_STYLE = """
.lazyfuse-report{font:14px/1.45 system-ui,sans-serif;color:inherit;max-width:1100px;padding:4px}
.lazyfuse-report h2{font-size:1.15em;margin:1.4em 0 .4em}
.lazyfuse-report p{margin:.3em 0}
.lazyfuse-report table{border-collapse:collapse;width:100%;font-size:13px;table-layout:auto}
.lazyfuse-report tr,.lazyfuse-report th,.lazyfuse-report td{background:none!important}
.lazyfuse-report th,.lazyfuse-report td{text-align:left!important;vertical-align:top;
padding:4px 10px 4px 0;border-bottom:1px solid rgba(128,128,128,.3)}
.lazyfuse-report th{opacity:.7;font-weight:600;white-space:nowrap}
.lazyfuse-report td.n{white-space:nowrap;font-variant-numeric:tabular-nums}
.lazyfuse-report th.n,.lazyfuse-report td.n{text-align:right!important}
.lazyfuse-report code{font:12px ui-monospace,monospace;color:inherit;background:none!important;
overflow-wrap:anywhere}
.lazyfuse-report .where{opacity:.7;font-size:12px}
.lazyfuse-report .advice{color:rgb(200,115,20);display:block;margin-top:2px}
.lazyfuse-report .bar{height:8px;width:110px;background:rgba(128,128,128,.25);border-radius:4px;
overflow:hidden;margin-top:6px}
.lazyfuse-report .bar i{display:block;height:100%;background:#2f6fb2}
.lazyfuse-report .rest .bar i{background:#a9b5c1}
.lazyfuse-report .total td{font-weight:600;border-bottom:none}
"""


def page(report: Report, counted: Iterable[tuple[str, str]]) -> str:
    """The report as a file. `counted`: all but the lines, as titles with texts."""
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    style = "body{margin:24px auto;max-width:1100px;color:#1c2733;background:#fff}"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}<title>lazyfuse report</title>'
        f"<style>{style}</style></head><body>\n<h1 style='font:600 22px system-ui'>"
        f"lazyfuse report</h1>\n{fragment(report, counted)}\n</body></html>\n"
    )


def fragment(report: Report, counted: Iterable[tuple[str, str]]) -> str:
    """The report as a part of a page."""
    parts = "".join(_parts(report, counted))
    return f'<div class="lazyfuse-report"><style>{_STYLE}</style>\n{parts}</div>'


def _parts(report: Report, counted: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield "<h2>Where did the time go, and what should I change?</h2>"
    if not report.measured:
        yield "<p>Lines were not measured. Set the option <code>report</code>, or run the program "
        yield "with <code>lazyfuse --report</code>.</p>"
    for thread in report.threads:
        yield from _thread(thread, report.seconds)
    yield "<h2>What ran where?</h2><table>"
    for title, text in counted:
        yield f"<tr><td>{escape(title)}</td><td>{escape(text)}</td></tr>"
    yield "</table>"


def _thread(thread: Thread, total: float) -> Iterator[str]:
    yield f"<p>{total:.3f} s of wall clock in {escape(thread.name)}</p><table>"
    yield (
        "<tr><th class='n'>share</th><th></th><th class='n'>time</th><th>line</th>"
        "<th>ran as</th><th class='n'>evaluations</th><th class='n'>memory moved</th></tr>"
    )
    for line in thread.lines[:MOST]:
        yield _line(line)
    rest = thread.lines[MOST:]
    if rest:
        yield _rest(sum(line.seconds for line in rest), total, f"{len(rest)} other lines")
    yield _rest(thread.elsewhere, total, thread.rest)
    yield (
        f"<tr class='total'><td class='n'>100.0 %</td><td></td><td class='n'>{total:.3f} s</td>"
        "<td colspan='4'>total</td></tr></table>"
    )


def _share(share: float, seconds: float) -> str:
    width = min(100.0, 100 * share)
    return (
        f"<td class='n'>{100 * share:.1f} %</td>"
        f"<td><div class='bar'><i style='width:{width:.1f}%'></i></div></td>"
        f"<td class='n'>{seconds:.3f} s</td>"
    )


def _rest(seconds: float, total: float, name: str) -> str:
    return f"<tr class='rest'>{_share(seconds / total, seconds)}<td colspan='4'>{name}</td></tr>"


def _line(line: Line) -> str:
    where = escape(f"{PurePath(line.file).name}:{line.line}")
    code = f"<code>{escape(line.code)}</code><br>" if line.code else ""
    told = f"<span class='advice'>{escape(line.advice)}</span>" if line.advice else ""
    moved = f"{line.bytes_moved / 1e6:.1f} MB" if line.bytes_moved else ""
    return (
        f"<tr>{_share(line.share, line.seconds)}<td>{code}"
        f"<span class='where' title='{escape(line.file)}'>{where}</span>{told}</td>"
        f"<td>{escape(line.how)}</td><td class='n'>{line.evaluations or ''}</td>"
        f"<td class='n'>{moved}</td></tr>\n"
    )
