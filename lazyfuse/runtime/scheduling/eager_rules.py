"""What NumPy does at once, as far as sizes and nodes decide: also for modules that know no arrays.

Owns the limits. Each function answers one question: with the rule by which NumPy does the work at
once, or with None for work that is recorded or planned. arrays/eager_policy.py asks about arrays.
"""

from __future__ import annotations

from typing import Any

from lazyfuse.config import options
from lazyfuse.runtime.events.decisions import SINGLE_BYTES, SMALL, Rule

MIDDLING = 8
"""Work not worth recording may be NumPy's at once up to `MIDDLING` times `eager_below` elements."""

# Up to this many truth values one thread in C is as fast as a compiled loop with several.
MASKED_ELEMENTS = 1 << 19


def small(size: int) -> Rule | None:
    """Whether NumPy does work on `size` elements at once."""
    return SMALL if size < options.eager_below else None


def small_array(value: Any) -> Rule | None:
    """Whether NumPy works on a NumPy array at once: it is the fastest at moving single bytes."""
    size = value.size
    large = options.eager_below
    if size < large:
        return SMALL
    return SINGLE_BYTES if value.itemsize == 1 and size <= MIDDLING * large and large > 1 else None
