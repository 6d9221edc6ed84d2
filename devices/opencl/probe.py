"""Which vectors of double an OpenCL runtime handles, tried in a child process.

Some runtimes crash while they compile or run wide vectors with mathematical functions, others
compute wrong values in some lanes. This file is also the child's script, so it imports nothing of
lazyfuse: `python -P probe.py INDEX BYTES` prints the seconds that a run takes, or crashes.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

# Bytes. Vectors of 64 bytes are not tried: with them PoCL 3.0 crashes, hangs or computes single
# lanes wrongly. The failures depend on the other lanes' values, so a short trial misses them.
WIDTHS = (32, 16)
# A child hangs if it has computed for 20 seconds, or has hardly computed in 20 seconds of the
# clock. Both are checked, because on a busy machine a sound child is slow.
_PATIENCE = 20
_NOTHING = 0.1
_ELEMENTS = 102_400  # whole vectors of every width
_RUNS = 5
_TEXT = """
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
__kernel void probe(__global const double *x, __global double *y, const long n) {
    for (long i = 0; i + WIDTH <= n; i += WIDTH) {
        VECTOR v = LOAD(0, x + i);
        VECTOR f = sin(v) + 3 * exp(-v) + log(v) / 10 + pow(v, v / v / 4) / 30;
        STORE(select(f + v / (floor(v) + 1), sqrt(-v), v < 0), 0, y + i);
    }
}
"""


def devices() -> list[Any]:
    """Every OpenCL device of every platform, in the order of the runtime."""
    import pyopencl

    try:
        platforms = pyopencl.get_platforms()
    except pyopencl.Error:  # the loader's error where there is no platform
        return []
    found: list[Any] = []
    for platform in platforms:
        try:
            found += platform.get_devices()
        except pyopencl.Error:  # a platform without devices
            continue
    return found


def best_width(index: int) -> int:
    """Bytes of the fastest vectors that device `index` handles; 0: none."""
    with ThreadPoolExecutor(len(WIDTHS)) as pool:
        seconds = pool.map(lambda width: _ask(index, width), WIDTHS)
    times = {width: taken for width, taken in zip(WIDTHS, seconds, strict=True) if taken}
    return min(times, key=times.__getitem__, default=0)


def _ask(index: int, width: int) -> float | None:
    """Seconds that a child took; None: it crashed, hung or gave wrong values."""
    command = [sys.executable, "-P", __file__, str(index), str(width)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            # a new folder: PoCL's own cache would hide that it cannot build
            variables = os.environ | {"POCL_CACHE_DIR": folder}
            pipe = subprocess.PIPE
            with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=variables) as child:
                try:
                    return float(_answer(child))
                finally:
                    child.kill()
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _answer(child: subprocess.Popen[bytes]) -> bytes:
    """The output of a child. Raises `SubprocessError` if it hangs or fails."""
    computed = 0.0
    while True:
        try:
            answer = child.communicate(timeout=_PATIENCE)[0]
        except subprocess.TimeoutExpired:
            before, computed = computed, _processor_seconds(child.pid)
            if computed - before < _NOTHING:
                raise
        else:
            if child.returncode:
                raise subprocess.CalledProcessError(child.returncode, child.args)
            return answer


def _processor_seconds(process: int) -> float:
    """Processor time of a process with all its threads; 0.0 where the system does not report it."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (AttributeError, OSError, ValueError, IndexError):
        return 0.0


def run(index: int, width: int) -> float:
    """Run vectors of `width` bytes on device `index`; the shortest time, if values are right."""
    import pyopencl as cl

    device = devices()[index]
    context = cl.Context([device])
    commands = cl.CommandQueue(context)
    program = cl.Program(context, _TEXT).build(_options(width // 8))
    kernel = cl.Kernel(program, "probe")
    # Arguments of all magnitudes in random order: runtimes have failed where one lane needs another
    # method than its neighbours. One element of offset makes loads and stores unaligned.
    random = np.random.default_rng(1)
    x = random.standard_normal(_ELEMENTS + 1) * 10.0 ** random.integers(-3, 9, _ELEMENTS + 1)
    x[::37] = np.inf
    x[::41] = np.nan
    x, y = x[1:], np.zeros(_ELEMENTS + 1)[1:]
    how = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    buffers = [cl.Buffer(context, how, hostbuf=each) for each in (x, y)]
    kernel.set_args(*buffers, np.int64(_ELEMENTS))
    best = float("inf")
    for _ in range(_RUNS):
        start = time.perf_counter()
        cl.enqueue_nd_range_kernel(commands, kernel, (1,), (1,)).wait()
        best = min(best, time.perf_counter() - start)
    cl.enqueue_copy(commands, y, buffers[1])
    np.testing.assert_allclose(y, _expected(x), 1e-12, 1e-12)
    return best


def _expected(x: Any) -> Any:
    """The values that the program has to compute."""
    with np.errstate(all="ignore"):
        found = np.sin(x) + 3 * np.exp(-x) + np.log(x) / 10 + x ** (x / x / 4) / 30
        return np.where(x < 0, np.sqrt(-x), found + x / (np.floor(x) + 1))


def _options(width: int) -> list[str]:
    names = {"VECTOR": f"double{width}", "LOAD": f"vload{width}", "STORE": f"vstore{width}"}
    return [f"-D{name}={text}" for name, text in {"WIDTH": width, **names}.items()]


def _set_limits() -> None:
    """Limit the child's time, and write no core file: a crash or a hang is a valid answer here."""
    try:
        resource = importlib.import_module("resource")  # not on every system
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (_PATIENCE, _PATIENCE))
    except (ImportError, OSError, ValueError):
        pass


if __name__ == "__main__":
    _set_limits()
    print(run(int(sys.argv[1]), int(sys.argv[2])))
