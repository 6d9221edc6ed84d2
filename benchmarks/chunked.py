"""`python -m benchmarks.chunked`: arrays in chunks, dask.array and lazyfuse by turns.

Both get the same chunks and the same scheduler: threads of this process, or a LocalCluster of two
processes (`--scheduler cluster`). Each case begins from chunks in memory and ends with a number. A
figure is the median of the turns; tasks are those that the scheduler runs, after `dask.optimize`.
`--cubed` adds cubed where it can run a case, on threads. `--growth` builds graphs of more and more
chunks and runs none; `--stream` reads a file that is larger than the memory allowed.
"""

from __future__ import annotations

import argparse
import math
import pickle
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dask
import dask.array
import numpy
from dask._task_spec import Task
from dask.callbacks import Callback

import lazyfuse
from benchmarks import streaming

Program = Callable[[Any, Any], Any]


def chain(xp: Any, x: Any) -> Any:
    """Ten operations on each element."""
    return (((((x * 2 + 1) * x - 3) * 0.5 + x) * x - 0.25) * x + 4) * 1.5


def black_scholes(xp: Any, spot: Any) -> Any:
    """The price of an option, the normal distribution by a logistic function."""
    strike, years, rate, volatility = 0.6, 1.0, 0.02, 0.3
    spread = volatility * years**0.5
    first = (xp.log(spot / strike) + (rate + volatility * volatility / 2) * years) / spread
    second = first - spread
    inside = 1 / (1 + xp.exp(-1.702 * first))
    paid = 1 / (1 + xp.exp(-1.702 * second))
    return spot * inside - strike * math.exp(-rate * years) * paid


def standardise(xp: Any, x: Any) -> Any:
    """Columns with mean 0 and deviation 1, outliers clipped."""
    return ((x - x.mean(axis=0)) / x.std(axis=0)).clip(-1, 1.5)


def masked_mean(xp: Any, x: Any) -> Any:
    """The mean of the elements above a bound."""
    mask = x > 0.5
    return xp.where(mask, x, 0.0).sum() / mask.sum()


def _relaxed(block: Any) -> Any:
    new = block.copy()
    new[1:-1, 1:-1] = 0.25 * (
        block[1:-1, :-2] + block[1:-1, 2:] + block[:-2, 1:-1] + block[2:, 1:-1]
    )
    return new


def jacobi(xp: Any, u: Any) -> Any:
    """Three rounds; the edges of the array stay."""
    for _ in range(3):
        if xp is dask.array:  # it has no such updates: blocks with edges of their neighbours
            u = dask.array.map_overlap(_relaxed, u, depth=1, boundary="none", dtype=u.dtype)
        else:
            u = _relaxed(u)
    return u


def product(xp: Any, x: Any) -> Any:
    """A product of matrices."""
    return x @ x


class Case(NamedTuple):
    """A program, the speed beside dask.array's that is wanted, and whether cubed can run it."""

    program: Program
    goal: float
    cubed: bool
    divisor: int = 1  # of the length of each side, and pieces along both axes


CASES = {
    "chain of ten": Case(chain, 3.0, True),
    "Black-Scholes": Case(black_scholes, 3.0, True),
    "standardise and clip": Case(standardise, 2.0, False),
    "masked mean": Case(masked_mean, 1.5, False),
    "Jacobi with edges": Case(jacobi, 1.5, False),
    "product": Case(product, 1.0, False, 4),
}


def chunks_of(case: Case, size: int, pieces: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The shape of a case's array and of its chunks: rows, or squares for products."""
    side = size // case.divisor
    piece = -(-side // pieces)
    return (side, side), ((piece, piece) if case.divisor > 1 else (piece, side))


def operand(case: Case, size: int, pieces: int) -> Any:
    """The array of a case as one of dask, its chunks in memory."""
    shape, chunks = chunks_of(case, size, pieces)
    return (dask.array.random.default_rng(0).random(shape, chunks=chunks) + 0.1).persist()


def by_dask(case: Case, x: Any) -> float:
    """What a user of dask.array has."""
    return float(case.program(dask.array, x).sum().compute())


def by_lazyfuse(case: Case, x: Any) -> float:
    """The same with lazyfuse, on dask's chunks."""
    return float(case.program(lazyfuse, lazyfuse.from_chunks(x)).sum())


class Given(Callback):  # type: ignore[misc]
    """The tasks that a local scheduler is given."""

    def __init__(self) -> None:
        self.graphs: list[dict[Any, Any]] = []
        super().__init__(start=self.graphs.append)

    def count(self) -> int:
        """How many, without values that are there and other names of tasks."""
        return sum(isinstance(task, Task) for graph in self.graphs for task in graph.values())


def counted(run: Callable[[Case, Any], float], case: Case, pieces: int) -> int:
    """The tasks of a case with small chunks, as many as the large ones."""
    with dask.config.set(scheduler="sync"):
        x = operand(case, 64 * pieces, pieces)
        with Given() as given:
            run(case, x)
    return given.count()


def timed(call: Callable[[], float]) -> tuple[float, float]:
    """The seconds of a call, and its result."""
    began = time.perf_counter()
    found = call()
    return time.perf_counter() - began, found


def compare(
    size: int, pieces: int, turns: int, wait: Callable[[Any], Any], cubed: bool = False
) -> None:
    """Print a table of all cases."""
    peer = _cubed() if cubed else None
    head = f"{'':22}{'dask':>8}{'ours':>8}{'ratio':>7}{'goal':>6}{'first':>8}"
    print(f"{head}{'tasks':>12}{'share':>7}" + (f"{'cubed':>8}" if peer else ""))
    for name, case in CASES.items():
        tasks = counted(by_dask, case, pieces), counted(by_lazyfuse, case, pieces)
        x = operand(case, size, pieces)
        wait(x)
        runs: dict[str, Callable[[], float]] = {
            "dask": lambda case=case, x=x: by_dask(case, x),  # type: ignore[misc]
            "ours": lambda case=case, x=x: by_lazyfuse(case, x),  # type: ignore[misc]
        }
        first, _ = timed(runs["ours"])
        timed(runs["dask"])
        seconds: dict[str, list[float]] = {each: [] for each in runs}
        found: dict[str, float] = {}
        for _ in range(turns):
            for each, run in runs.items():
                spent, found[each] = timed(run)
                seconds[each].append(spent)
        if not numpy.isclose(found["dask"], found["ours"], rtol=1e-9):
            raise SystemExit(f"{name}: dask has {found['dask']!r}, lazyfuse {found['ours']!r}")
        dask_s, ours_s = (statistics.median(seconds[each]) for each in runs)
        line = f"{name:22}{dask_s:8.3f}{ours_s:8.3f}{dask_s / ours_s:7.2f}{case.goal:6.1f}"
        line += f"{first:8.3f}{tasks[0]:>6}{tasks[1]:>6}{tasks[1] / tasks[0]:7.2f}"
        if peer and case.cubed:
            line += f"{_seconds_of_cubed(peer, case, size, pieces):8.3f}"
        print(line, flush=True)


def _cubed() -> Any:
    """The module `cubed`, or None."""
    try:
        import cubed.array_api
    except ImportError:
        return None
    return cubed


def _seconds_of_cubed(cubed: Any, case: Case, size: int, pieces: int) -> float:
    """The time of one run of cubed, which keeps chunks in files: it holds reading and writing."""
    import cubed.array_api as xp

    shape, chunks = chunks_of(case, size, pieces)
    with tempfile.TemporaryDirectory() as folder:
        spec = cubed.Spec(folder, allowed_mem="4GB")
        values = numpy.random.default_rng(0).random(shape) + 0.1
        x = cubed.from_array(values, chunks=chunks, spec=spec)
        return timed(lambda: float(xp.sum(case.program(xp, x)).compute()))[0]


def growth(most: int) -> None:
    """Print what graphs of more and more chunks take to build, and to send."""
    print(
        f"{'chunks':>8}{'dask s':>9}{'tasks':>9}{'B/task':>8}{'ours s':>9}{'tasks':>9}{'B/task':>8}"
    )
    count = 10
    while count <= most:
        x = dask.array.ones((count * 4, 8), chunks=(4, 8))
        spent = [_built(case, x) for case in (_dask_graph, _our_graph)]
        print(f"{count:8}" + "".join(f"{s:9.3f}{n:9}{size / n:8.0f}" for s, n, size in spent))
        count *= 10


def _dask_graph(x: Any) -> dict[Any, Any]:
    (found,) = dask.optimize(standardise(dask.array, x))
    return dict(found.__dask_graph__())


def _our_graph(x: Any) -> dict[Any, Any]:
    with lazyfuse.options(chunk_memory=0):  # nothing is stored, so nothing runs
        found = standardise(lazyfuse, lazyfuse.from_chunks(x)).to_dask()
    return dict(found.__dask_graph__())


def _built(make: Callable[[Any], dict[Any, Any]], x: Any) -> tuple[float, int, int]:
    """Seconds to build a graph, its tasks, and the bytes of all of them pickled."""
    began = time.perf_counter()
    graph = make(x)
    return time.perf_counter() - began, len(graph), len(pickle.dumps(graph, protocol=5))


def main(given: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chunked", description=__doc__)
    parser.add_argument("--scheduler", choices=("threads", "cluster"), default="threads")
    parser.add_argument("--size", type=int, default=8000, help="rows and columns")
    parser.add_argument("--pieces", type=int, default=8, help="chunks along the first axis")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--cubed", action="store_true", help="one run of cubed, too")
    parser.add_argument("--growth", action="store_true", help="build graphs, run none")
    parser.add_argument("--most", type=int, default=100_000, help="chunks of --growth")
    parser.add_argument("--stream", action="store_true", help="a file larger than memory")
    parser.add_argument("--gigabytes", type=float, default=20.0, help="of the file of --stream")
    parser.add_argument("--allowed", type=float, default=4.0, help="gigabytes of address space")
    parser.add_argument("--format", choices=("npy", "zarr"), default="npy", help="of the file")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args(given)
    if options.growth:
        growth(options.most)
    elif options.stream:
        streaming.measure(options.gigabytes, options.allowed, options.format, options.folder)
    elif options.scheduler == "threads":
        with dask.config.set(scheduler="threads"):
            compare(options.size, options.pieces, options.turns, lambda x: x, options.cubed)
    else:
        from dask.distributed import Client, LocalCluster, wait

        own = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
        with own as cluster, Client(cluster):
            compare(options.size, options.pieces, options.turns, wait, options.cubed)


if __name__ == "__main__":
    main(sys.argv[1:])
