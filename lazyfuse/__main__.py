"""`lazyfuse script.py`: runs an unedited program that was written for NumPy.

    lazyfuse [--report] [--trace FILE] script.py [arguments]
    lazyfuse [--report] [--trace FILE] -m module [arguments]
    lazyfuse [--report] [--trace FILE] -c code [arguments]
    lazyfuse --options
    lazyfuse --version
    lazyfuse --calibrate

`python -m lazyfuse` is the same command. `-` reads the program from standard input; `--` ends the
options. The program and its own modules (files below the script's folder, or below the current
folder without a script) get lazyfuse where they import numpy; installed packages keep NumPy. The
rest is as under plain Python: `sys.argv`, `sys.path[0]`, `__main__`, exit codes and tracebacks.
`--report` prints what ran where when the program ends; `--trace` writes a timeline to FILE, for a
browser's tracing page. `--calibrate` measures and prints the cost of work on each device, which
decides the device of each plan. `--version` prints the versions, and whether the record path is the
native extension.
"""

from __future__ import annotations

import atexit
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

from lazyfuse import config
from lazyfuse.interop import import_hook, library_adapters
from lazyfuse.namespace import assemble
from lazyfuse.runtime.events import tracing
from lazyfuse.runtime.placement import calibrate
from lazyfuse.tools import build_info

_frames = {__file__, import_hook.__file__, "<frozen runpy>"}
"""The files of frames above a program's own, which its tracebacks leave out."""
_USAGE = f"usage: {(__doc__ or '').partition(': ')[2]}"


class _Stop(Exception):
    """A command line that cannot run; the text says why."""


def main(arguments: Sequence[str]) -> None:
    """Run the program that the command line names, and end as that program ends."""
    rest = list(arguments)
    while rest and rest[0].startswith("--"):
        option = rest.pop(0)
        if option == "--":
            break
        name, given, file = option.partition("=")
        if name == "--trace" and (given or rest):
            _trace(file if given else rest.pop(0))
        else:
            _switch(option)
    if rest and rest[0] == "-m" and len(rest) > 1:
        code, module = _load_module(rest[1])
        sys.argv = [str(module.__file__), *rest[2:]]
    elif rest and rest[0] == "-c" and len(rest) > 1:
        code, module = _load_text(rest[1], "<string>")
        sys.argv = ["-c", *rest[2:]]
    elif rest and rest[0] == "-":
        code, module = _load_text(sys.stdin.read(), "<stdin>")
        sys.argv = rest
    elif rest and not rest[0].startswith("-"):
        code, module = _load_script(rest[0])
        sys.argv = rest
    else:
        raise _Stop(_USAGE)
    _run(code, module)


def _switch(option: str) -> None:
    if option == "--report":
        config.options.report = True
    elif option == "--options":
        print(config.options)
        raise SystemExit(0)
    elif option == "--version":
        print(build_info.text())
        raise SystemExit(0)
    elif option == "--calibrate":
        calibrate.calibrate(verbose=True)
        raise SystemExit(0)
    elif option == "--help":
        print(_USAGE)
        raise SystemExit(0)
    else:
        raise _Stop(f"unknown option {option}\n\n{_USAGE}")


def _trace(file: str) -> None:
    """Write a timeline of the whole program when it ends."""
    recording = tracing.chrome(file)
    try:
        recording.__enter__()
    except OSError as error:
        raise _Stop(f"can't write file {file!r}: {error.strerror}") from error
    atexit.register(recording.__exit__, None, None, None)


def _look_in(folder: Path, first: str) -> None:
    """Treat files below a folder as the program's own, and search modules in `first` first."""
    import_hook.install(folder)
    if not sys.flags.safe_path:
        sys.path[0] = first


def _load_script(name: str) -> tuple[CodeType, ModuleType]:
    """The code of a script (or of a folder's `__main__.py`), and a module to run it in."""
    path = Path(name)
    if path.is_dir():
        path /= "__main__.py"
    try:
        source = path.read_bytes()
    except OSError as error:
        raise _Stop(f"can't open file {str(path)!r}: {error.strerror}") from error
    folder = path.resolve().parent
    _look_in(folder, str(folder))
    file = os.path.abspath(path)
    module = ModuleType("__main__")
    module.__file__ = file
    module.__dict__["__cached__"] = None
    module.__loader__ = importlib.machinery.SourceFileLoader("__main__", file)
    return import_hook.compile_rewritten(source, file), module


def _load_text(source: str, name: str) -> tuple[CodeType, ModuleType]:
    """The code of a program that is not in a file, and a module to run it in."""
    _look_in(Path.cwd(), "")
    return import_hook.compile_rewritten(source, name), ModuleType("__main__")


def _load_module(name: str) -> tuple[CodeType, ModuleType]:
    """The code of a module on `sys.path` (of a package's `__main__`), and a module to run it in."""
    _look_in(Path.cwd(), str(Path.cwd()))
    spec = _find(name)
    if spec.submodule_search_locations is not None:
        spec = _find(f"{name}.__main__")
    code = getattr(spec.loader, "get_code", lambda name: None)(spec.name)
    if code is None:
        raise _Stop(f"no code object available for {spec.name}")
    module = importlib.util.module_from_spec(spec)
    module.__name__ = "__main__"
    return code, module


def _find(name: str) -> importlib.machinery.ModuleSpec:
    try:
        spec = importlib.util.find_spec(name)
    except ImportError as error:
        raise _Stop(f"error while finding module {name!r}: {error}") from error
    if spec is None:
        raise _Stop(f"no module named {name}")
    return spec


def _run(code: CodeType, module: ModuleType) -> None:
    """Execute `code` as `__main__`; its exceptions pass through, without our frames on top."""
    sys.modules["__main__"] = module
    library_adapters.adapt()  # the program runs unedited
    shown = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        trace = _without_our_frames(trace)
        shown(kind, error.with_traceback(trace), trace)

    sys.excepthook = show
    if config.options.report:
        atexit.register(_print_report)
    exec(code, module.__dict__)


def _print_report() -> None:
    print(assemble.report(), file=sys.stderr)


def _without_our_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the program's first frame on."""
    rest = trace
    while rest is not None and rest.tb_frame.f_code.co_filename in _frames:
        rest = rest.tb_next
    return rest or trace


def command() -> int:
    """The console script `lazyfuse`. Returns an exit status if the command line cannot run."""
    _frames.add(sys._getframe(1).f_code.co_filename)
    try:
        main(sys.argv[1:])
    except _Stop as stop:
        print(f"lazyfuse: {stop}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    if status := command():
        sys.exit(status)
