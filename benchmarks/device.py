"""What a device can do at best, what our kernels reach of it, and from which size on it pays."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
import os
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.case import CASES
from benchmarks.libraries import OURS, Library, of_lazyfuse, present
from benchmarks.measure import measure

COPIED = 256 << 20
"""Bytes of the copy that kernels are compared with: no cache holds them."""

TURNS = 7

SWEPT = ("00_add", "02_chain10", "03_expsinlog", "08_reductions")
"""Cases whose crossover is looked for: memory, a chain, functions, sums."""

SIZES = tuple(int(10 ** (half / 2)) for half in range(9, 15))
"""Where crossovers are looked for; smaller arrays run in NumPy at once, whatever the device."""

GPU_PEERS = ("cupy", "jax", "torch")


def describe(name: str, seconds: float) -> dict[str, Any]:
    """Figures of a device, for the record; ends the program if it cannot be used."""
    found = _open(name)
    traits = found.traits
    figures = {
        "name": traits.name,
        "model": traits.model,
        "platform": traits.platform,
        "driver": traits.driver,
        "kind": traits.kind,
        "threads": traits.threads,
        "shares_memory": traits.shares_memory,
    }
    figures |= _bandwidths(found)
    figures["crossover"] = {case: _crossover(case, name, seconds) for case in SWEPT}
    return figures


def show(figures: dict[str, Any]) -> None:
    """Print the figures of `describe`."""
    print(f"{figures['name']}: {figures['model']} ({figures['platform']}, {figures['driver']})")
    launch, wait = figures["launch_seconds"] * 1e6, figures["wait_seconds"] * 1e6
    print(f"  launch {launch:.1f} us, and {wait:.1f} us for waiting")
    copied = figures["copy_bytes_per_second"]
    print(f"  copying its memory {_rate(copied)}" if copied else f"  {figures['copy_skipped']}")
    for kind in ("map", "reduce"):
        rate = figures[f"{kind}_bytes_per_second"]
        part = f", {rate / copied:.0%} of copying" if copied else ""
        print(f"  {kind} kernel {_rate(rate)}{part}")
    for case, sizes in figures["crossover"].items():
        words = ", ".join(f"{other} {_from(size)}" for other, size in sizes.items())
        print(f"  {case} is faster there than {words}")


def _rate(value: float) -> str:
    return f"{value / 1e9:.1f} GB/s"


def _from(size: int | None) -> str:
    return f"at no size up to {SIZES[-1]:.0e}" if size is None else f"from n = {size:.0e}"


def _open(name: str) -> Any:
    registry = importlib.import_module("lazyfuse.devices.registry")
    base = importlib.import_module("lazyfuse.devices.base")
    try:
        return registry.device(name)
    except base.DeviceError as error:
        raise SystemExit(str(error)) from error


# Bandwidth


def _bandwidths(device: Any) -> dict[str, Any]:
    """Launch overhead, and the best that copying, a map and a reduction reach."""
    calibrate = importlib.import_module("lazyfuse.runtime.placement.calibrate")
    cost = importlib.import_module("lazyfuse.devices.cost")
    costs = cost.measure(device, calibrate.probes(device, (1 << 17, 1 << 20, COPIED // 8)))
    if not costs.tiers:
        raise SystemExit(f"{device.traits.name} runs none of the programs that are timed")
    tier = next(iter(costs.tiers.values()))
    copied, skipped = _copy_rate(device)
    return {
        "launch_seconds": tier.launch,
        "wait_seconds": tier.wait,
        "copy_bytes_per_second": copied,
        "copy_skipped": skipped,
        "map_bytes_per_second": tier.map_rates[-1][1],
        "reduce_bytes_per_second": tier.reduce_rates[-1][1],
        "additions_per_second": tier.arithmetic,
        "functions_per_second": tier.functions,
        "upload_bytes_per_second": _finite(costs.upload.rate),
        "download_bytes_per_second": _finite(costs.download.rate),
        "build_seconds": tier.compile,
    }


def _finite(rate: float) -> float | None:
    return rate if math.isfinite(rate) else None


def _copy_rate(device: Any) -> tuple[float, str]:
    """Bytes read and written per second by clEnqueueCopyBuffer; 0 and why, where there is none."""
    if importlib.util.find_spec("pyopencl") is None:
        return 0.0, "copying was not measured: no pyopencl"
    cl = importlib.import_module("pyopencl")
    traits = device.traits
    for platform in cl.get_platforms():
        for each in platform.get_devices():
            if each.name.strip() == traits.model.strip():
                return _timed_copy(cl, each), ""
    return 0.0, f"copying was not measured: no OpenCL device is called {traits.model!r}"


def _timed_copy(cl: Any, device: Any) -> float:
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    size: int = min(COPIED, device.max_mem_alloc_size)
    buffers = [cl.Buffer(context, cl.mem_flags.READ_WRITE, size) for _ in range(2)]
    cl.enqueue_fill_buffer(queue, buffers[0], np.uint8(1), 0, size)

    def copy() -> None:
        cl.enqueue_copy(queue, buffers[1], buffers[0], byte_count=size)
        queue.finish()

    shortest: float = min(timeit.repeat(copy, number=1, repeat=TURNS))
    return 2 * size / shortest


# Where it begins to pay


def _crossover(case: str, name: str, seconds: float) -> dict[str, int | None]:
    """The size from which on the device is faster than NumPy, and than our CPU device."""
    columns = present((), name)
    first: dict[str, int | None] = {"numpy": None, "cpu": None}
    for size in SIZES:
        rows = measure(CASES[case], size, columns, min(seconds, 0.05))
        theirs = rows[-1].steady if not rows[-1].error else math.inf
        for other, row in (("numpy", rows[0]), ("cpu", rows[1])):
            if theirs >= row.steady:
                first[other] = None
            elif first[other] is None:
                first[other] = size
    return first


# Other libraries on the same GPU


def peers(name: str) -> list[Library]:
    """CuPy, JAX and PyTorch on the GPU, as far as they are there, and our results left there."""
    traits = _open(name).traits
    if traits.kind != "gpu":
        print("no GPU: cupy, jax and torch are left out")
        return []
    found = [] if traits.shares_memory else [_staying(name)]
    for peer in GPU_PEERS:
        if importlib.util.find_spec(peer) is None:
            print(f"{peer} is not installed: left out")
            continue
        try:
            found.append(_PEERS[peer](importlib.import_module(peer)))
        except Exception as error:  # whatever a library says about drivers that it misses
            print(f"{peer} finds no GPU that it can use: {error}"[:200])
    return found


def _staying(name: str) -> Library:
    """Our library with results computed but not copied to the host: what the peers do."""
    usual = of_lazyfuse(f"{OURS} {name}, stays", name)
    evaluate = importlib.import_module("lazyfuse").evaluate
    device = _open(name)

    def force(result: Any) -> Any:
        evaluate(*(result if type(result) is tuple else (result,)))
        device.wait()
        return result

    return Library(usual.name, usual.version, usual.runner, usual.take, force, enter=usual.enter)


def _cupy(cupy: Any) -> Library:
    cupy.zeros(1).sum()  # fails here where no GPU can be used
    stream = cupy.cuda.get_current_stream()

    def back(result: Any) -> tuple[Any, ...]:
        parts = result if isinstance(result, tuple) else (result,)
        return tuple(cupy.asnumpy(part) for part in parts)

    return _peer("cupy", cupy, cupy, cupy.asarray, stream.synchronize, back)


def _jax(jax: Any) -> Library:
    # read when a device is first used: else JAX takes three quarters of the memory for itself
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax.config.update("jax_enable_x64", True)
    (gpu, *_) = jax.devices("gpu")
    jnp = importlib.import_module("jax.numpy")

    def runner(case: Any) -> Any:
        return jax.jit(functools.partial(case.run, jnp)) if case.functional else None

    def take(value: Any) -> Any:
        return jax.device_put(value, gpu) if isinstance(value, np.ndarray) else value

    return Library("jax.jit", jax.__version__, runner, take, jax.block_until_ready)


def _torch(torch: Any) -> Library:
    torch.zeros(1, device="cuda").sum()

    def take(value: Any) -> Any:
        return torch.from_numpy(value.copy()).to("cuda")

    def back(result: Any) -> tuple[Any, ...]:
        parts = result if isinstance(result, tuple) else (result,)
        return tuple(part.cpu().numpy() for part in parts)

    return _peer("torch", torch, torch, take, torch.cuda.synchronize, back)


def _peer(
    name: str,
    module: Any,
    xp: Any,
    take: Callable[[Any], Any],
    wait: Callable[[], None],
    back: Callable[[Any], tuple[Any, ...]],
) -> Library:
    """A library whose functions return before they have run."""

    def force(result: Any) -> Any:
        wait()
        return result

    return Library(
        name,
        module.__version__,
        lambda case: functools.partial(case.run, xp),
        lambda value: take(value) if isinstance(value, np.ndarray) else value,
        force,
        back,
    )


_PEERS = {"cupy": _cupy, "jax": _jax, "torch": _torch}
