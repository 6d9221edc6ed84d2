"""A second process compiles nothing, does not load numba, and gives the same bits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lazyfuse.devices.pools import elf_linker

SCRIPT = """
import hashlib, json, sys
import numpy
import lazyfuse as np
from lazyfuse.devices import registry

rng = numpy.random.default_rng(0)
digest = hashlib.sha256()
for k in range(3):
    a = np.array(rng.uniform(1, 2, 200_000))
    b = np.array(rng.uniform(1, 2, (400, 500)))
    for value in (
        np.sin(a) * a + np.exp(-a),
        (a * 2.5 + 1) / a - a,
        (np.log(a) * a).sum(),
        np.where(b > 1.5, b, b ** 2.5).var(axis=1),
        a[::2] * a[1::2] + k,
    ):
        digest.update(numpy.ascontiguousarray(value).tobytes())
    b[1:-1, 1:-1] = np.sqrt(b[:-2, 1:-1] + b[2:, 1:-1])
    digest.update(numpy.ascontiguousarray(b).tobytes())
registry.device().finish()
info = registry.device().info()["programs"]
print(json.dumps({
    "digest": digest.hexdigest(),
    "numba": "numba" in sys.modules,
    "llvmlite": "llvmlite" in sys.modules,
    "ahead": info["ahead"],
    "worker": registry.device()._worker.started,
    "built": info["built"],
    "loaded": info["loaded"],
    "disk": info["disk"],
}))
"""


def start(folder: Path, **variables: str) -> dict[str, Any]:
    """Run the script in a new process with a cache of its own."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith("LAZYFUSE_")}
    environment = {
        **plain,
        "LAZYFUSE_CACHE_DIR": str(folder),
        "LAZYFUSE_PLAN_AFTER": "0",  # else NumPy does a script that is as short as this one
        **variables,
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def cold(folder: Path) -> dict[str, Any]:
    return start(folder)


def test_the_first_process_lets_a_worker_compile_F11(cold: dict[str, Any]) -> None:
    assert not cold["numba"]
    assert cold["worker"] == 1
    assert cold["ahead"] > 0
    assert cold["disk"]["stores"] >= cold["ahead"]


def test_without_a_worker_it_compiles_by_itself_B8(cold: dict[str, Any], tmp_path: Path) -> None:
    alone = start(tmp_path, LAZYFUSE_COMPILE_AHEAD="off")
    assert alone["llvmlite"]
    assert not alone["numba"]  # its texts need none
    assert alone["worker"] == alone["ahead"] == 0
    assert alone["built"] > 0
    assert alone["digest"] == cold["digest"]


def test_a_second_process_compiles_nothing_B7(cold: dict[str, Any], folder: Path) -> None:
    warm = start(folder)
    assert not warm["numba"]
    assert warm["worker"] == warm["ahead"] == 0
    assert warm["llvmlite"] == (not elf_linker.AVAILABLE)
    assert warm["loaded"] > 0
    assert warm["digest"] == cold["digest"]


@pytest.mark.parametrize("threads", ["1", "3"])
def test_any_number_of_threads_gives_the_same_bits_B8(
    cold: dict[str, Any], folder: Path, threads: str
) -> None:
    variables = {"LAZYFUSE_NUM_THREADS": threads, "LAZYFUSE_THREADS_ABOVE": "1"}
    assert start(folder, **variables)["digest"] == cold["digest"]


def test_no_fusion_gives_the_same_bits_B8(cold: dict[str, Any], folder: Path) -> None:
    assert start(folder, LAZYFUSE_FUSION="0")["digest"] == cold["digest"]


def test_without_a_cache_the_bits_are_the_same_B8(cold: dict[str, Any], folder: Path) -> None:
    bare = start(folder, LAZYFUSE_CACHE="0", LAZYFUSE_COMPILE_AFTER="0", LAZYFUSE_COMPILE_AHEAD="0")
    assert bare["built"] > 0
    assert bare["digest"] == cold["digest"]


def test_a_damaged_cache_costs_a_recompile_only_E2(
    cold: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    entries = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert entries
    for path in entries:
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2] + b"damaged")
    assert start(tmp_path)["digest"] == cold["digest"]
