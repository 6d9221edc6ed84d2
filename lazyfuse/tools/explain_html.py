"""Draws the boxes of a plan as SVG: what is read stands above who reads it.

Colours are the page's own (`currentColor`) and translucent ones, so that the picture is readable on
light and dark pages. It needs no script, no server and no font of its own.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from html import escape

from lazyfuse.devices.dataclass import dataclass
from lazyfuse.tools.explain_boxes import ALONE, ARRAY, KERNEL, RESULT, Box
from lazyfuse.tools.notebook_names import in_cells

MOST = 80
"""Boxes of a picture; one with more says less than the text does."""

_LOOKS = {
    ARRAY: ("128,128,128", "array that is there"),
    KERNEL: ("66,133,244", "kernel"),
    ALONE: ("230,140,20", "operation alone"),
    RESULT: ("52,168,83", "result"),
}
"""The colour of each kind of box, and what the legend calls it."""

_LETTER, _LINE, _PAD, _GAP, _RISE = 6.7, 15.0, 9.0, 22.0, 36.0  # pixels
_WIDEST = 44  # letters of a line
_BEND = 8.0  # the width that an arrow takes in a row that it passes
_LEGEND = 30.0
_SWEEPS = 4


@dataclass
class _Place:
    """A box in its row; without lines, the bend of an arrow that passes the row."""

    row: int
    lines: list[str]
    width: float = _BEND
    height: float = 0.0
    x: float = 0.0  # of the middle
    y: float = 0.0  # of the upper edge


def page(head: str, boxes: Sequence[Box], text: str) -> str:
    """A sentence, the picture, and the whole text folded up."""
    parts = [f'<div style="margin:4px 0">{escape(head)}</div>']
    if len(boxes) > MOST:
        parts.append(f"<div>{len(boxes)} boxes are too many for a picture.</div>")
    elif boxes:
        parts.append(svg(boxes))
    if text:
        words = escape(in_cells(text))
        parts.append(f"<details><summary>in words</summary><pre>{words}</pre></details>")
    return "".join(parts)


def svg(boxes: Sequence[Box]) -> str:
    """The picture of boxes; those that a box reads come before it."""
    places, paths = _placed(boxes)
    rows = [[p for p in places if p.row == row] for row in range(max(p.row for p in places) + 1)]
    _spread(rows, places, paths)
    kinds = [kind for kind in _LOOKS if any(box.kind == kind for box in boxes)]
    legend, least = _legend(kinds)
    width, height = _stack(rows, places)
    width = max(width, least)
    drawn = [_arrow([places[number] for number in path]) for path in paths]
    drawn += [_box(box, place) for box, place in zip(boxes, places, strict=False)]
    drawn.append(f'<g transform="translate(0,{height:.0f})">{legend}</g>')
    height += _LEGEND
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        'style="max-width:100%;height:auto;color:inherit" font-size="11" '
        f'font-family="ui-monospace,Menlo,Consolas,monospace">{"".join(drawn)}</svg>'
    )


def _placed(boxes: Sequence[Box]) -> tuple[list[_Place], list[list[int]]]:
    """The boxes in rows, then the bends of long arrows; and for each arrow its places."""
    rows: list[int] = []
    for box in boxes:
        rows.append(max((rows[number] + 1 for number in box.reads), default=0))
    for number, box in enumerate(boxes):  # an operand stands just above its reader
        readers = [rows[at] for at, other in enumerate(boxes) if number in other.reads]
        if not box.reads and readers:
            rows[number] = min(readers) - 1
    places = []
    for box, row in zip(boxes, rows, strict=True):
        lines = [part for line in (box.title, *box.lines) for part in _wrapped(line)]
        width = max([len(line) for line in lines]) * _LETTER + 2 * _PAD
        places.append(_Place(row, lines, width, len(lines) * _LINE + _PAD))
    paths = []
    for number, box in enumerate(boxes):
        for source in box.reads:
            bends = range(rows[source] + 1, rows[number])
            paths.append([source, *range(len(places), len(places) + len(bends)), number])
            places += [_Place(row, []) for row in bends]
    return places, paths


def _wrapped(line: str) -> list[str]:
    found = textwrap.wrap(line, _WIDEST)
    return found if len(found) < 4 else [*found[:3], f"{found[3][: _WIDEST - 2]} …"]


def _spread(rows: list[list[_Place]], places: list[_Place], paths: list[list[int]]) -> None:
    """Give every place its x: near its neighbours, without meeting others of its row."""
    near: dict[int, list[_Place]] = {id(place): [] for place in places}
    for path in paths:
        for first, second in itertools.pairwise(path):
            near[id(places[first])].append(places[second])
            near[id(places[second])].append(places[first])
    for row in rows:
        _set_apart(row, [0.0] * len(row))
    for sweep in range(_SWEEPS):
        ordered = rows if sweep % 2 == 0 else rows[::-1]
        step = -1 if sweep % 2 == 0 else 1
        for row in ordered:
            wanted = {id(place): _middle(place, near[id(place)], step) for place in row}
            row.sort(key=lambda place: wanted[id(place)])
            _set_apart(row, [wanted[id(place)] for place in row])


def _middle(place: _Place, near: list[_Place], step: int) -> float:
    """Where a place wants to be: in the middle of its neighbours on one side."""
    found = [other.x for other in near if (other.row - place.row) * step > 0]
    return sum(found) / len(found) if found else place.x


def _set_apart(row: list[_Place], wanted: list[float]) -> None:
    """Put the places of a row in order, as near to what they want as their widths let them."""
    edge = -float("inf")
    for place, x in zip(row, wanted, strict=True):
        place.x = max(x, edge + place.width / 2)
        edge = place.x + place.width / 2 + _GAP
    shift = sum([x - place.x for place, x in zip(row, wanted, strict=True)]) / max(len(row), 1)
    for place in row:
        place.x += shift


def _stack(rows: list[list[_Place]], places: list[_Place]) -> tuple[float, float]:
    """Give every place its y, and begin at x = 0; width and height of all."""
    left = min([place.x - place.width / 2 for place in places]) - 2
    top = 2.0
    for row in rows:
        height = max([place.height for place in row], default=0.0)
        for place in row:
            if not place.lines:
                place.height = height  # an arrow passes between boxes, not over their corners
            place.x -= left
            place.y = top + (height - place.height) / 2
        top += height + _RISE
    return max([place.x + place.width / 2 for place in places]) + 2, top - _RISE + 8


def _box(box: Box, place: _Place) -> str:
    colour = _LOOKS[box.kind][0]
    left, top = place.x - place.width / 2, place.y
    texts = []
    for number, line in enumerate(place.lines):
        weight = ' font-weight="bold"' if number == 0 else ""
        y = top + _PAD / 2 + _LINE * (number + 1) - 4
        texts.append(
            f'<text x="{place.x:.1f}" y="{y:.1f}" text-anchor="middle" '
            f'fill="currentColor"{weight}>{escape(line)}</text>'
        )
    told = escape("\n".join([box.title, *box.lines]))
    return (
        f'<g class="{box.kind}"><title>{told}</title><rect x="{left:.1f}" y="{top:.1f}" rx="6" '
        f'width="{place.width:.1f}" height="{place.height:.1f}" fill="rgba({colour},0.16)" '
        f'stroke="rgb({colour})"/>{"".join(texts)}</g>'
    )


def _arrow(path: list[_Place]) -> str:
    """A curve from a box down to its reader, with a point at its end."""
    first, last = path[0], path[-1]
    x, y = first.x, first.y + first.height
    line = f"M{x:.1f},{y:.1f}"
    for place in path[1:]:
        end = place.y - (5 if place is last else 0)
        half = (y + end) / 2
        line += f"C{x:.1f},{half:.1f} {place.x:.1f},{half:.1f} {place.x:.1f},{end:.1f}"
        x, y = place.x, end
        if not place.lines:
            y += place.height
            line += f"V{y:.1f}"
    point = f"M{x - 4:.1f},{y:.1f}h8l-4,5z"
    return (
        f'<path d="{line}" fill="none" stroke="currentColor" stroke-opacity="0.55"/>'
        f'<path d="{point}" fill="currentColor" fill-opacity="0.55"/>'
    )


def _legend(kinds: Sequence[str]) -> tuple[str, float]:
    """What the colours mean, and the width that this takes."""
    parts, x = [], 4.0
    for kind in kinds:
        colour, words = _LOOKS[kind]
        parts.append(
            f'<rect x="{x:.0f}" y="10" width="12" height="12" rx="3" fill="rgba({colour},0.16)" '
            f'stroke="rgb({colour})"/><text x="{x + 18:.0f}" y="20" fill="currentColor" '
            f'fill-opacity="0.8">{words}</text>'
        )
        x += 18 + len(words) * _LETTER + 18
    return "".join(parts), x
