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
VERSION = 3

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
        """The raw times: {"rounds", "alone", "shared", "stored"}, or empty."""
        data = self.disk.get(self.name)
        found: dict[str, Any] = json.loads(data) if data else {}
        if found.get("version") != VERSION:
            return {}
        for name in ("alone", "shared"):
            found[name] = {int(size): seconds for size, seconds in found[name].items()}
        return found

    def write(self, times: dict[str, Any]) -> None:
        """Replace this machine's entry, if the file can be written."""
        self.disk.put(self.name, json.dumps({"version": VERSION, **times}).encode())


def figures(times: dict[str, Any]) -> Tuning:
    """The figures that follow from the times; the defaults where there are no times."""
    base = cpu_figures.defaults()
    if not times:
        return base
    above = threads_above(times["alone"], times["shared"], base.threads_above)
    return replace(base, threads_above=above, stored=times["stored"], measured=True)


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
    """Times on the CPU device; `full` adds what memory costs, which takes longer to measure."""
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
        stored = _stored(device, program, arrays) if full else 0.0
    finally:
        device.work.threads_above = before
    return {"rounds": 1, "alone": alone, "shared": shared, "stored": stored}


def _program(device: Any, entry: str, text: str) -> NumbaProgram:
    source = Source("llvm", entry, text, 1, ("f8",) * 3, ())
    return NumbaProgram(source, device.programs.code(source, object_code.emit, entry), device.work)


def _stored(device: Any, addition: Any, arrays: Sequence[Array]) -> float:
    """Additions that one thread computes while a double is stored in memory and loaded again."""
    roots = _program(device, WORK, ROOTS)
    size = SIZES[0]  # operands in the L1 or L2 cache
    launch = _launch(arrays, size, 1)
    pairs = [(_time(roots, launch), _time(addition, launch)) for _ in range(300)]
    longer = min(pair[0] for pair in pairs) - min(pair[1] for pair in pairs)
    per_second = ROOTS_COST * size / max(longer, 1e-7)
    size = max(2 * cpu_figures.defaults().l3_bytes // 24, 1 << 21) // 8 * 8
    launch = _launch([np.full(size, 0.5) for _ in range(3)], size, 1)
    moved = min(_time(addition, launch) for _ in range(20)) / (24 * size)
    return (cpu_figures.STORED + cpu_figures.BESIDE) * moved * per_second


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


def merged(known: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The best of both: disturbances only make times longer."""
    if not known or not new:
        return new or known
    times: dict[str, Any] = {"rounds": known["rounds"] + new["rounds"]}
    for name in ("alone", "shared"):
        sizes = set(known[name]) & set(new[name])
        times[name] = {size: min(known[name][size], new[name][size]) for size in sorted(sizes)}
    times["stored"] = new["stored"] or known["stored"]
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
    text += "additions"
    if found.stored:
        text += f"; one thread does {found.stored:.0f} while memory stores and loads a double"
    return text + ("" if found.measured else " (not measured)")


def _bytes(count: int) -> str:
    return f"{count >> 20} MB" if count >= 1 << 20 else f"{count >> 10} KB"
