"""numba: the NumPy code under `njit(parallel=True)`, and loops written by hand."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.cases.examples import printed
from benchmarks.libraries import Library, Runner, kept
from benchmarks.peers import examples
from benchmarks.peers.examples_in_numba import LOOPS

prange = range  # numba reads this name as its own parallel range, see `_compiled`
_LOOPS: dict[str, Callable[..., Any]] = {}


def _loop(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _LOOPS[name] = function
        return function

    return register


@_loop("00_add")
def _add(a: Any, b: Any) -> Any:
    out = np.empty_like(a)
    for i in prange(a.size):
        out[i] = a[i] + b[i]
    return out


@_loop("01_triad")
def _triad(a: Any, b: Any, c: Any) -> Any:
    out = np.empty_like(a)
    for i in prange(a.size):
        out[i] = a[i] * b[i] + c[i] * a[i] - b[i]
    return out


@_loop("02_chain10")
def _chain(a: Any, b: Any) -> Any:
    out = np.empty_like(a)
    for i in prange(a.size):
        x, y = a[i], b[i]
        out[i] = (((x + y) * x - y) * 0.5 + x * y) * (x - 0.25) + y * 3.0 - x
    return out


@_loop("03_expsinlog")
def _exp_sin_log(x: Any) -> Any:
    out = np.empty_like(x)
    for i in prange(x.size):
        out[i] = math.exp(x[i]) * math.sin(x[i]) + math.log(x[i])
    return out


@_loop("08_reductions")
def _reductions(a: Any, b: Any) -> Any:
    n = a.size
    squares, total, product, product2 = 0.0, 0.0, 0.0, 0.0
    low, high = np.inf, -np.inf
    for i in prange(n):
        d, p = a[i] - b[i], a[i] * b[i]
        squares += d * d
        total += a[i]
        product += p
        product2 += p * p
        low = min(low, d)
        high = max(high, d)
    mean = product / n
    return math.sqrt(squares), total / n, math.sqrt(product2 / n - mean * mean), low, high


@_loop("09_mask_sum")
def _mask_sum(x: Any) -> Any:
    total = 0.0
    for i in prange(x.size):
        if x[i] > 1.0:
            total += x[i]
    return total


@_loop("10_mask_assign")
def _mask_assign(x: Any) -> Any:
    out = np.empty_like(x)
    for i in prange(x.size):
        y = x[i] * 2.0
        out[i] = 0.0 if y > 2.0 else y
    return out


@_loop("11_jacobi2d")
def _jacobi(grid: Any) -> Any:
    u, new = grid.copy(), grid.copy()
    for _ in range(20):
        for i in prange(1, u.shape[0] - 1):
            for j in range(1, u.shape[1] - 1):
                new[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
        u, new = new, u
    return u


@_loop("13_mandelbrot")
def _mandelbrot(x: Any, y: Any) -> Any:
    out = np.zeros_like(x)
    for i in prange(x.shape[0]):
        for j in range(x.shape[1]):
            a = b = count = 0.0
            for _ in range(20):
                if a * a + b * b > 4.0:
                    break
                a, b = a * a - b * b + x[i, j], 2.0 * a * b + y[i, j]
                count += 1.0
            out[i, j] = count
    return out


@_loop("15_kmeans")
def _nearest(data: Any, centres: Any) -> Any:
    labels = np.empty(data.shape[0], np.int64)
    total = 0.0
    for i in prange(data.shape[0]):
        best, place = np.inf, 0
        for k in range(centres.shape[0]):
            dx, dy = data[i, 0] - centres[k, 0], data[i, 1] - centres[k, 1]
            distance = dx * dx + dy * dy
            if distance < best:
                best, place = distance, k
        labels[i] = place
        total += best
    return labels, total


@_loop("05_softmax")
def _softmax(x: Any) -> Any:
    out = np.empty_like(x)
    for i in prange(x.shape[0]):
        largest = -np.inf
        for j in range(x.shape[1]):
            largest = max(largest, x[i, j])
        total = 0.0
        for j in range(x.shape[1]):
            out[i, j] = math.exp(x[i, j] - largest)
            total += out[i, j]
        for j in range(x.shape[1]):
            out[i, j] /= total
    return out


@_loop("06_layernorm")
def _layer_norm(x: Any) -> Any:
    out = np.empty_like(x)
    n = x.shape[1]
    for i in prange(x.shape[0]):
        total = 0.0
        for j in range(n):
            total += x[i, j]
        mean = total / n
        total = 0.0
        for j in range(n):
            total += (x[i, j] - mean) * (x[i, j] - mean)
        scale = 1.5 / math.sqrt(total / n + 1e-5)
        for j in range(n):
            out[i, j] = (x[i, j] - mean) * scale + 0.25
    return out


@_loop("12_heat3d")
def _heat3d(grid: Any) -> Any:
    u, new = grid.copy(), grid.copy()
    for _ in range(10):
        for i in prange(1, u.shape[0] - 1):
            for j in range(1, u.shape[1] - 1):
                for k in range(1, u.shape[2] - 1):
                    around = u[i - 1, j, k] + u[i + 1, j, k] + u[i, j - 1, k] + u[i, j + 1, k]
                    around += u[i, j, k - 1] + u[i, j, k + 1]
                    new[i, j, k] = u[i, j, k] + 0.1 * (around - 6.0 * u[i, j, k])
        u, new = new, u
    return u


@_loop("14_nbody")
def _gravity(x: Any, y: Any, z: Any, mass: Any) -> Any:
    n = x.size
    ax, ay, az = np.empty(n), np.empty(n), np.empty(n)
    for i in prange(n):
        sx, sy, sz = 0.0, 0.0, 0.0
        for j in range(n):
            dx, dy, dz = x[j] - x[i], y[j] - y[i], z[j] - z[i]
            squared = dx * dx + dy * dy + dz * dz + 0.01
            pull = mass[j] / (squared * math.sqrt(squared))
            sx += dx * pull
            sy += dy * pull
            sz += dz * pull
        ax[i], ay[i], az[i] = sx, sy, sz
    return ax, ay, az


@_loop("19_intmix")
def _mix(x: Any) -> Any:
    out = np.empty_like(x)
    for i in prange(x.size):
        v = (x[i] ^ (x[i] >> 13)) * 31 + 7
        v = (v ^ (v << 5)) & 0xFFFFFFFF
        out[i] = (v * 5 - (v >> 3)) % 1009
    return out


@_loop("20_complex")
def _complex_product(z: Any, c: Any) -> Any:
    out = np.empty_like(z)
    for i in prange(z.size):
        out[i] = (z[i] * z[i] + c[i]) * c[i] - 0.5 * z[i]
    return out


@_loop("21_transpose")
def _add_transpose(a: Any) -> Any:
    out = np.empty_like(a)
    for i in prange(a.shape[0]):
        for j in range(a.shape[1]):
            out[i, j] = 0.5 * (a[i, j] + a[j, i]) - a[j, i] * 0.25
    return out


@_loop("22_histogram")
def _histogram(x: Any) -> Any:
    parts = 16
    counts = np.zeros((parts, 64), np.int64)
    length = -(-x.size // parts)
    for part in prange(parts):
        for i in range(part * length, min((part + 1) * length, x.size)):
            value = x[i] * x[i]
            if 0.0 <= value <= 4.0:
                counts[part, min(int(value * 16.0), 63)] += 1
    return counts.sum(axis=0)


@_loop("30_heat")
def _plate(plate: Any) -> Any:
    u, new = plate.copy(), plate.copy()
    for _ in range(60):
        for i in prange(1, u.shape[0] - 1):
            for j in range(1, u.shape[1] - 1):
                around = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
                new[i, j] = u[i, j] + 0.2 * (around - 4.0 * u[i, j])
        u, new = new, u
    return u


@_loop("36_floyd_warshall")
def _floyd_warshall(distances: Any) -> Any:
    d = distances.copy()
    n = d.shape[0]
    for k in range(n):
        for i in prange(n):
            for j in range(n):
                d[i, j] = min(d[i, j], d[i, k] + d[k, j])
    return d


def _compiled(numba: Any, parallel: bool) -> Callable[[Case], Runner | None]:
    globals()["prange"] = numba.prange

    def runner(case: Case) -> Runner | None:
        script = examples.name_of(case)
        if script:
            return examples.ported(case, LOOPS[script]) if parallel else None
        loop = _LOOPS.get(case.name)
        # kept on disk one would be taken for the other: numba's key leaves `parallel` out
        compiled: Runner | None = loop and numba.njit(parallel=parallel, cache=parallel)(loop)
        return compiled

    return runner


# The NumPy code as it stands


def _numpy_style(numba: Any, folder: str) -> Callable[[Case], Runner | None]:
    """The case's own function with `np` for `xp` and a decorator, as its user would write it.

    The text goes into a module of its own, so that numba can keep what it compiles.
    """

    def runner(case: Case) -> Runner | None:
        script = examples.name_of(case)
        if script:
            return _example(numba, case, script)
        text = _undressed(case)
        name = f"numba_{case.name}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        path = Path(folder) / f"{name}.py"
        if not path.exists():
            path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # where numba looks for what it kept
        spec.loader.exec_module(module)
        found: Runner = getattr(module, case.run.__name__)
        return found

    return runner


def _example(numba: Any, case: Case, script: str) -> Runner:
    """The functions of an example with a decorator; what numba refuses is shown as its failure."""
    module = examples.copy_with(case, np)
    for name in (*examples.HELPERS.get(script, ()), *examples.CORES[script]):
        setattr(module, name, numba.njit(parallel=True)(getattr(module, name)))
    return lambda size: printed(module, size)


def _undressed(case: Case) -> str:
    """The functions of the case's module without `xp`, decorated for numba."""
    source = inspect.getsource(sys.modules[case.run.__module__])
    constants, functions = [], {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign):
            constants.append(ast.unparse(node))
        elif isinstance(node, ast.FunctionDef) and node.args.args[:1]:
            functions[node.name] = node
    with_xp = [name for name, node in functions.items() if node.args.args[0].arg == "xp"]
    wanted = [case.run.__name__]
    for name in wanted:
        used = {each.id for each in ast.walk(functions[name]) if isinstance(each, ast.Name)}
        wanted += [other for other in with_xp if other in used and other not in wanted]
    lines = ["import numba", "import numpy as np", *constants]
    for name in reversed(wanted):
        bare = ast.fix_missing_locations(_Undress(with_xp).visit(functions[name]))
        lines.append(f"@numba.njit(parallel=True, cache=True)\n{ast.unparse(bare)}")
    return "\n".join(lines) + "\n"


class _Undress(ast.NodeTransformer):
    """`f(xp, a)` becomes `f(a)`, and `xp.sqrt` `np.sqrt`; annotations and decorators go."""

    def __init__(self, functions: list[str]) -> None:
        self.functions = functions

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list, node.returns = [], None
        node.args.args = [arg for arg in node.args.args if arg.arg != "xp"]
        for arg in node.args.args:
            arg.annotation = None
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id in self.functions:
            node.args = node.args[1:]
        elif ast.unparse(node.func) == "xp.array":  # numba asks for another way to copy
            copy = ast.Call(ast.Attribute(node.args[0], "copy", ast.Load()), [], [])
            return ast.copy_location(copy, node)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Name("np", node.ctx), node) if node.id == "xp" else node


def libraries() -> list[Library]:
    """Three columns: NumPy's code with a decorator, and loops, sequential and `parallel=True`."""
    numba = importlib.import_module("numba")
    version: str = numba.__version__
    return [
        Library("numba.np", version, _numpy_style(numba, kept("numba")), slow=True),
        Library("numba.seq", version, _compiled(numba, parallel=False)),
        Library("numba.par", version, _compiled(numba, parallel=True)),
    ]
