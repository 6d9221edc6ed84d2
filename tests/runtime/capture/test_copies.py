"""Copies between parts of blocks: by the C module as NumPy makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from lazyfuse.runtime.capture import conditions, native_replay
from lazyfuse.runtime.layout.copies import BlockPart, Copy, copy_of
from lazyfuse.runtime.layout.meta_arrays import address


def _part(generator: np.random.Generator, block: Any, shape: tuple[int, ...], root: int) -> Any:
    """A window of a block with random steps, turned round here and there."""
    steps = generator.choice([1, 1, 2, -1], len(shape)).tolist()
    rows = block.reshape((12,) * len(shape))
    window = rows[tuple([slice(None, None, step) for step in steps])]
    window = window[tuple([slice(0, length) for length in shape])]
    if window.shape != shape:
        window = rows[tuple([slice(0, length) for length in shape])]
    offset = address(window) - address(block)
    return window, BlockPart(root, offset, window.shape, window.strides, window.dtype)


def _play(copy: Copy, blocks: Sequence[Any]) -> None:
    """Copy by a program of one event; with NumPy where C leaves that to Python."""
    native: Any = conditions.native
    addresses = [*map(address, blocks), 0]
    if native is not None:
        program = native.replay_program(3, (0, 1), (0,), (), (_event(copy),), ())
        if native.replay_play(program, 0, [*blocks, None], addresses, [], [], None) is None:
            return
    copy.play(addresses)


def _event(copy: Copy) -> Any:
    places = copy.target.root, copy.target.offset, copy.source.root, copy.source.offset
    return native_replay.COPY, (), *places, copy.how


@pytest.mark.parametrize("dtype", ["?", "i2", "f4", "f8", "c16", "g"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_parts_are_copied_as_numpy_copies_them(dtype: str, rank: int) -> None:
    generator = np.random.default_rng(rank)
    for _ in range(60):
        shape = tuple(generator.integers(1, 7, rank).tolist())
        blocks = [(generator.random(12**rank) * 100).astype(dtype) for _ in range(2)]
        expected = blocks[0].copy()
        meets = generator.random() < 0.3
        target, there = _part(generator, blocks[0], shape, 0)
        source, here = _part(generator, blocks[0 if meets else 1], shape, 0 if meets else 1)
        if generator.random() < 0.2:
            source = np.broadcast_to(source[:1], shape)
            here = BlockPart(here.root, here.offset, shape, source.strides, source.dtype)
        places = address(target) - address(blocks[0])
        view = np.ndarray(shape, dtype, expected, places, target.strides)
        if meets:
            start = address(source) - address(blocks[0])
            source = np.ndarray(shape, dtype, expected, start, source.strides)
        copy = copy_of(there, here)
        assert copy.how
        np.copyto(view, source.copy())  # NumPy reads what it has written, along one axis
        _play(copy, blocks)
        assert blocks[0].tobytes() == expected.tobytes()


def test_conversions_and_crossing_windows_are_numpys() -> None:
    block, other = np.arange(20.0), np.arange(20, dtype="f4")
    whole = BlockPart(0, 0, (20,), (8,), block.dtype)
    assert not copy_of(whole, BlockPart(1, 0, (20,), (4,), other.dtype)).how
    windows = BlockPart(0, 0, (9, 3), (8, 8), block.dtype)
    assert not copy_of(windows, BlockPart(1, 0, (9, 3), (24, 8), block.dtype)).how
    assert not copy_of(whole, BlockPart(1, 0, (1,), (8,), block.dtype)).how
    copy_of(whole, BlockPart(1, 0, (20,), (4,), other.dtype)).play([address(block), address(other)])
    assert block.tolist() == other.tolist()


def test_what_is_no_copy_is_refused() -> None:
    native = conditions.native
    if native is None:
        pytest.skip("no machine code")
    for how in (b"", b"x" * 16, bytes(8) + (9).to_bytes(8, "little"), bytes(8) + b"\xff" * 8):
        part = BlockPart(0, 0, (1,), (8,), np.dtype("f8"))
        with pytest.raises(ValueError, match="copy"):
            _play(Copy(part, part, how), [np.zeros(1), np.zeros(1)])
