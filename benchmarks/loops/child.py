"""A program in a process of its own, called when standard input says so.

    python [-m lazyfuse] child.py JOB

Imports nothing of `benchmarks`: the launcher is to see a program as users have them. JOB names a
file, a function of it and the arguments: a size, or what a file of NPBench makes. `numba` compiles
all functions of the file with `numba.njit`.

Lines that are read: `call TIMES` and `warm SECONDS`, answered by the seconds of each call; `save
FILE`, the last results; `loops`; `finish SECONDS`, which waits for what is being compiled, so that
the next process finds it on disk.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import pickle
import sys
import time
from typing import Any

import numpy as np


def main(job: dict[str, Any]) -> None:
    """Answer line by line until there are no more."""
    sys.path.insert(0, job["file"].rpartition("/")[0])
    np.random.default_rng(0).random(3)  # a package that NumPy imports late
    call = Call(job)
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        answer: Any = None
        if word == "call":
            answer = [call() for _ in range(int(rest))]
        elif word == "warm":
            answer, end = [call()], time.perf_counter() + float(rest)
            while time.perf_counter() < end:
                answer.append(call())
        elif word == "save":
            with open(rest, "wb") as file:
                pickle.dump([described(each) for each in call.results], file)
        elif word == "loops":
            answer = loops(job["file"])
        elif word == "finish" and "lazyfuse" in sys.modules:
            sys.modules["lazyfuse.runtime.placement.devices"].cpu().finish(float(rest))
        print(json.dumps(answer), flush=True)


class Call:
    """A program's function with its arguments; every call gets fresh copies of them."""

    def __init__(self, job: dict[str, Any]) -> None:
        program = compiled(job["file"]) if job.get("numba") else loaded(job["file"])
        self.function = program[job["function"]]
        self.given: list[Any] = [job["size"]] if "size" in job else made(job)
        self.results: list[Any] = []

    def __call__(self) -> float:
        given = [x.copy() if hasattr(x, "dtype") else x for x in self.given]
        for each in given:
            look(each)
        began = time.perf_counter()
        results = flat(self.function(*given))
        for each in (*results, *given):
            look(each)
        took = time.perf_counter() - began
        self.results = results + [each for each in given if getattr(each, "shape", ())]
        return took


def loaded(path: str) -> dict[str, Any]:
    """A program, imported."""
    name = path.rpartition("/")[2].removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)


def compiled(path: str) -> dict[str, Any]:
    """A program whose functions are numba's: one thread, no `fastmath`."""
    numba = importlib.import_module("numba")
    with open(path) as file:
        tree = ast.parse(file.read())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = [ast.Name("_njit", ast.Load())]
    scope = {"_njit": numba.njit, "__name__": "program"}
    exec(compile(ast.fix_missing_locations(tree), path, "exec"), scope)
    return scope


def made(job: dict[str, Any]) -> list[Any]:
    """The arguments of a program of NPBench, with other dtypes if asked."""
    data, init = dict(job["parameters"]), job["init"]
    np.random.seed(0)
    values = loaded(job["maker"])[init["func_name"]](*[data[name] for name in init["input_args"]])
    names = init["output_args"]
    data.update(zip(names, values if isinstance(values, tuple) else (values,), strict=True))
    given = [data[name] for name in job["arguments"]]
    return [other_dtype(each) for each in given] if job.get("other_dtype") else given


def other_dtype(value: Any) -> Any:
    """Single precision for double, int64 for other integers, int32 for int64."""
    kind = getattr(value, "dtype", np.dtype(object))
    if kind == np.float64:
        return value.astype(np.float32)
    if kind.kind in "iu":
        return value.astype(np.int32 if kind == np.int64 else np.int64)
    return value


def flat(value: Any) -> list[Any]:
    """The parts of a result."""
    if isinstance(value, (tuple, list)):
        return [part for each in value for part in flat(each)]
    return [] if value is None else [value]


def look(value: Any) -> None:
    """Ask for a value, which may not have been computed."""
    if hasattr(value, "dtype"):
        array: Any = np.asarray(value)
        memoryview(array).release()


def described(value: Any) -> tuple[str, Any, Any, Any]:
    """A result as its type, dtype, shape and bytes; of Python's objects, their text."""
    if not hasattr(value, "dtype"):
        return type(value).__name__, None, None, repr(value)
    array = np.asarray(value)
    kind = "ndarray" if array.ndim else "scalar"
    return kind, array.dtype.str, tuple(array.shape), array.tobytes()


def loops(path: str) -> list[Any]:
    """What the launcher says of the loops of the program."""
    ours = sys.modules.get("lazyfuse")
    return [each for each in ours.explain_loops() if each.file == path] if ours else []


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
