"""`lazyfuse script.py`: runs an unedited program that was written for NumPy.

    lazyfuse [--report[=FILE]] [--trace FILE] script.py [arguments]
    lazyfuse [--report[=FILE]] [--trace FILE] -m module [arguments]
    lazyfuse [--report[=FILE]] [--trace FILE] -c code [arguments]
    lazyfuse [--report[=FILE]] [--trace FILE] [- [arguments]]
    lazyfuse --options
    lazyfuse --version
    lazyfuse --calibrate

`python -m lazyfuse` is the same command. `-`, or nothing, reads the program from standard input; on
a terminal that is a prompt. `--` ends the options. The program and its own modules get lazyfuse
where they import numpy: all files but those of installed packages and of the standard library,
and what tools run as text. So `-m pdb script.py` and `-m pytest` run the user's files with
lazyfuse. The rest is as under plain Python: `sys.argv`, `sys.path[0]`, `__main__`, exit codes and
tracebacks. Where lazyfuse changed nothing, it says so at the end.

`--report` prints where the time went and what ran where when the program ends; `--report=json`
prints that as JSON, and `--report=FILE` writes it to a file that ends in .html, .json or .txt.
`--trace` writes a timeline to FILE, for Perfetto or a browser's tracing page. `--calibrate`
measures and prints the cost of work on each device, which decides the device of each plan.
`--version` prints the versions, and whether the record path is the native extension.
"""

from __future__ import annotations

import atexit
import importlib.machinery
import importlib.util
import linecache
import os
import sys
from code import InteractiveConsole
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

from lazyfuse import config
from lazyfuse.interop import import_hook, launched
from lazyfuse.runtime.events import tracing
from lazyfuse.runtime.placement import calibrate
from lazyfuse.tools import build_info, report_file

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
    launched.install()
    if not rest or rest[0] == "-":
        sys.argv = rest or [""]
        if sys.stdin.isatty():
            _run_prompt()
            return
        code, module = _load_text(sys.stdin.read(), "<stdin>")
    elif rest[0] == "-m" and len(rest) > 1:
        code, module = _load_module(rest[1])
        sys.argv = [str(module.__file__), *rest[2:]]
    elif rest[0] == "-c" and len(rest) > 1:
        code, module = _load_text(rest[1], "<string>")
        if sys.version_info >= (3, 13):  # its tracebacks show the lines
            lines = [f"{line}\n" for line in rest[1].splitlines()]
            linecache.cache["<string>"] = len(rest[1]), None, lines, "<string>"
        sys.argv = ["-c", *rest[2:]]
    elif not rest[0].startswith("-"):
        code, module = _load_script(rest[0])
        sys.argv = rest
    else:
        raise _Stop(_USAGE)
    _run(code, module)


def _switch(option: str) -> None:
    if option.partition("=")[0] == "--report":
        _report(option.partition("=")[2] if "=" in option else "text")
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


def _report(to: str) -> None:
    """Measure lines, and give the report when the program ends."""
    try:
        report_file.at_exit(to)
    except ValueError as error:
        raise _Stop(str(error)) from error
    except OSError as error:
        raise _Stop(f"can't write file {to!r}: {error.strerror}") from error
    config.options.report = True


def _trace(file: str) -> None:
    """Write a timeline of the whole program when it ends."""
    recording = tracing.chrome(file)
    try:
        recording.__enter__()
    except OSError as error:
        raise _Stop(f"can't write file {file!r}: {error.strerror}") from error
    atexit.register(recording.__exit__, None, None, None)


def _look_in(first: str) -> None:
    """Search modules in `first` first."""
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
    _look_in(str(folder))
    file = os.path.abspath(path)
    module = ModuleType("__main__")
    module.__file__ = file
    module.__dict__["__cached__"] = None
    module.__loader__ = importlib.machinery.SourceFileLoader("__main__", file)
    return import_hook.compile_rewritten(source, file), module


def _load_text(source: str, name: str) -> tuple[CodeType, ModuleType]:
    """The code of a program that is not in a file, and a module to run it in."""
    _look_in("")
    return import_hook.compile_rewritten(source, name), ModuleType("__main__")


def _load_module(name: str) -> tuple[CodeType, ModuleType]:
    """The code of a module on `sys.path` (of a package's `__main__`), and a module to run it in."""
    _look_in(str(Path.cwd()))
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
    _register_endings()
    exec(code, module.__dict__)


def _run_prompt() -> None:
    """Python's prompt, where `import numpy` is lazyfuse."""
    _look_in("")
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    _register_endings(tells_if_unused=False)
    getattr(sys, "__interactivehook__", lambda: None)()  # completion and history
    startup = os.environ.get("PYTHONSTARTUP")
    if startup and os.path.isfile(startup):
        code = import_hook.compile_rewritten(Path(startup).read_bytes(), startup)
        exec(code, module.__dict__)
    banner = f"Python {sys.version} on {sys.platform}\n{_PROMPT}"
    InteractiveConsole(module.__dict__, "<stdin>").interact(banner, exitmsg="")


_PROMPT = "lazyfuse takes the place of numpy where you import it."


def _register_endings(tells_if_unused: bool = True) -> None:
    """Arrange what is printed when the program ends or fails."""
    shown, process, failures = sys.excepthook, os.getpid(), []

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        failures.append(error)
        trace = _without_our_frames(trace)
        shown(kind, error.with_traceback(trace), trace)

    def tell_if_unused() -> None:
        if os.getpid() == process and not failures:
            _tell_if_unused()

    sys.excepthook = show
    if tells_if_unused:
        atexit.register(tell_if_unused)
    if config.options.report:
        report_file.at_exit()


def _tell_if_unused() -> None:
    """Say in one line that the program ran as under plain Python, and what was looked for."""
    found = import_hook.seen
    if found.imports or launched.Workers.started:
        return
    text = "found no import of numpy outside installed packages"
    print(
        f"lazyfuse changed nothing: {text} (files and texts: {len(found.files)})", file=sys.stderr
    )


def _without_our_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the program's first frame on, without what stands for `compile`."""
    rest = trace
    while rest is not None and rest.tb_frame.f_code.co_filename in _frames:
        rest = rest.tb_next
    kept = rest
    while kept is not None and kept.tb_next is not None:
        if kept.tb_next.tb_frame.f_code.co_filename == import_hook.__file__:
            kept.tb_next = kept.tb_next.tb_next
        else:
            kept = kept.tb_next
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
