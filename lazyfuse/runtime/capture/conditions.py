"""When runs may be captured and replayed, and what replays them.

Owns the switch that listeners, checks and options turn, and the native extension in use. Imported
by the modules of captured runs and by those that take shortcuts of the same kind.
"""

from __future__ import annotations

from typing import Any

from lazyfuse import config
from lazyfuse.codegen.graph.node import Node
from lazyfuse.codegen.table.op import Op
from lazyfuse.runtime.events import tracing

Raised = list[tuple[int, list[tuple[Op, Node]]]]
"""IEEE flags, and the operations that may have raised them."""

_switches: dict[str, bool] = {}
_may_capture = False


def may_capture() -> bool:
    """Whether runs may be captured and replayed: no listener or check looks at their kernels."""
    return _may_capture and not tracing.listeners


def _watch(name: str, wanted: bool) -> None:
    def look(value: object) -> None:
        global _may_capture
        _switches[name] = bool(value) is wanted
        _may_capture = all(_switches.values())

    config.on_change(name, look)


for _name in ("capture", "program_limit", "plan_limit"):
    _watch(_name, True)
for _name in ("validate", "debug"):
    _watch(_name, False)


native: Any = None
"""The native extension that native_replay.py replays by; None: nothing is captured."""
