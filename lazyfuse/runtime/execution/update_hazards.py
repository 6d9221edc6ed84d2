"""Write-after-read hazards: updates whose kernel reads what it writes, done without a full copy.

A kernel runs over its elements in any order, so a store must not change what it loads elsewhere.
Where the loads that overlap the store are small (a pivot's row and column), they are copied first.
Where the store covers most of its block (a stencil's interior), it goes to a fresh block into which
only the border is copied, and the two buffers are swapped. Owns that choice; the run owns values
and steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyfuse.codegen.graph.node import Layout
from lazyfuse.codegen.plan.lifetimes import overlap, shares
from lazyfuse.runtime.events import counters, decisions
from lazyfuse.runtime.layout.strides import Array, around, dense, window

# Loads that together are this many times smaller than the store are copied instead of it.
SMALLER = 8
# Below this many bytes, a full copy is quicker than copying a border piece by piece.
SWAP_BYTES = 1 << 17


def spare_loads(run: Any, part: Array, inputs: list[Array]) -> bool:
    """Copy the few elements that a kernel loads from where it stores; whether they were few enough.

    Replaces these arrays in `inputs`.
    """
    meeting = [at for at, loaded in enumerate(inputs) if overlap(part, loaded)]
    if sum([inputs[at].size for at in meeting]) * SMALLER > part.size:
        return False
    for at in meeting:
        loaded = inputs[at]
        inputs[at] = spared = run.empty(loaded.shape, loaded.dtype)
        np.copyto(spared, loaded)
        run.copied(spared, loaded)
    counters.totals().decisions[decisions.SPARE_LOADS] += 1
    return True


def swap_buffers(
    run: Any, old: Array, perm: tuple[int, ...] | None, layout: Layout, inputs: list[Array]
) -> tuple[Array, Array] | None:
    """A window of another block that replaces `old`, and the block; None where a copy is cheaper.

    The block holds everything outside the window; the kernel writes the window itself. The next
    kernel may reuse `old`, so that two blocks serve any number of updates in one run.
    """
    ordered = old if perm is None else old.transpose(perm)
    if old.nbytes < SWAP_BYTES or not ordered.flags.c_contiguous:
        return None
    slabs = around(ordered.shape, layout)
    if slabs is None:
        return None
    fresh = _spare(run.spares, ordered, inputs)
    if fresh is None:
        fresh = run.empty(ordered.shape, ordered.dtype)
    # an operand of this very shape may also become a donated buffer
    if not any(loaded.shape == old.shape and overlaps(loaded, old) for loaded in inputs):
        run.spares.append(ordered)
    counters.totals().decisions[decisions.SWAP] += 1
    for slab in slabs:
        np.copyto(fresh[slab], ordered[slab])
        run.copied(fresh[slab], ordered[slab])
    flat = fresh.reshape(-1)
    return window(flat, layout), dense(flat, old.shape, perm)


def overlaps(first: Array, second: Array) -> bool:
    """Whether two arrays may share memory, also if they are the same view of it."""
    return bool(np.may_share_memory(first, second))


def _spare(spares: list[Array], like: Array, inputs: list[Array]) -> Array | None:
    """A block that was swapped out before and that the kernel at hand does not read."""
    for at, block in enumerate(spares):
        if block.shape != like.shape or block.dtype != like.dtype or overlaps(block, like):
            continue
        if not any(overlaps(block, loaded) for loaded in inputs):
            return spares.pop(at)
    return None


def store_targets(
    run: Any, targets: dict[int, int], inputs: list[Array]
) -> dict[int, tuple[Array, Array] | None]:
    """For each update that a kernel feeds: where it stores, and the whole block that results.

    One kernel may feed several parts of one block (a join). None: its stores have to be copied
    there once it has run. May replace arrays of `inputs` by copies.
    """
    found: dict[int, tuple[Array, Array] | None] = {}
    parts: list[Array] = []
    values = run.plan.graph.values
    for index in sorted(targets.values()):
        before = values[index].src[0]
        if before not in found:
            part, whole = run.target(index)
            found[index] = place = store_target(run, index, part, whole, inputs)
        elif (joined := found[before]) is None:
            found[index] = None
            continue
        else:
            joined_part = run.joined(index, joined[1])
            if joined_part is None or any(shares(joined_part, other) for other in parts):
                found[index] = None  # the last write counts
                continue
            if any(overlap(joined_part, loaded) for loaded in inputs):
                spare_loads(run, joined_part, inputs)
            found[index] = place = joined_part, joined[1]
        parts.append(place[0])
    return found


def store_target(
    run: Any, index: int, part: Array, whole: Array, inputs: list[Array]
) -> tuple[Array, Array]:
    """Where update `index` stores, and the whole block, so that stores change no later load.

    May replace arrays of `inputs` by copies. Any remaining overlap is left to the caller.
    """
    if run.off_cpu or not any(overlap(part, loaded) for loaded in inputs):
        return part, whole
    if spare_loads(run, part, inputs):
        return part, whole
    value = run.plan.graph.values[index]
    found = swap_buffers(run, whole, value.perm, run.layout(index), inputs)
    return (part, whole) if found is None else found
