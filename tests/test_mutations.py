"""Every mutation of scripts/mutations.py still fits the source that it breaks."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_each_text_stands_once(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("mutations", ROOT / "scripts" / "mutations.py")
    assert spec is not None
    assert spec.loader is not None
    mutations = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mutations", mutations)  # dataclasses look themselves up
    spec.loader.exec_module(mutations)
    found = {each: (ROOT / each.file).read_text().count(each.old) for each in mutations.MUTATIONS}
    assert {each.name: count for each, count in found.items() if count != 1} == {}
