"""Hand-written loop nests as programs: compiled once, kept on disk, run on all threads.

Owns `Routine` (a loop nest written by hand in the text language of the CPU's compiler), when a
routine is used, and how it is launched over chunks. The module that writes a routine decides what
it computes. Where a routine is not compiled yet, is refused or fails, NumPy's own function gives
the same values. Routines run on host arrays: in functions that run at once, and inside host calls,
so that plans contain them.

    COUNT = Routine("count_bytes", ("count", "row"), {"data": "u1", "found": "i8"}, '''
    for k in range(count):
        found[row * 256 + int64(data[k])] += 1
    ''')
    launch = COUNT.launcher()                         # None: not compiled yet; NumPy does it
    flags = launch((data, found), sizes, offsets)     # a row of sizes and of offsets per chunk
"""

from __future__ import annotations

import functools
import textwrap
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from lazyfuse import config
from lazyfuse.codegen.graph.node import HostCall
from lazyfuse.codegen.table.op import Verdict
from lazyfuse.devices.base import DeviceError, Launch, Program, Source
from lazyfuse.devices.caches import DTYPES, cached, register
from lazyfuse.late_modules import has_ended
from lazyfuse.registry import NATIVE_KERNELS
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.execution import concurrency
from lazyfuse.runtime.placement import devices

Array = np.ndarray[Any, np.dtype[Any]]
Found = TypeVar("Found")

_refused: set[Source] = set()
register(
    "runtime.execution.routine.refused",
    _refused.__len__,
    None,
    _refused.clear,
    "one for each routine",
)

FEW = 8
"""Times that NumPy does a routine's work before the first one is compiled."""
_asked = 0

FEWEST = 1 << 12
"""Elements below which NumPy is done before a routine is launched."""


class Routine:
    """A loop nest written by hand, in the language of `devices/cpu/frontend/builtins.py`.

    `sizes` names the integers that each chunk has of its own (counts, positions, ...), `arrays` the
    array arguments with their dtypes ("f8", ...), `scalars` those that all chunks share. In `body`
    an array is a pointer to its chunk's first element: `data[i]` loads and stores, and
    `data_stride` is its stride in elements if the launch gives one. `helpers` is text before it, of
    functions under `@njit`. The body may `return test_flags()`; without a return, no floating-point
    exception is reported. No chunk may write memory that another one reads or writes. A `bare`
    routine is part of a chain of kernels (see tiles.py): its row holds only sizes and addresses,
    and it is not launched.
    """

    __slots__ = ("source",)

    def __init__(
        self,
        name: str,
        sizes: Sequence[str],
        arrays: Mapping[str, str],
        body: str,
        scalars: Mapping[str, str] | None = None,
        helpers: str = "",
        bare: bool = False,
    ) -> None:
        lines = [f"{size} = meta[{at}]" for at, size in enumerate(sizes)]
        rank = max(len(sizes), 1)
        for position, (array, code) in enumerate(arrays.items()):
            at = rank + position * (1 if bare else rank + 1)
            lines.append(f"{array} = pointer_{code}(meta[{at}])")
            if f"{array}_stride" in body:
                lines.append(f"{array}_stride = meta[{at + 1}]")
        shared = scalars or {}
        lines += [
            f"{each} = scalar_{code}(scalars, {at})"
            for at, (each, code) in enumerate(shared.items())
        ]
        text = textwrap.dedent(body).strip("\n")
        inner = textwrap.indent("\n".join([*lines, text, "return 0"]), "    ")
        before = textwrap.dedent(helpers).strip("\n")
        whole = f"{before}\n\n\ndef {name}(meta, scalars):\n{inner}\n".lstrip("\n")
        self.source = Source(
            "numba", name, whole, rank, tuple(arrays.values()), tuple(shared.values())
        )

    def launcher(self) -> Callable[..., int] | None:
        """The function that launches the routine; None where NumPy has to do the work.

        It takes the arrays, a row of sizes per chunk, a row of offsets (elements from each array's
        start; none: all zero), the scalars, strides per array, and the work in additions (which
        decides how many threads wake up). It returns the IEEE flags and raises `DeviceError`.
        """
        program = _find(self.source)
        return None if program is None else _Launcher(program)


def entry_of(routine: Routine) -> tuple[int, Any] | None:
    """The entry address of a bare routine's code, and its owner; 0 while it is being compiled.

    None if the code will never exist.
    """
    program: Any = _find(routine.source)
    if program is not None:
        return program.entry, program
    off = not config.options.routines or not config.options.program_limit
    return None if off or routine.source in _refused else (0, None)


class _Launcher:
    """See `Routine.launcher`."""

    __slots__ = ("_program",)

    def __init__(self, program: Program) -> None:
        self._program = program

    def __call__(
        self,
        arrays: Sequence[Array],
        sizes: Any,
        offsets: Any = None,
        scalars: tuple[Any, ...] = (),
        strides: Sequence[int] | None = None,
        work: int = 0,
    ) -> int:
        rank = self._program.source.rank
        rows = np.asarray(sizes, dtype=np.int64).reshape(-1, rank)
        if offsets is None:
            places = np.zeros((len(rows), len(arrays)), dtype=np.int64)
        else:
            places = np.asarray(offsets, dtype=np.int64).reshape(len(rows), len(arrays))
        rest = (0,) * (rank - 1)
        steps = tuple([(step, *rest) for step in strides or (0,) * len(arrays)])
        counters.totals().languages["routine"] += 1
        launch = Launch(tuple(arrays), steps, scalars, rows, places, work)
        flags = concurrency.call_unlocked(self._program.launch, launch)
        return flags if isinstance(flags, int) else flags.flags()


def _find(source: Source) -> Program | None:
    """The program of a source if it is compiled; else None, and its compilation starts."""
    options = config.options
    if not options.routines or not options.program_limit or source in _refused:
        return None
    if options.plan_after and not devices.is_made() and _are_few():
        return None
    device = devices.cpu()
    if source.language not in device.traits.languages:
        return None
    program = device.soon(source)
    if program is None and (why := device.why_never(source)):
        _refused.add(source)  # NumPy does the work from now on
        counters.fell_back([], f"{source.name}: {why}", "numba", "numpy")
    return program


def _are_few() -> bool:
    """Whether a process has asked for so few routines that NumPy does their work: to make the
    device, and to start the compiler's process, takes 50 ms.
    """
    global _asked
    _asked += 1
    return _asked <= FEW


def attempt(ours: Callable[..., Found | None], *args: Any, **named: Any) -> Found | None:
    """Call `ours`, built on routines; None where NumPy has to do it, or a routine failed."""
    if has_ended():  # nothing can be compiled any more, nor told
        return None
    try:
        return ours(*args, **named)
    except DeviceError as error:
        counters.fell_back([], str(error), "numba", "numpy")
        return None


def either(
    ours: Callable[..., Found | None], theirs: Callable[..., Found], *args: Any, **named: Any
) -> Found:
    """Call `attempt`, and NumPy's function where that gives None."""
    found = attempt(ours, *args, **named)
    return concurrency.call_unlocked(theirs, *args, **named) if found is None else found


def native_kernel(call: HostCall) -> HostCall:
    """A recorded NumPy call as the CPU runs it."""
    function: Any = call.function
    if not isinstance(function, functools.partial):
        found = NATIVE_KERNELS.get(id(function))
        return call if found is None else HostCall(call.name, functools.partial(either, *found))
    found = NATIVE_KERNELS.get(id(function.func)) if not function.args else None
    if found is None:
        return call
    return HostCall(call.name, functools.partial(either, *found, **function.keywords))


def verdict(call: HostCall) -> Verdict:
    """Whether routines do a recorded NumPy call, and why or why not."""
    ours = native_kernel(call) is not call or getattr(call.function, "has_routine", False)
    if not ours:
        return Verdict(False, "no routine for it")
    if not config.options.routines:
        return Verdict(False, "routines are switched off")
    if "numba" not in devices.cpu().traits.languages:
        return Verdict(False, "llvmlite is not installed")
    count = threads()
    return Verdict(True, f"compiled loops on {count} thread{'s' * (count != 1)}")


def empty(shape: tuple[int, ...], dtype: Any) -> Array:
    """An uninitialised array for a routine's result, in reused memory if it is large."""
    return devices.empty(shape, np.dtype(dtype))


def blocks(count: int, length: int) -> tuple[Array, Array]:
    """Starts and lengths of blocks of about `length` that `count` elements are divided into.

    They depend on the count alone, never on the number of threads.
    """
    number = max(1, -(-count // length))
    bounds = np.arange(number + 1, dtype=np.int64) * count // number
    return bounds[:-1], np.diff(bounds)


def spread(count: int, shortest: int, most: int = 16) -> tuple[Array, Array]:
    """At most `most` such `blocks`, none much shorter than `shortest`."""
    return blocks(count, max(shortest, -(-count // most)))


_EXTREMES = """
low = int64(values[0])
high = low
for k in range(count):
    value = int64(values[k])
    low = value if value < low else low
    high = value if value > high else high
ends[0] = low
ends[1] = high
"""


@cached(why=DTYPES)
def _extremes_routine(code: str) -> Routine:
    return Routine(f"extremes_{code}", ("count",), {"values": code, "ends": "i8"}, _EXTREMES)


def extremes(values: Array, shortest: int) -> tuple[int, int] | None:
    """The lowest and the highest of packed integers (at least one); None: not compiled yet.

    `shortest`: the fewest elements that are worth a chunk.
    """
    find = _extremes_routine(values.dtype.str[1:]).launcher()
    if find is None:
        return None
    starts, lengths = spread(values.size, shortest)
    ends = np.empty((len(starts), 2), np.int64)
    places = np.stack([starts, 2 * np.arange(len(starts))], 1)
    find((values, ends), lengths, places, work=values.size)
    return int(ends.min()), int(ends.max())


def together(calls: Sequence[Callable[[], object]]) -> None:
    """Make calls that release the GIL, on all threads; raise the first error."""
    pending = iter(calls)
    taking = threading.Lock()

    def work() -> None:
        while True:
            with taking:
                call = next(pending, None)
            if call is None:
                return
            call()

    concurrency.call_unlocked(devices.cpu().threads.run, work, work, len(calls) - 1)


def threads() -> int:
    """How many threads the CPU's programs run on."""
    return devices.cpu().traits.threads
