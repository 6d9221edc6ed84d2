"""Numbers as users have them: a test module or conftest.py that imports the fixture has it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import lazyfuse


@pytest.fixture(autouse=True)
def numbers_of_users(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A number is NumPy's where it leaves a function, as without the tests' conftest.py."""
    monkeypatch.setenv("LAZYFUSE_LAZY_NUMBERS", "off")  # of the programs that tests start
    with lazyfuse.options(lazy_numbers=False):
        yield
