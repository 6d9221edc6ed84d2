"""Programs in processes of their own, and what they leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0  # seconds, also on a busy machine
_MARK = "LAZYFUSE_TEST_RUN"


class Runs:
    """Child processes that share a cache on disk and a folder of temporary files.

    Each carries a mark in its environment, so that those which they start are found, too.
    """

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self._mark = uuid.uuid4().hex
        plain = {k: v for k, v in os.environ.items() if not k.startswith("LAZYFUSE_")}
        self.environment = plain | {
            "LAZYFUSE_CACHE_DIR": str(self.cache),
            "LAZYFUSE_OFFLOAD": "off",
            # it may take minutes where the machine is busy; it has a test of its own
            "LAZYFUSE_COMPILE_AFTER_EXIT": "off",
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": str(ROOT),
            _MARK: self._mark,
        }

    def start(self, module: str, *arguments: object, **how: Any) -> subprocess.Popen[str]:
        """`python -m module`, its output piped."""
        return subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            env=self.environment,
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **how,
        )

    def run(self, module: str, *arguments: object, **how: Any) -> str:
        """What a process prints that ends by itself, and as it should."""
        process = self.start(module, *arguments, **how)
        out, errors = process.communicate(timeout=PATIENCE * 5)
        assert process.returncode == 0, (arguments, out, errors)
        return out

    def living(self) -> dict[int, str]:
        """The processes of these runs that have not ended, with their command lines."""
        wanted = f"{_MARK}={self._mark}".encode()
        found = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if wanted in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
                    line = Path(f"/proc/{name}/cmdline").read_bytes()
                    if state != "Z":
                        found[int(name)] = line.replace(b"\0", b" ").decode()[-200:]
            except OSError:
                continue  # it has ended meanwhile
        return found

    def ended(self) -> float:
        """Wait until none lives; the seconds that it took."""
        start = time.monotonic()
        until(lambda: not self.living(), lambda: f"still there: {self.living()}")
        return time.monotonic() - start

    def left(self) -> list[str]:
        """Files that nobody will look at again."""
        found = [str(path) for path in self.temporary.rglob("*")]
        return found + [str(path) for path in self.cache.rglob("*.tmp")]


def until(condition: Callable[[], object], what: Callable[[], str] = lambda: "") -> None:
    """Wait for something, a minute at most."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, what()
        time.sleep(0.01)
