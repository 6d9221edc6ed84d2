"""How many tiles launches of chains have, for tests that count them."""

from __future__ import annotations

from typing import Any

import pytest

from lazyfuse.devices.cpu import tile_loop


class Watch:
    """The tiles of each launch: as many entries as chains ran tile by tile."""

    def __init__(self) -> None:
        self.tiles: list[int] = []


def watching(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """What is filled from now on, until `monkeypatch` is undone."""
    found = Watch()
    run = tile_loop.Batch.run

    def noted(batch: tile_loop.Batch, *arguments: Any) -> list[int]:
        found.tiles.append(batch.tiles)
        return run(batch, *arguments)

    monkeypatch.setattr(tile_loop.Batch, "run", noted)
    return found
