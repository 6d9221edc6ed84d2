"""Breaks central functions, one at a time, and asks whether the tests notice.

`python scripts/mutations.py` works on a copy of the checkout. For each mutation it runs the default
suite until the first failure, and names the test that noticed. More arguments go to pytest:

    python scripts/mutations.py -m smoke
    python scripts/mutations.py --only donation,hazard tests/arrays

`--tests FOLDER` takes the tests of another checkout. Ends with 1 if a mutation went unnoticed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("lazyfuse", "codegen", "devices", "tests", "examples", "benchmarks", "docs", "scripts")


@dataclass(frozen=True)
class Mutation:
    """`old`, which stands once in a file, becomes `new`."""

    name: str
    file: str
    old: str
    new: str


MUTATIONS = (
    Mutation(
        "stretches: an operand of any type leaves the operation to ours",
        "lazyfuse/arrays/stretches.py",
        "        return _ours(right) or type(right) in _NUMBERS\n",
        "        return True\n",
    ),
    Mutation(
        "stretches: what lies deeper on the stack stays pending",
        "lazyfuse/arrays/stretches.py",
        "for x in (*state.stack, *state.operands)",
        "for x in state.stack[-1:]",
    ),
    Mutation(
        "broadcast: two lengths that differ are no error",
        "codegen/graph/shapes.py",
        "            if result[axis] != 1:\n                raise ValueError(mismatch(shapes))\n",
        "",
    ),
    Mutation(
        "promotion: sums of small integers keep their dtype",
        "codegen/table/promotion.py",
        'requested = np.dtype(np.uint64 if dtype.kind == "u" else np.int64)',
        "requested = dtype",
    ),
    Mutation(
        "summation: a pairwise tree is cut one vector further",
        "codegen/lowering/summation.py",
        "    return half - half % 8\n",
        "    return half - half % 8 + 8\n",
    ),
    Mutation(
        "clusters: a map shares the kernel of the reduction that it reads",
        "codegen/plan/cluster.py",
        'elif self.values[source].op.kind == "reduce":\n            why = "reads',
        'elif self.values[source].op.kind == "none":\n            why = "reads',
    ),
    Mutation(
        "donation: a leaf that others hold is written in place",
        "lazyfuse/runtime/execution/run_values.py",
        "if value.origin not in self.free or self.keeps_leaves():",
        "if False:",
    ),
    Mutation(
        "hazard: a kernel stores over what it still reads",
        "lazyfuse/runtime/execution/update_hazards.py",
        "if run.off_cpu or not any(overlap(part, loaded) for loaded in inputs):",
        "if run.off_cpu or True:",
    ),
    Mutation(
        "ownership: memory that was handed out is not seen by others",
        "lazyfuse/arrays/storage.py",
        "return self.own < 0 or references.of(self.array) > self.own",
        "return self.own < 0 and references.of(self.array) > self.own",
    ),
    Mutation(
        "strides: a repeated operand is read on",
        "lazyfuse/runtime/layout/strides.py",
        "strides.append(0 if own[axis] == 1 else stride // size)",
        "strides.append(stride // size)",
    ),
    Mutation(
        "conditions: an overflow says nothing",
        "lazyfuse/runtime/numerics/fp_flags.py",
        "bits |= DIVIDE | OVER if np.isinf(array).any() else 0",
        "bits |= DIVIDE if np.isinf(array).any() else 0",
    ),
    Mutation(
        "disk cache: damaged entries are believed",
        "devices/pools/disk_cache.py",
        'return _MAGIC + hashlib.sha256(name.encode() + b"\\n" + data).digest()',
        "return _MAGIC + bytes(32)",
    ),
    Mutation(
        "OpenCL: products are contracted with sums",
        "codegen/opencl/expressions.py",
        'lines = ["#pragma OPENCL FP_CONTRACT OFF"]',
        'lines = ["#pragma OPENCL FP_CONTRACT ON"]',
    ),
)


def copy_of(tests: Path, folder: Path) -> None:
    """The checkout without what is built, with the tests of `tests`."""
    ignore = shutil.ignore_patterns("__pycache__", "*.so", "compiled.txt")
    for name in FOLDERS:
        source = (tests if name == "tests" else ROOT) / name
        shutil.copytree(source, folder / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "setup.py", "MANIFEST.in"):
        shutil.copy((tests if name == "pyproject.toml" else ROOT) / name, folder)


def noticed(mutation: Mutation, folder: Path, arguments: list[str]) -> str:
    """The first failure, or nothing, of the suite with a mutation."""
    path = folder / mutation.file
    text = path.read_text()
    if text.count(mutation.old) != 1:
        raise SystemExit(f"{mutation.name}: its text is no longer in {mutation.file}")
    path.write_text(text.replace(mutation.old, mutation.new))
    # the copy is what is imported, here and in the processes that tests start
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "--no-header", *arguments]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    finally:
        path.write_text(text)
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if found is None and done.returncode:
        return f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-300:]}"
    return found[1] if found else ""


def main() -> int:
    """Try every mutation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", help="names, or their beginnings, with commas")
    parser.add_argument("--tests", default=str(ROOT), help="a checkout whose tests are run")
    chosen, arguments = parser.parse_known_args()
    wanted = tuple(each for each in chosen.only.split(",") if each)
    missed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "copy"
        folder.mkdir()
        copy_of(Path(chosen.tests), folder)
        for mutation in MUTATIONS:
            if wanted and not mutation.name.startswith(wanted):
                continue
            began = time.monotonic()
            found = noticed(mutation, folder, arguments)
            missed += not found
            seconds = time.monotonic() - began
            print(f"{seconds:5.0f} s  {mutation.name}: {found or 'NOT NOTICED'}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
