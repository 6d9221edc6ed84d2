"""What lazyfuse decides by itself is one list of named rules, and evaluations tell theirs."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path
from typing import Any

import numpy

import lazyfuse as np
from lazyfuse import config
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.events.tracing import Flush

ROOT = Path(__file__).parents[3]


def test_every_rule_says_what_it_decides_and_who_does() -> None:
    options = {row.name for row in config.rows()}
    for rule in decisions.RULES:
        assert rule.decides in decisions.DECISIONS
        assert (ROOT / "lazyfuse" / f"{rule.owner.replace('.', '/')}.py").is_file()
        assert not rule.option or rule.option in options
        assert len(rule.reason.splitlines()) == 1
        assert not rule.reason.endswith(".")
        assert ":" not in rule.name
        assert str(rule) == f"{rule.name}: {rule.reason}"
    assert len({rule.name for rule in decisions.RULES}) == len(decisions.RULES)
    assert {rule.decides for rule in decisions.RULES} == set(decisions.DECISIONS)


def test_the_page_of_decisions_is_current() -> None:
    text = runpy.run_path(str(ROOT / "scripts" / "write_decisions.py"))["text"]()
    assert (ROOT / "docs" / "decisions.md").read_text() == text, "run scripts/write_decisions.py"


def test_rules_are_made_in_the_list_alone() -> None:
    for path in (ROOT / "lazyfuse").rglob("*.py"):
        if path.name != "decisions.py":
            for call in ast.walk(ast.parse(path.read_text())):
                name = getattr(call, "func", None)
                assert getattr(name, "attr", getattr(name, "id", "")) not in ("Rule", "_rule")


def test_every_rule_is_taken_somewhere() -> None:
    names = {rule: name for name, rule in vars(decisions).items() if type(rule) is decisions.Rule}
    assert set(names) == set(decisions.RULES)
    used: set[str] = set()
    for path in (ROOT / "lazyfuse").rglob("*.py"):
        if path.name != "decisions.py":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute):
                    used.add(node.attr)
                elif isinstance(node, ast.Name):
                    used.add(node.id)
    assert not set(names.values()) - used


def test_evaluations_tell_their_rules() -> None:
    real = numpy.random.default_rng(1).random(70_000)
    events: list[Any] = []
    listener = np.tracing(events.append)
    counters.reset()
    try:
        a, b = np.array(real), np.array(real)
        assert float(a[a * b > 0.5].sum()) > 0
        numpy.asarray(a * b + a)
        (a / b).reshape(-1)[::2].to_numpy()
        mask = a[a + b > 0.5]
        assert mask.size
        c = a + b
        low, high = (c * c).min(), (c * c).max()
        assert float(low) < float(high)
        np.evaluate(a - b)
    finally:
        listener.remove()
    known = {str(rule) for rule in decisions.RULES if rule.decides == decisions.NOW}
    seen = {event.reason for event in events if isinstance(event, Flush)}
    assert len(seen) >= 3
    assert seen <= known
    assert counters.totals().decisions[decisions.SMALL_OUTPUTS]
    text = str(np.report())
    for counted in (counters.totals().flushes, counters.totals().decisions):
        assert all(f"{count} {rule}" in text for rule, count in counted.items())
