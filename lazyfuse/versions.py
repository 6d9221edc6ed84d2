"""The versions of NumPy that the tests have met: what another one changed may differ.

NumPy's order of summation, its inner loops and the texts of its errors change now and then, and
lazyfuse repeats them. pip refuses NumPys that are too old; newer ones are used, and named.
"""

from __future__ import annotations

import re

import numpy as np

OLDEST = "2.3"
NEWEST = "2.5"


def _series(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def untested(version: str = np.__version__) -> str:
    """Why a last bit or a message may differ from this NumPy's; empty where the tests ran."""
    if _series(OLDEST) <= _series(version) <= _series(NEWEST):
        return ""
    return f"{version} is not among those that the tests have met, {OLDEST} to {NEWEST}"
