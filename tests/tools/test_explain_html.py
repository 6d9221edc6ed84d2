"""The picture of `explain`: its boxes, its arrows, and that it is a document of its own."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import pytest

import lazyfuse as np
from lazyfuse.listing import Listing
from lazyfuse.runtime.events import spans
from lazyfuse.tools import explain_html
from lazyfuse.tools.explain_boxes import ALONE, ARRAY, KERNEL, RESULT, Box


@pytest.fixture
def x() -> np.ndarray:
    made = np.arange(400_000.0).reshape(400, 1000) + 0
    np.evaluate(made)
    return made


def kinds(boxes: tuple[Box, ...]) -> list[str]:
    return [box.kind for box in boxes]


def test_boxes_stand_behind_what_they_read(x: np.ndarray) -> None:
    boxes = np.explain(np.sort(np.exp(x) * 2, axis=0) + 1).boxes
    assert kinds(boxes) == [ARRAY, KERNEL, ALONE, KERNEL, RESULT]
    assert [box.reads for box in boxes] == [(), (0,), (1,), (2,), (3,)]
    assert boxes[2].title == "sort"


def test_a_kernel_says_what_it_does_where_and_what_it_saves(x: np.ndarray) -> None:
    explained = np.explain(np.exp(x) * 2 + x)
    (kernel,) = [box for box in explained.boxes if box.kind == KERNEL]
    text = "\n".join(kernel.lines)
    assert "exp, multiply, add" in text
    assert f"on {explained.kernels[0].device} as" in text
    assert "400 \N{MULTIPLICATION SIGN} 1,000" in text
    assert "moves 6.1 MB, saves 15.3 MB" in text
    assert "test_explain_html.py:" in text


def test_views_are_no_boxes(x: np.ndarray) -> None:
    boxes = np.explain((x.T[::2] * 2)[3:] + 1).boxes
    assert ALONE not in kinds(boxes)
    assert kinds(boxes).count(ARRAY) == 1


def test_the_time_of_earlier_kernels_of_a_line_is_known_with_the_report(x: np.ndarray) -> None:
    report, np.options.report = np.options.report, True
    try:
        for turn in range(2):
            y = np.exp(x / 1e6) * 2
            lines = str([box.lines for box in np.explain(y).boxes])
            assert ("took " in lines) == (turn == 1)
            np.evaluate(y)
    finally:
        np.options.report = report
        spans.reset()


def test_the_picture_is_svg_with_a_box_for_each_and_an_arrow_for_each_read(x: np.ndarray) -> None:
    boxes = np.explain(np.exp(x).sum(axis=0), np.sort(x * 2, axis=0)).boxes
    root = ElementTree.fromstring(explain_html.svg(boxes))
    space = "{http://www.w3.org/2000/svg}"
    groups = [each for each in root.iter(f"{space}g") if each.get("class")]
    assert [each.get("class") for each in groups] == kinds(boxes)
    arrows = [each for each in root.iter(f"{space}path") if each.get("fill") == "none"]
    assert len(arrows) == sum(len(box.reads) for box in boxes)
    text = ElementTree.tostring(root, encoding="unicode")
    assert "currentColor" in text, "the page's colour, light or dark"
    assert "script" not in text
    assert "href" not in text


def test_boxes_of_a_row_do_not_meet() -> None:
    boxes = [Box(ARRAY, "a" * 30, (), ()) for _ in range(6)]
    boxes += [Box(KERNEL, f"kernel {n}", ("<b>",), (n, 5 - n, 0)) for n in range(6)]
    boxes.append(Box(RESULT, "r", (), (0, 6, 11)))
    drawn = explain_html.svg(boxes)
    assert "<b>" not in drawn
    found = re.findall(r'<rect x="([\d.-]+)" y="([\d.-]+)" rx="6" width="([\d.]+)" height', drawn)
    rows: dict[str, list[tuple[float, float]]] = {}
    for left, top, width in found:
        assert float(left) >= 0
        rows.setdefault(top, []).append((float(left), float(left) + float(width)))
    assert len(found) == len(boxes)
    for row in rows.values():
        ordered = sorted(row)
        for first, second in itertools.pairwise(ordered):
            assert first[1] < second[0]


def test_a_page_has_the_words_too(x: np.ndarray) -> None:
    html = np.explain(x * 2)._repr_html_()
    assert "<svg" in html
    assert "<summary>in words</summary>" in html
    assert "1 recorded operations" in html


def test_nothing_to_do_has_no_picture(x: np.ndarray) -> None:
    html = np.explain(x)._repr_html_()
    assert "nothing to do" in html
    assert "<svg" not in html


def test_too_many_boxes_have_no_picture() -> None:
    boxes = [Box(ARRAY, "a", (), ())] * (explain_html.MOST + 1)
    html = explain_html.page("head", boxes, "words")
    assert "81 boxes are too many for a picture" in html
    assert "<svg" not in html


def test_devices_are_a_table_and_a_list() -> None:
    found = np.devices()
    assert isinstance(found, list)
    assert repr(found).startswith("[Entry(")
    html = found._repr_html_()  # type: ignore[attr-defined]
    assert "<td" in html
    assert "compiled and blocked kernels on threads" in html
    assert ">yes</td>" in html


def test_an_empty_table_says_so() -> None:
    assert Listing([])._repr_html_() == "<p>none</p>"
