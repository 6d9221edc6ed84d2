"""Texts of NPBench's programs with small differences: a loop is to be compiled for what it does.

Other names of variables; other dtypes of the arguments; one more `if` in each innermost loop.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from benchmarks.loops import npbench, turns
from benchmarks.loops.npbench import Row

KINDS = ("original", "names", "dtype", "if")


def other_names(text: str) -> str:
    """All variables of functions get other names."""
    tree = ast.parse(text)
    for function in tree.body:
        if isinstance(function, ast.FunctionDef):
            names = {each.arg for each in ast.walk(function) if isinstance(each, ast.arg)} | {
                each.id
                for each in ast.walk(function)
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            }
            for each in ast.walk(function):
                if isinstance(each, ast.Name) and each.id in names:
                    each.id = f"my_{each.id}"
                elif isinstance(each, ast.arg):
                    each.arg = f"my_{each.arg}"
    return ast.unparse(tree)


def another_if(text: str) -> str:
    """Each innermost loop notes every third of its turns."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        loops = [each for each in ast.walk(node) if isinstance(each, (ast.For, ast.While))]
        if loops == [node] and isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            name = node.target.id
            added = ast.parse(f"if {name} % 3 == 1:\n    noted = {name}")
            node.body = added.body + node.body
    return ast.unparse(tree)


def run(names: Sequence[str], preset: str, rounds: int, warm: float) -> list[Row]:
    """Run and show programs and their variants."""
    print(f"speed beside Python's\n{'program':<12}" + "".join(f"{kind:>10}" for kind in KINDS))
    rows = []
    for name in names:
        with turns.cache() as folder:
            given = npbench.job(name, preset)
            text = Path(given["file"]).read_text()
            jobs = {"original": given, "dtype": given | {"other_dtype": True}}
            for kind, changed in (("names", other_names(text)), ("if", another_if(text))):
                place = Path(folder, kind)
                place.mkdir()
                path = place / Path(given["file"]).name
                path.write_text(changed)
                jobs[kind] = given | {"file": str(path)}
            found = [
                npbench.measure(f"{name} {kind}", jobs[kind], rounds, folder, warm, False)
                for kind in KINDS
            ]
        speeds = "".join(f"{row.speed('lazyfuse', 'python'):10.2f}" for row in found)
        told = "; ".join(
            f"{kind}: {fault}"
            for kind, row in zip(KINDS, found, strict=True)
            if (fault := row.faults.get("lazyfuse") or row.faults.get("python"))
        )
        print(f"{name:<12}{speeds}  {told}", flush=True)
        rows += found
    return rows
