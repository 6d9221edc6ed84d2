"""Numbers as users have them: NumPy's where they leave a function."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import lazyfuse


@pytest.fixture(autouse=True)
def _numbers_of_users(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LAZYFUSE_LAZY_NUMBERS", "off")  # of the programs that tests start
    with lazyfuse.options(lazy_numbers=False):
        yield
