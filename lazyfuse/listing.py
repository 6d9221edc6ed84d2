"""Lists of described things that notebooks show as tables; `html` is imported when one is shown."""

from __future__ import annotations

import importlib
from dataclasses import fields
from typing import Any, TypeVar

Row = TypeVar("Row")

_CELL = 'style="text-align:left"'
_SHOWN = (str, bool, int, tuple)
"""What a cell shows; a column of other values is left out, unless `str` makes few words of them."""


class Listing(list[Row]):
    """A list of dataclass instances; in a notebook, a table with a column for each field."""

    def _repr_html_(self) -> str:
        if not self:
            return "<p>none</p>"
        names = [each.name for each in fields(self[0]) if self._is_shown(each.name)]  # type: ignore[arg-type]
        head = "".join([f"<th {_CELL}>{_escaped(name.replace('_', ' '))}</th>" for name in names])
        rows = [
            "<tr>"
            + "".join([f"<td {_CELL}>{_text(getattr(row, n))}</td>" for n in names])
            + "</tr>"
            for row in self
        ]
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"

    def _is_shown(self, name: str) -> bool:
        values = [getattr(row, name) for row in self]
        return all(isinstance(value, _SHOWN) or hasattr(value, "kind") for value in values)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _escaped(f"{value:,}" if isinstance(value, int) else str(value))


def _escaped(text: str) -> str:
    return str(importlib.import_module("html").escape(text))
