"""What schedules need to know about this processor: measured a few times, kept, merged.

Owns the timing behind `devices.tuning` and its file. Measures when the user asks (`--calibrate`),
and for a few milliseconds at the end of a program that computed a lot, while few measurements
exist. It never measures on import or in a small program. Nothing here may change a bit of a result.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lazyfuse.devices import cost, cpu_figures
from lazyfuse.devices.base import Array, DeviceError, Launch, Source
from lazyfuse.devices.cpu.launch import NumbaProgram
from lazyfuse.devices.cpu_figures import Tuning
from lazyfuse.devices.dataclass import replace
from lazyfuse.devices.pools import object_code
from lazyfuse.devices.pools.disk_cache import DiskCache

SIZES = tuple(1 << power for power in range(13, 20))  # additions, on one thread and on several
PARTS = 8  # chunks of each of them
PAYS = 0.85  # of the time on one thread: several threads must be at least this fast to pay
QUICK = 0.008  # seconds at the end of a program
FULL = 0.4
ROUNDS = 5  # measurements at exit; the best of each figure counts
WORTH = 100  # kernels that a program must have run
LASTED = 1.0  # seconds of processor time that the program must have taken
COPIED = 32 << 20  # bytes of the array that is copied: beyond any cache but the largest
VERSION = 2

ENTRY = "lazyfuse_measured_addition"
# Adds two dense arrays of doubles, in vectors of eight; see launch.py for the row.
ADDITION = f"""
define i32 @{ENTRY}(ptr %row, ptr %scalars) {{
start:
  %n = load i64, ptr %row, align 8
  %p0 = getelementptr i64, ptr %row, i64 1
  %p1 = getelementptr i64, ptr %row, i64 3
  %p2 = getelementptr i64, ptr %row, i64 5
  %a = load ptr, ptr %p0, align 8
  %b = load ptr, ptr %p1, align 8
  %c = load ptr, ptr %p2, align 8
  br label %next
next:
  %i = phi i64 [0, %start], [%following, %body]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %at0 = getelementptr double, ptr %a, i64 %i
  %at1 = getelementptr double, ptr %b, i64 %i
  %at2 = getelementptr double, ptr %c, i64 %i
  %x = load <8 x double>, ptr %at0, align 8
  %y = load <8 x double>, ptr %at1, align 8
  %z = fadd <8 x double> %x, %y
  store <8 x double> %z, ptr %at2, align 8
  %following = add i64 %i, 8
  br label %next
done:
  ret i32 0
}}
"""


WORK = "lazyfuse_measured_work"
# The same with a costly body: the additional time is arithmetic.
ROOTS = ADDITION.replace(ENTRY, WORK).replace(
    "  %z = fadd <8 x double> %x, %y\n",
    """  %square = fmul <8 x double> %x, %y
  %sum = fadd <8 x double> %square, %y
  %root = call <8 x double> @llvm.sqrt.v8f64(<8 x double> %sum)
  %z = fdiv <8 x double> %root, %x
""",
)
ROOTS += "\ndeclare <8 x double> @llvm.sqrt.v8f64(<8 x double>)\n"
ROOTS_COST = 10.0  # of the body, by `Op.cost`, above that of an addition


class File:
    """The figures of this machine on disk; a file that cannot be read counts as empty."""

    def __init__(self, disk: DiskCache) -> None:
        self.disk = disk
        self.name = f"tuning-{cost.machine()}"

    def read(self) -> dict[str, Any]:
        """The raw times: {"rounds", "alone", "shared", "launch", "rates", "copy"}, or empty."""
        data = self.disk.get(self.name)
        if data is None:
            return {}
        try:
            found = json.loads(data)
            if found["version"] != VERSION or int(found["rounds"]) < 1:
                return {}
            for name in ("alone", "shared"):
                times = found[name]
                found[name] = {int(size): _positive(times[size]) for size in times}
            found["rates"] = [_positive(rate) for rate in found["rates"]]
            for name in ("launch", "copy", "work"):
                found[name] = _positive(found[name]) if found[name] else 0.0
        except (ValueError, TypeError, KeyError, AttributeError):
            return {}
        return dict(found)

    def write(self, times: dict[str, Any]) -> None:
        """Replace this machine's entry, if the file can be written."""
        self.disk.put(self.name, json.dumps({"version": VERSION, **times}).encode())

    def remove(self) -> None:
        """Forget the figures."""
        self.disk.remove(self.name)


def _positive(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and number > 0.0):
        raise ValueError(value)
    return number


def figures(times: dict[str, Any]) -> Tuning:
    """The figures that follow from the times; the defaults where there are no times."""
    base = cpu_figures.defaults()
    if not times:
        return base
    alone, shared = times["alone"], times["shared"]
    sizes = sorted(set(alone) & set(shared))
    above = threads_above(alone, shared, base.threads_above)
    wakes = [shared[size] - alone[size] / 2 for size in sizes[:2]]
    return replace(
        base,
        threads_above=above,
        launch_seconds=times["launch"] or base.launch_seconds,
        wake_seconds=max(min(wakes, default=base.wake_seconds), 1e-7),
        copy_bandwidth=times["copy"] or base.copy_bandwidth,
        add_rates=tuple(times["rates"]),
        work_seconds=times["work"],
        measured=True,
    )


def threads_above(alone: dict[int, float], shared: dict[int, float], default: int) -> int:
    """The least work from which on several threads were faster at every size measured.

    `default` if they never were: the other cores were busy, so the times say nothing about this
    machine.
    """
    found = 0
    for size in sorted(set(alone) & set(shared), reverse=True):
        if shared[size] > PAYS * alone[size]:
            break
        found = size
    return min(found, default) if found else default


# Measuring


def measure(device: Any, seconds: float, full: bool) -> dict[str, Any]:
    """Times on the CPU device; `full` adds bandwidths, which take longer to measure."""
    program = _program(device, ENTRY, ADDITION)
    arrays = [np.full(SIZES[-1], 0.5) for _ in range(3)]
    launches = {size: _launch(arrays, size, PARTS) for size in SIZES}
    before = device.work.threads_above
    alone = dict.fromkeys(SIZES, math.inf)
    shared = dict.fromkeys(SIZES, math.inf)
    try:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or math.inf in alone.values():
            for size, launch in launches.items():
                device.work.threads_above = 1 << 62
                alone[size] = min(alone[size], _time(program, launch))
                device.work.threads_above = 0
                shared[size] = min(shared[size], _time(program, launch))
        device.work.threads_above = 1 << 62
        empty = min(_time(program, _launch(arrays, 8, 1)) for _ in range(20))
        rates = _rates(program, arrays, empty) if full else []
        work = _work(device, program, arrays) if full else 0.0
    finally:
        device.work.threads_above = before
    return {
        "rounds": 1,
        "alone": alone,
        "shared": shared,
        "launch": empty,
        "rates": rates,
        "copy": _copy() if full else 0.0,
        "work": work,
    }


def _program(device: Any, entry: str, text: str) -> NumbaProgram:
    source = Source("llvm", entry, text, 1, ("f8",) * 3, ())
    return NumbaProgram(source, device.programs.code(source, object_code.emit, entry), device.work)


def _work(device: Any, addition: Any, arrays: Sequence[Array]) -> float:
    """Seconds of one addition's worth of arithmetic, operands in the L1 or L2 cache."""
    roots = _program(device, WORK, ROOTS)
    size = SIZES[0]
    launch = _launch(arrays, size, 1)
    pairs = [(_time(roots, launch), _time(addition, launch)) for _ in range(300)]
    longer = min(pair[0] for pair in pairs) - min(pair[1] for pair in pairs)
    return max(longer, 0.0) / (ROOTS_COST * size)


def _launch(arrays: Sequence[Array], size: int, parts: int) -> Launch:
    """A launch that adds `size` elements in `parts` equal parts."""
    each = size // parts
    sizes = np.full((parts, 1), each, dtype=np.int64)
    offsets = np.repeat(np.arange(parts, dtype=np.int64)[:, None] * each, len(arrays), axis=1)
    strides = ((1,),) * len(arrays)
    return Launch(tuple(arrays), strides, (), sizes, np.ascontiguousarray(offsets), size)


def _time(program: Any, launch: Launch) -> float:
    start = time.perf_counter()
    program.launch(launch)
    return time.perf_counter() - start


def _rates(program: Any, arrays: Sequence[Array], empty: float) -> list[float]:
    """Bytes per second on one thread: operands in the L1, L2 and L3 cache, and in memory."""
    base = cpu_figures.defaults()
    sizes = [bytes_ // 2 // 24 for bytes_ in (base.l1_bytes, base.l2_bytes, base.l3_bytes)]
    sizes.append(max(2 * base.l3_bytes // 24, 1 << 21))
    sizes = [size // 8 * 8 for size in sizes]
    rates = []
    for size in sizes:
        if size > len(arrays[0]):
            arrays = [np.full(size, 0.5) for _ in range(3)]
        launch = _launch(arrays, size, 1)
        shortest = min(_time(program, launch) for _ in range(20))
        rates.append(24 * size / max(shortest - empty, 0.1 * shortest))
    return rates


def _copy() -> float:
    source = np.ones(COPIED // 8)
    target = np.ones(COPIED // 8)
    shortest = math.inf
    for _ in range(5):
        start = time.perf_counter()
        np.copyto(target, source)
        shortest = min(shortest, time.perf_counter() - start)
    return 2 * COPIED / shortest


def merged(known: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The best of both: disturbances only make times longer."""
    if not known or not new:
        return new or known
    times: dict[str, Any] = {"rounds": known["rounds"] + new["rounds"]}
    for name in ("alone", "shared"):
        sizes = set(known[name]) & set(new[name])
        times[name] = {size: min(known[name][size], new[name][size]) for size in sorted(sizes)}
    times["launch"] = min(known["launch"] or math.inf, new["launch"] or math.inf)
    times["rates"] = new["rates"] or known["rates"]
    times["copy"] = max(known["copy"], new["copy"])
    works = [each["work"] for each in (known, new) if each["work"]]
    times["work"] = min(works, default=0.0)
    return times


# When


def at_exit(device: Any, file: Callable[[], File], kernels: Callable[[], int]) -> None:
    """Measure when this program ends, if it computed a lot and few measurements exist."""
    parent = os.getpid()

    def look() -> None:
        if os.getpid() != parent:
            return  # a forked child leaves measuring to its parent
        if kernels() < WORTH or time.process_time() < LASTED or device.threads.threads < 2:
            return
        try:
            known = file().read()
            if known.get("rounds", 0) < ROUNDS:
                file().write(merged(known, measure(device, QUICK, full=False)))
        except (DeviceError, OSError, MemoryError):
            pass  # the program ended well: its user need not see this error

    atexit.register(look)


def described(found: Tuning) -> str:
    """The figures as a line of text for the user."""
    sizes = ", ".join(
        f"{name} {_bytes(size)}"
        for name, size in (("L1", found.l1_bytes), ("L2", found.l2_bytes), ("L3", found.l3_bytes))
    )
    text = f"{sizes}, tiles of {_bytes(found.tile_bytes)}, threads from {found.threads_above:,} "
    text += f"additions; launch {found.launch_seconds * 1e6:.1f} us, "
    text += f"waking {found.wake_seconds * 1e6:.1f} us"
    if found.add_rates:
        rates = " ".join(f"{rate / 1e9:.0f}" for rate in found.add_rates)
        text += f"; one thread adds at {rates} GB/s, copies at {found.copy_bandwidth / 1e9:.0f}"
    if found.work_seconds:
        text += f"; computes at {1e-9 / found.work_seconds:.0f} additions per ns"
    return text + ("" if found.measured else " (not measured)")


def _bytes(count: int) -> str:
    return f"{count >> 20} MB" if count >= 1 << 20 else f"{count >> 10} KB"
