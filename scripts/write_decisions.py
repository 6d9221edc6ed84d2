"""Writes docs/decisions.md from the list of rules: `python scripts/write_decisions.py`."""

from pathlib import Path

from lazyfuse.runtime.events.decisions import DECISIONS, RULES

TARGET = Path(__file__).parents[1] / "docs" / "decisions.md"

INTRODUCTION = """# What lazyfuse decides by itself

<!-- Written by scripts/write_decisions.py from lazyfuse/runtime/events/decisions.py. Edit that. -->

Every decision of the scheduler is one of these rules. `lazyfuse.explain(x)` prints those that hold
for `x`; `lazyfuse --report` and `lazyfuse.report()` count what ran by rule. The module is the one
that decides; the option turns the rule off. The passes over the graph of an evaluation are another
list: `PASSES` in `codegen/rewrite/passes.py`.
"""

HEAD = """
| rule | why, and when | module of `lazyfuse` | option |
|---|---|---|---|
"""


def text() -> str:
    """The whole page."""
    page = INTRODUCTION
    for decides, meaning in DECISIONS.items():
        page += f"\n## {decides.capitalize().replace('numpy', 'NumPy')}\n\n{meaning}\n{HEAD}"
        for rule in RULES:
            if rule.decides == decides:
                option = f"`{rule.option}`" if rule.option else ""
                page += f"| {rule.name} | {rule.reason} | `{rule.owner}` | {option} |\n"
    return page


if __name__ == "__main__":
    TARGET.write_text(text())
