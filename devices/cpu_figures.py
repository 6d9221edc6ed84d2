"""The figures of this processor that schedules need: cache sizes, and what work pays.

Owns the record, and its defaults before a measurement. lazyfuse/runtime/placement/calibrate_cpu.py
measures and keeps it. No value of a result may depend on these figures: they choose tiles, chunks
and threads only where every choice gives the same bits. Imports nothing but base.
"""

from __future__ import annotations

import os

from lazyfuse.devices.dataclass import dataclass

from .caches import cached

CACHES = "/sys/devices/system/cpu/cpu0/cache"
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

# Defaults where the system reports no sizes: a small, ordinary processor.
L1, L2, L3 = 32 << 10, 512 << 10, 8 << 20
THREADS_ABOVE = 1 << 17  # additions' worth of work above which waking threads pays
RECOMPUTE = 8.0  # additions that cost less than an element's transfer on nearly every machine
SURE = 0.7  # share of the time saved that counts: recomputing has to pay surely
STORED = 24  # bytes of traffic of a stored double: its line is read, written, and read again
BESIDE = 24  # bytes that its reader moves anyway, while it computes


@dataclass(frozen=True)
class Tuning:
    """Sizes in bytes, work in additions (see `Op.cost`).

    `tile_bytes`: limit on the operands and scratch of one tile, so that they stay in the second
    cache while several kernels work on them. `threads_above`: work from which a launch uses several
    threads. `stored`: what one thread computes while a double is stored in memory and loaded again;
    0 before a measurement.
    """

    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    tile_bytes: int
    threads_above: int = THREADS_ABOVE
    stored: float = 0.0
    measured: bool = False

    def recompute_limit(self, threads: int) -> float:
        """Additions that cost less than storing a double in memory and loading it again.

        Threads share the memory's bandwidth, while each has its own arithmetic.
        """
        return SURE * self.stored * threads if self.stored else RECOMPUTE


def tuning() -> Tuning:
    """The figures in use: measured ones, or `defaults`."""
    return _in_use or _first()


def use(figures: Tuning | None) -> None:
    """Use these figures from now on; None: the defaults, computed again."""
    global _in_use
    _in_use = figures


_in_use: Tuning | None = None


def _first() -> Tuning:
    global _in_use
    _in_use = defaults()
    return _in_use


@cached(1)
def defaults() -> Tuning:
    """The system's cache sizes, and cautious figures for the rest."""
    found = _caches(CACHES)
    l1 = found.get(1) or _sysconf("SC_LEVEL1_DCACHE_SIZE") or L1
    l2 = found.get(2) or _sysconf("SC_LEVEL2_CACHE_SIZE") or L2
    l3 = found.get(3) or _sysconf("SC_LEVEL3_CACHE_SIZE") or max(L3, l2)
    return Tuning(l1, l2, l3, tile_for(l1, l2))


def tile_for(l1: int, l2: int) -> int:
    """Bytes of a tile: half of the second cache, since the other half is for streamed data."""
    return min(max(l2 // 2, l1), 1 << 20)


def _caches(folder: str) -> dict[int, int]:
    """Bytes of each level's data cache, as Linux reports them."""
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
    except (AttributeError, OSError, ValueError):  # a system without `os.sysconf` or this value
        return 0
