"""A worker process that compiles while the program computes: started on first use, at most one.

Owns the worker process and the queue of requests. `Worker.want(source)` returns at once. A thread
of lazyfuse sends the source to the process, and passes each result to `arrived`. Messages are
pickles behind their length. The process runs `compile_worker_main`, which imports llvmlite and
nothing of the frontend. It ends when its input ends, so it ends with the program however the
program ends. Sources not yet compiled then go to `left` (compile_after_exit.py). A forked child has
no worker: a pool of processes keeps the cores busy.
"""

from __future__ import annotations

import atexit
import os
import pickle
import queue
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from .. import critical, fork_safety, interpreter
from ..base import Source
from ..late_imports import module as heavy
from ..thread_pool import available

# Seconds from the first request to the start of the process: the first result matters more, and a
# short program needs no compiler. On two cores the process slows the program, most of all BLAS,
# whose threads wait for each other.
DELAY = 0.05 if available() > 2 else 0.1
IDLE = 30.0  # seconds without a request after which the process ends, to free LLVM's memory
MOST_CRASHES = 2  # after the first, the source that was being compiled is sent once more
_LENGTH = struct.Struct("<Q")
_alone = critical.section(fork_safety.fork_lock)
_MAIN = "cpu.compile_worker_main"

# The process's first code: importing lazyfuse/__init__.py would import the whole frontend.
_BOOT = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all of the group
path, package, folder = sys.argv[1].split("\\n"), sys.argv[2], sys.argv[3]
sys.path[:] = path
for name, places in ((package.rpartition(".")[0], []), (package, [folder])):
    if name:
        sys.modules[name] = type(sys)(name)
        sys.modules[name].__path__ = places
from importlib import import_module
import_module(package + "." + sys.argv[4]).main()
"""

Arrived = Callable[[Source, "bytes | None", str, float], None]
"""(source, object code or None, reason for None, seconds of compiling)"""


class Crash(Exception):
    """The process has ended while it had work."""


class Worker:
    """The queue of sources and the process that compiles them, in the order of the requests."""

    def __init__(
        self,
        arrived: Arrived,
        lost: Callable[[Source | None, str], None],
        left: Callable[[], object] = lambda: None,
    ) -> None:
        self.trouble = ""  # why there is no worker; "" if there may be one
        self.started = 0  # processes so far
        self._arrived = arrived
        self._lost = lost
        self._left = left
        self._ends: Callable[[], None] | None = None  # called when the program ends
        self._process: Any = None
        self._crashes = 0
        self._forked = False
        self._new()
        fork_safety.register(self)

    def _new(self) -> None:
        self._hurried = threading.Event()
        self._wishes: queue.SimpleQueue[Source | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock, self._beginning = threading.Lock(), threading.Lock()

    def after_fork(self) -> None:
        """In a child: close the pipes of the parent's worker, which must end with the parent."""
        process, self._process = self._process, None
        if process is not None:
            _close_pipes(process)
            process.returncode = 0  # not our child: nothing to wait for
        self._forked = True
        self._new()

    def why_not(self) -> str:
        """Why no process can be started; empty if one can."""
        if self.trouble:
            return self.trouble
        if sys.is_finalizing():
            return "the interpreter is ending"
        if self._forked or _is_child():
            return "this process is one of several: it compiles by itself"
        name = os.path.basename(sys.executable or "").lower()
        if "python" not in name or getattr(sys, "frozen", False):
            return f"no Python to start: sys.executable is {sys.executable!r}"
        return ""

    def want(self, source: Source, at_once: bool = False) -> bool:
        """Request the compilation of a source; whether the worker will try. `at_once`: the program
        is busy in Python, beside which the thread would take 100 ms to start the process.
        """
        if self.why_not():
            return False
        if at_once:
            with suppress(OSError):  # the thread tries again, and tells
                self._begin()
        with self._lock:
            self._wishes.put(source)
            if self._thread is None:
                thread = threading.Thread(target=self._serve, name="lazyfuse-compile", daemon=True)
                if not interpreter.start(thread):
                    self.trouble = "no thread for the compiler's process"
                    return False
                self._thread = thread
                if self._ends is None:
                    me = weakref.ref(self)
                    self._ends = lambda: _end_of_program(me)
                    atexit.register(self._ends)
        return True

    def hurry(self) -> None:
        """Start the process without delay: a thread waits for a result."""
        self._hurried.set()

    def close(self) -> None:
        """End the process and the thread for good."""
        self.trouble = self.trouble or "closed"
        self.hurry()
        process, thread = self._process, self._thread
        if self._ends is not None:
            atexit.unregister(self._ends)
        if process is not None:
            with suppress(OSError):
                process.kill()
        if thread is not None and thread is not threading.current_thread():
            self._wishes.put(None)
            thread.join(5.0)  # it reads the end of the process's output, and closes it

    # The thread

    def _serve(self) -> None:
        """Send requests and take results, one source ahead, until no requests are left."""
        current: Source | None = None
        try:
            while (current := self._next(IDLE)) is not None:
                self._ask(current)
                while current is not None:
                    reply = self._reply(current)
                    done, current = current, self._next(0.0)
                    if current is not None:
                        self._ask(current)
                    with _alone:  # it imports and links, and holds the programs' lock
                        self._arrived(done, *reply)
        except BaseException as error:  # any error: other threads must not wait for ever
            self.trouble = self.trouble or f"the compiler's process {error}"
            self._end()
            self._lost(current if isinstance(error, Crash) else None, self.trouble)

    def _next(self, seconds: float) -> Source | None:
        """The next request; None if there is none. After `seconds` without, this thread ends."""
        with suppress(queue.Empty):
            wish = self._wishes.get(timeout=seconds) if seconds else self._wishes.get_nowait()
            if wish is None:  # closed
                self._end()
            return wish
        if not seconds:
            return None
        with self._lock:
            if self._wishes.empty():
                self._end()
                self._thread = None  # the next request starts another thread
                return None
        wish = self._wishes.get()
        if wish is None:  # closed just now
            self._end()
        return wish

    def _end(self) -> object:
        """End the process, if there is one. Return its exit code."""
        process, self._process = self._process, None
        if process is None:
            return None
        with suppress(OSError):
            process.kill()
        _close_pipes(process)
        return process.wait()

    def _ask(self, source: Source) -> None:
        while True:
            if self._process is None:
                self._hurried.wait(DELAY)
                if self.trouble:
                    raise Crash(self.trouble)
                self._begin()
                if self.trouble:  # closed meanwhile
                    raise Crash(self.trouble)
            try:
                send(self._process.stdin, source)
                return
            except OSError:
                self._crashed()

    def _begin(self) -> None:
        with self._beginning:
            if self._process is None:
                self._process = start()
                self.started += 1

    def _reply(self, source: Source) -> tuple[bytes | None, str, float]:
        while True:
            try:
                return receive(self._process.stdout)  # type: ignore[no-any-return]
            except (OSError, EOFError, ValueError):
                self._crashed()
                self._ask(source)

    def _crashed(self) -> None:
        """Count a crash; raise `Crash` at the second."""
        process = self._process
        with suppress(Exception):
            process.wait(1.0)  # it is ending: its own exit code says more than that of a kill
        code = self._end()
        self._crashes += 1
        if self._crashes >= MOST_CRASHES:
            raise Crash(f"ended {self._crashes} times, lastly with exit code {code}")


def _end_of_program(worker: weakref.ref[Worker]) -> None:
    found = worker()
    if found is not None:
        if not found.why_not():
            found._left()
        found.close()


def start(main: str = _MAIN, inherited: Sequence[int] = ()) -> Any:
    """The process, as `subprocess.Popen` with binary pipes.

    With `inherited` files it keeps them open, reads requests from the last one, sends no answers,
    and outlives the program. It has another process group, so it gets no signals of the terminal.
    It stays in the same session, because a scheduler that divides cores by sessions would give a
    new session as much as the whole present one.
    """
    subprocess = heavy("subprocess")
    flags = subprocess._args_from_interpreter_flags()
    package = (__package__ or "").rpartition(".")[0]
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # the process neither imports from the current folder nor stays in it; what the module `site`
    # would look for is in `path`
    path = [os.path.abspath(each) for each in sys.path if each]
    arguments = ["\n".join(path), package, folder, main, str(os.getpid())]
    options: dict[str, Any] = {}
    if sys.platform == "win32":
        options["creationflags"] = subprocess.CREATE_NO_WINDOW
    process = subprocess.Popen(
        [sys.executable, *flags, "-S", "-P", "-W", "ignore", "-c", _BOOT, *arguments],
        cwd=os.path.abspath(os.sep),
        stdin=inherited[-1] if inherited else subprocess.PIPE,
        stdout=subprocess.DEVNULL if inherited else subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        process_group=0 if inherited else None,
        pass_fds=inherited,
        **options,
    )
    if inherited:
        process.returncode = 0  # it is never waited for, of which Popen would warn
    return process


def send(pipe: Any, message: object) -> None:
    """Write one message."""
    data = pickle.dumps(message)
    view = memoryview(_LENGTH.pack(len(data)) + data)
    while view:
        view = view[pipe.write(view) or 0 :]


def receive(pipe: Any) -> Any:
    """Read one message; `EOFError` at the end."""
    (length,) = _LENGTH.unpack(_read(pipe, _LENGTH.size))
    return pickle.loads(_read(pipe, length))


def _read(pipe: Any, count: int) -> bytes:
    parts = []
    while count:
        part = pipe.read(min(count, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _is_child() -> bool:
    """Whether multiprocessing started this process."""
    process: Any = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _close_pipes(process: Any) -> None:
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError, ValueError):
            pipe.close()
