"""Running a chain of programs tile by tile: the loop over tiles, in machine code.

For each tile a thread runs every call of the chain, one after the other. Calls take the rows
that launch.py describes. Each thread has its own rows, and writes the addresses of the tile
into them before its calls begin. Owns the byte layout of such a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from lazyfuse.devices.dataclass import dataclass

from .. import progress
from ..base import Array
from .launch import TILES_ENTRY, ChunkRunner, address_of
from .llvm_text import words


def _numbers(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "i64")


# A batch is one block of int64. Words 0 to 7 are shared: the next tile, finished tiles, threads
# that have arrived. Then follow the constants (see _HEAD), the flags of each group of calls, the
# calls, the patches, the scalars and the rows of each thread. Offsets are bytes from the start.
# A call: address of the code, offset of its scalars, offset of its row in a thread's rows, offset
# of its flags. A patch: offset of a word in a thread's rows, and the value to write there: a base,
# an increment per tile, and an increment per thread.
TILES_TEXT = f"""
define i32 @{TILES_ENTRY}(ptr %m, i64 %spins) {{
start:
  %finished = getelementptr i64, ptr %m, i64 1
  %come = getelementptr i64, ptr %m, i64 2
  %slot = atomicrmw add ptr %come, i64 1 seq_cst
{words("m", _numbers("tiles", "whole", "stride", "slots"), 8)}
  %own = mul i64 %slot, %stride
  %room = icmp slt i64 %slot, %slots
  br i1 %room, label %next, label %look
next:
  %tile = atomicrmw add ptr %m, i64 1 seq_cst
  %more = icmp slt i64 %tile, %tiles
  br i1 %more, label %body, label %look
body:
  %last = icmp sge i64 %tile, %whole
  %variant = select i1 %last, i64 16, i64 12
  %v0 = getelementptr i64, ptr %m, i64 %variant
{words("v0", _numbers("call.first", "call.end", "patch.first", "patch.end"))}
  br label %patches
patches:
  %patch = phi i64 [%patch.first, %body], [%patch.next, %write]
  %unpatched = icmp slt i64 %patch, %patch.end
  br i1 %unpatched, label %write, label %calls
write:
  %p0 = getelementptr i8, ptr %m, i64 %patch
{words("p0", _numbers("where", "base", "per.tile", "per.slot"))}
  %by.tile = mul i64 %tile, %per.tile
  %by.slot = mul i64 %slot, %per.slot
  %shifted = add i64 %base, %by.tile
  %address = add i64 %shifted, %by.slot
  %word.at = add i64 %where, %own
  %word = getelementptr i8, ptr %m, i64 %word.at
  store i64 %address, ptr %word, align 8
  %patch.next = add i64 %patch, 32
  br label %patches
calls:
  %call = phi i64 [%call.first, %patches], [%call.next, %run]
  %uncalled = icmp slt i64 %call, %call.end
  br i1 %uncalled, label %run, label %done
run:
  %c0 = getelementptr i8, ptr %m, i64 %call
{words("c0", {"entry": "ptr", **_numbers("from.scalars", "from.row", "from.flags")})}
  %scalars = getelementptr i8, ptr %m, i64 %from.scalars
  %row.own = add i64 %from.row, %own
  %row = getelementptr i8, ptr %m, i64 %row.own
  %flags = getelementptr i8, ptr %m, i64 %from.flags
  %raised = call i32 %entry(ptr %row, ptr %scalars)
  %wide = sext i32 %raised to i64
  %old = atomicrmw or ptr %flags, i64 %wide seq_cst
  %call.next = add i64 %call, 32
  br label %calls
done:
  %count = atomicrmw add ptr %finished, i64 1 seq_cst
  br label %next
look:
  %turn = phi i64 [0, %start], [0, %next], [%following, %again]
  %ended = load atomic i64, ptr %finished seq_cst, align 8
  %all = icmp eq i64 %ended, %tiles
  br i1 %all, label %yes, label %again
again:
  %following = add i64 %turn, 1
  %patient = icmp slt i64 %turn, %spins
  br i1 %patient, label %look, label %no
yes:
  ret i32 1
no:
  ret i32 0
}}
"""

_HEAD = 20  # words before the flags
_SPINS = 20_000


@dataclass
class Call:
    """One call per tile. `arrays` says what each address in the row is (see `Address`)."""

    entry: int
    group: int  # whose flags and scalars
    row: list[int]
    addresses: list[tuple[int, Address]]  # by position in the row


@dataclass(frozen=True)
class Address:
    """Bytes from an operand's first byte, and the increment per tile.

    `operand` numbers the arrays of a launch; -1 is the scratch of the thread.
    """

    operand: int
    offset: int
    per_tile: int = 0


class Batch:
    """The calls of a tile in order, laid out once and run any number of times."""

    __slots__ = (
        "_bases", "_patches", "_scalars", "_scratch_patches", "_sources", "_template", "groups",
        "row_bytes", "scratch", "tiles", "weight", "within",
    )  # fmt: skip

    def __init__(
        self,
        variants: Sequence[Sequence[Call]],
        tiles: int,
        whole: int,
        scalars: Sequence[int],
        scratch: int,
        weight: float,
    ) -> None:
        """`variants`: the calls of a whole tile, and of the last tile if it is smaller.

        `scalars`: bytes of scalars per group. `scratch`: bytes per thread. `weight`: additions'
        worth of work in all tiles together.
        """
        self.tiles = tiles
        self.groups = len(scalars)
        self.scratch = -(-scratch // 64) * 64
        self.weight = weight
        self.within: Callable[[], AbstractContextManager[None]] = nullcontext
        flags = 8 * _HEAD
        at = flags + 8 * self.groups
        at += -at % 16
        self._scalars: list[int] = []
        for size in scalars:
            self._scalars.append(at)
            at += -(-size // 16) * 16
        calls, head = at, [0] * 8
        at += 32 * sum(len(each) for each in variants)
        patches = at
        count = sum(len(call.addresses) for each in variants for call in each)
        rows = patches + 32 * count
        rows += -rows % 64
        length = sum(len(call.row) for each in variants for call in each)
        self.row_bytes = 8 * length + -(8 * length) % 64
        template = np.zeros((rows + self.row_bytes) // 8, dtype=np.int64)
        self._patches = patches // 8, count
        operands: list[int] = []
        row = rows
        for number, each in enumerate(variants):
            head[4 * number :] = [calls, calls + 32 * len(each), patches, 0]
            for call in each:
                group = call.group
                place = call.entry, self._scalars[group], row, flags + 8 * group
                template[calls // 8 : calls // 8 + 4] = place
                template[row // 8 : row // 8 + len(call.row)] = call.row
                for position, address in call.addresses:
                    own = address.operand < 0
                    patch = row + 8 * position, address.offset, address.per_tile, own * self.scratch
                    template[patches // 8 : patches // 8 + 4] = patch
                    operands.append(address.operand)
                    patches += 32
                calls += 32
                row += 8 * len(call.row)
            head[4 * number + 3] = patches
        head = (head + [0] * 8)[:8]
        template[8:20] = [tiles, whole, self.row_bytes, 0, *head]
        self._template = template
        self._sources = np.array(operands, dtype=np.int64)

    def run(
        self,
        work: ChunkRunner,
        arrays: Sequence[Array],
        scalars: Sequence[bytes],
        scratch: Any,
        alive: Any,
    ) -> list[int]:
        """Run all tiles; the IEEE flags of each group, negative where a call failed.

        `scratch(bytes)` gives memory for the threads; `alive` holds the code. Calls run while the
        context `within` is open.
        """
        helpers = work.helpers(self.weight, self.tiles)
        own = scratch((helpers + 1) * self.scratch) if self.scratch else None
        memory = self._bound(arrays, scalars, own, helpers + 1)
        address, loop = work.loop(TILES_ENTRY)
        start = address_of(memory)
        if progress.watchers:
            progress.divide(self.tiles, lambda: int(memory[1]))

        def mine() -> int:
            return loop(start, _SPINS)

        def assist(alive: object = (alive, memory, own, arrays)) -> None:
            """A late worker thread finds no work, in memory that it keeps alive."""
            loop(start, 0)

        row = (start, 0, 0, 0, 0, 0)
        with self.within():
            if helpers < 1 or not work.native.run(address, row, helpers):
                work.pool.run(mine, assist, helpers)
        found: list[int] = memory[_HEAD : _HEAD + self.groups].tolist()
        return found

    def _bound(
        self, arrays: Sequence[Array], scalars: Sequence[bytes], own: Array | None, threads: int
    ) -> Array:
        """The layout with the addresses and numbers of one run; `own`: scratch of the threads."""
        memory = self._memory(threads)
        addresses = np.array([address_of(array) for array in arrays] + [0], dtype=np.int64)
        if own is not None:
            addresses[-1] = address_of(own)
        first, count = self._patches
        memory[first + 1 : first + 4 * count : 4] += addresses[self._sources]
        memory[11] = threads
        place = memory.view(np.uint8)
        for at, packed in zip(self._scalars, scalars, strict=True):
            if packed:
                place[at : at + len(packed)] = np.frombuffer(packed, dtype=np.uint8)
        return memory

    def _memory(self, threads: int) -> Array:
        """The layout with rows for `threads` threads."""
        if threads == 1:
            return self._template.copy()
        size, row = len(self._template), self.row_bytes // 8
        memory = np.empty(size + (threads - 1) * row, dtype=np.int64)
        memory[:size] = self._template
        memory[size:].reshape(threads - 1, row)[...] = self._template[size - row :]
        return memory
