"""The few figures of this processor that schedules need: cache sizes, launching, waking, copying.

Owns the record, and what it says where nothing has been measured.
lazyfuse/runtime/placement/calibrate.py measures and keeps it. No value of any result may depend on
these figures: they choose tiles, chunks and threads only where the bits are the same for each
choice. Imports nothing but base.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from .caches import cached

CACHES = "/sys/devices/system/cpu/cpu0/cache"
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

# Where the system does not say: a small, ordinary processor.
L1, L2, L3 = 32 << 10, 512 << 10, 8 << 20
THREADS_ABOVE = 1 << 17  # additions' worth of work from which waking threads pays
LAUNCH = 6e-6  # seconds from Python into a compiled program and back
WAKE = 30e-6  # seconds until a sleeping thread has taken part
COPY = 10e9  # bytes read and written per second
RECOMPUTE = 8.0  # additions that cost less than an element's way through memory: nearly everywhere
SURE = 0.7  # of the time saved: computing again has to be worth it
STORED = 24  # bytes that a stored double takes of memory: its line is read, written, and read again
BESIDE = 24  # that its reader moves anyway, while arithmetic goes on


@dataclass(frozen=True, slots=True)
class Tuning:
    """Sizes in bytes, times in seconds, bandwidth in bytes (read and written) per second.

    `tile_bytes`: what the operands and scratch of one tile may take together, so that they stay in
    the second cache while several kernels work on them. `threads_above`: additions' worth of work
    from which a launch uses several threads. `add_rates`: bytes per second that one thread moves
    while it adds arrays that lie in the first, second and third cache and in memory; empty
    where nothing was measured. `work_seconds`: what an addition's worth of arithmetic on a double
    takes one thread (see `Op.cost`); 0 where it was not measured.
    """

    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    tile_bytes: int
    threads_above: int = THREADS_ABOVE
    launch_seconds: float = LAUNCH
    wake_seconds: float = WAKE
    copy_bandwidth: float = COPY
    add_rates: tuple[float, ...] = ()
    work_seconds: float = 0.0
    measured: bool = False

    def recompute_limit(self, threads: int) -> float:
        """Additions that cost less than to store a double in memory and to load it again.

        All threads share memory, each computes by itself.
        """
        if not self.add_rates or not self.work_seconds:
            return RECOMPUTE
        moved = (STORED + BESIDE) / self.add_rates[-1]
        return SURE * moved * threads / self.work_seconds


def tuning() -> Tuning:
    """The figures in use: measured ones, or those of `defaults`. Costs a function call."""
    return _in_use or _first()


def use(figures: Tuning | None) -> None:
    """Take these figures from now on; None: look the defaults up again."""
    global _in_use
    _in_use = figures


_in_use: Tuning | None = None


def _first() -> Tuning:
    global _in_use
    _in_use = defaults()
    return _in_use


@cached(1)
def defaults() -> Tuning:
    """What the system says of the caches, and cautious figures for the rest."""
    found = _caches(CACHES)
    l1 = found.get(1) or _sysconf("SC_LEVEL1_DCACHE_SIZE") or L1
    l2 = found.get(2) or _sysconf("SC_LEVEL2_CACHE_SIZE") or L2
    l3 = found.get(3) or _sysconf("SC_LEVEL3_CACHE_SIZE") or max(L3, l2)
    return Tuning(l1, l2, l3, tile_for(l1, l2))


def tile_for(l1: int, l2: int) -> int:
    """Half of the second cache: the other half is for what streams through."""
    return min(max(l2 // 2, l1), 1 << 20)


def _caches(folder: str) -> dict[int, int]:
    """Bytes of each level's data cache, as Linux gives them."""
    found: dict[int, int] = {}
    try:
        for name in sorted(os.listdir(folder)):
            if name.startswith("index") and _read(folder, name, "type") in ("Data", "Unified"):
                found[int(_read(folder, name, "level"))] = _size(_read(folder, name, "size"))
    except (OSError, ValueError):  # another system, or a container that hides it
        pass
    return found


def _read(*parts: str) -> str:
    with open(os.path.join(*parts), encoding="ascii") as file:
        return file.read().strip()


def _size(text: str) -> int:
    """A size such as "48K", in bytes."""
    unit = _UNITS.get(text[-1:], 1)
    return int(text if unit == 1 else text[:-1]) * unit


def _sysconf(name: str) -> int:
    try:
        return max(os.sysconf(name), 0)
    except (AttributeError, OSError, ValueError):  # not on this system
        return 0
