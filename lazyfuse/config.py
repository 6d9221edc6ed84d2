"""The options of lazyfuse, each declared once with type, default and help.

The environment variable of an option has its name, in capitals behind `LAZYFUSE_`.
Owns `options` (an object with one plain slot per option: hot paths read `config.options.NAME`) and
`on_change`. Only the body of `Options` declares options; parsing, checks, `lazyfuse.options()` and
docs/options.md derive from it. Of lazyfuse, imports only errors and the dataclasses.
"""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from lazyfuse.devices.dataclass import dataclass
from lazyfuse.errors import ConfigurationError, message

_WORDS = {"1": True, "on": True, "true": True, "yes": True}
_WORDS |= {"0": False, "off": False, "false": False, "no": False}
_UNITS = {"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}
_HELP = "lazyfuse.options() lists them all"


@dataclass(frozen=True)
class Row:
    """One option, without its present value."""

    name: str
    kind: type
    variable: str
    default: Any
    help: str
    unit: str = ""
    computed: str = ""
    developer: bool = False  # for developers of lazyfuse
    choices: tuple[str, ...] = ()  # of a text

    @property
    def default_text(self) -> str:
        """The default as documentation shows it, the same on every machine."""
        return self.computed or self.show(self.default)

    @property
    def expected(self) -> str:
        """The valid values, in words."""
        if self.kind is bool:
            return "on or off"
        if self.kind is int:
            return "a whole number >= 0" + (
                ", or text like '256MB'" if self.unit == "bytes" else ""
            )
        return " or ".join(self.choices) or "text"

    def convert(self, value: object, source: str) -> Any:
        """`value` as this option's type, or an error that names `source` as its origin."""
        try:
            return self._read(value)
        except (ValueError, TypeError) as error:
            text = message("options", source, self.expected, value, f"{self.help} ({_HELP})")
            raise ConfigurationError(text) from error

    def _read(self, value: object) -> Any:
        if self.kind is bool:
            return _read_flag(value)
        if self.kind is int:
            return _read_count(value, self.unit)
        text = os.fspath(value)  # type: ignore[call-overload]  # str and paths; else TypeError
        if "\0" in text or (self.choices and text not in self.choices):
            raise ValueError(value)
        return text

    def show(self, value: Any) -> str:
        """A value as a user would write it."""
        if self.kind is bool:
            return "on" if value else "off"
        if self.unit == "bytes" and value and value % (1 << 20) == 0:
            return f"{value >> 20}MB"
        return str(value) if value != "" else '""'


def _read_flag(value: object) -> bool:
    if isinstance(value, str):
        word = value.strip().lower()
        if word not in _WORDS:
            raise ValueError(value)
        return _WORDS[word]
    if value in (0, 1):
        return bool(value)
    raise ValueError(value)


def _read_count(value: object, unit: str) -> int:
    if isinstance(value, bool):
        raise TypeError(value)
    if isinstance(value, str):
        number = _read_text(value.strip().lower(), unit)
    else:
        number = operator.index(value)  # type: ignore[arg-type]  # else TypeError
    if number < 0:
        raise ValueError(value)
    return number


def _read_text(text: str, unit: str) -> int:
    if unit == "bytes" and text[-2:] in _UNITS:
        return int(float(text[:-2]) * _UNITS[text[-2:]])
    return int(text)


def _memory() -> int:
    """The bytes of memory of this machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not a POSIX system
        return 4 << 30


def _tenth_of_memory() -> int:
    """256 MB, or a tenth of the machine's memory if that is less."""
    return min(256 << 20, _memory() // 10 >> 20 << 20)


def _quarter_of_memory() -> int:
    """A quarter of the machine's memory."""
    return _memory() // 4 >> 20 << 20


def _option(default: Any, help_line: str, **more: Any) -> Any:
    """The field of an option; `more` is of `Row`."""
    return field(default=default, metadata={"help": help_line, **more})


_switch = functools.partial(_option, developer=True)
"""An option for developers of lazyfuse: programs do not need it."""


@dataclass(eq=False)
class Options:
    """Every option of lazyfuse, for the whole process. Read attributes; call it to change some.

    `lazyfuse.options(eager_below=0)` changes for good; `with lazyfuse.options(eager_below=0): ...`
    changes for the block; `lazyfuse.options()` lists names, values, variables and help.
    """

    device: str = _option(
        "",
        "device that kernels run on: cpu, opencl, opencl:1, opencl:NAME, null, raise; "
        '"" and auto choose',
    )
    offload: bool = _option(True, "let measured costs choose between devices, where none is named")
    opencl_share: bool = _switch(True, "work in place where an OpenCL device shares our memory")
    opencl_grid: bool = _switch(False, "give every OpenCL device the kernels made for GPUs")
    opencl_library: str = _option(
        "auto",
        "sorts, scans, masks, products, transforms by a device's libraries: auto (GPUs), on, off",
        choices=("auto", "on", "off"),
    )
    opencl_fp64: bool = _switch(True, "use the double precision that an OpenCL device has")
    single_precision: bool = _option(
        False,
        "compute float64 in float32 on devices without float64; off: such kernels run on the CPU",
    )
    pipelining: bool = _switch(
        True, "let launches run while we go on, and kernels that share rows run tile by tile"
    )
    cache: bool = _option(True, "keep compiled programs on disk")
    cache_dir: str = _option("", 'folder of the program cache; "" is ~/.cache/lazyfuse')
    cache_limit: int = _option(
        256 << 20, "bytes that the program cache may take on disk", unit="bytes"
    )
    # a plan takes a few kilobytes; a program with more structures does not repeat them
    plan_limit: int = _switch(1024, "plans kept for the next graph of their structure; 0 none")
    program_limit: int = _switch(512, "compiled programs kept in memory; 0 none")
    eager_below: int = _option(32768, "arrays with fewer elements run at once; 0 records all")
    threads: int = _option(
        0, "threads per launch; 0 is one per core that we may use", variable="LAZYFUSE_NUM_THREADS"
    )
    # a figure measured on this machine (calibrate_cpu.py) replaces the default
    threads_above: int = _switch(
        1 << 17,
        "additions from which a launch uses several threads; 131072: as measured here, if it was",
    )
    # the size of this machine's last cache replaces the default
    stream_above: int = _switch(
        32 << 20,
        "bytes a kernel touches from which results go past the caches; 0 never; 32MB: as here",
        unit="bytes",
    )
    concurrent_evaluations: bool = _switch(
        True,
        "evaluations of several threads run at once and share the cores; off: one after the other, "
        "each on all cores",
    )
    errors_at_once: bool = _option(
        True,
        "compute at the line where filters make errors of warnings, so that the line raises; "
        "off: the line that looks at a value is told",
    )
    loops: bool = _switch(
        True, "compile hot loops in place: of programs of the launcher, of notebooks"
    )
    capture: bool = _switch(True, "launch what ran before at the same sizes without deciding anew")
    lazy_numbers: bool = _switch(False, "leave sums and other numbers pending wherever they go")
    fusion: bool = _switch(True, "run several operations as one kernel")
    routines: bool = _switch(True, "sort, scan, count and gather by compiled loops in threads")
    matrix_products: str = _switch(
        "auto",
        "multiply large matrices tile by tile together with what follows: auto (stacks, integers, "
        "and by loops of ours where NumPy's BLAS does not know the processor; two matrices of "
        "floats are BLAS's, on its own threads), blas or loops (always by these), off",
        choices=("auto", "blas", "loops", "off"),
    )
    dynamic_sizes: bool = _switch(True, "keep x[mask] as its mask until its size is asked for")
    elision: bool = _switch(
        True,
        "leave unwritten what names hold and is cheap to make again, or was never read in a loop",
    )
    exported_at_once: bool = _switch(
        True, "run operations on memory that others see at once, not on a copy"
    )
    fusion_max_length: int = _switch(0, "operations that one kernel may hold; 0 sets no limit")
    plan_after: int = _switch(
        50, "milliseconds that NumPy runs a new structure of exact operations before it is planned"
    )
    tape_after: int = _switch(
        3, "visits of a call after which C does what Python decided about it; 0 never"
    )
    compile_after: int = _switch(1, "uses of a kernel after which it is compiled; 0 at once")
    compile_ahead: bool = _switch(
        True, "compile in a worker process while NumPy computes; off compiles here, at once"
    )
    compile_after_exit: bool = _switch(
        True, "let a process of low priority compile for some seconds what a program has left"
    )
    flush_nodes: int = _switch(2000, "recorded operations that start an evaluation; 0 never")
    flush_bytes: int = _option(
        _tenth_of_memory(),
        "bytes held by recorded operations that start an evaluation; 0 never",
        unit="bytes",
        computed="256MB, or a tenth of memory",
    )
    chunk_bytes: int = _option(
        128 << 20,
        "bytes of a chunk of an array on the device dask, where nothing else says",
        unit="bytes",
    )
    chunk_memory: int = _option(
        _quarter_of_memory(),
        "bytes of chunks kept for later reads on this machine (a cluster: a quarter of its own)",
        unit="bytes",
        computed="a quarter of memory",
    )
    gather_limit: int = _option(
        _quarter_of_memory(),
        "bytes that one array in chunks may take on the host; 0 any number",
        unit="bytes",
        computed="a quarter of memory",
    )
    pool_limit: int = _option(
        1 << 30, "bytes of free buffers kept for the next result; 0 none", unit="bytes"
    )
    validate: bool = _option(False, "check every stage of the compiler as it runs (slow)")
    debug: int = _switch(0, "what to print: 1 evaluations, 2 kernels, 3 source text, 4 passes")
    report: bool = _option(
        False, "measure and count what runs per source line; `lazyfuse --report` prints it"
    )

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        for row in rows():
            text = environment.get(row.variable, "")
            value = row.convert(text, row.variable) if text else row.default
            object.__setattr__(self, row.name, value)

    def __setattr__(self, name: str, value: object) -> None:
        """Check, notify the listeners, store. A callback that raises refuses the change."""
        checked = _row(name).convert(value, name)
        for callback in _observers.get(name, ()):
            callback(checked)
        object.__setattr__(self, name, checked)

    def __call__(self, **changes: Any) -> Changed:
        """Set options; the result lists them, and restores the old values if used with `with`."""
        checked = {name: _row(name).convert(value, name) for name, value in changes.items()}
        changed = Changed(self, {name: getattr(self, name) for name in checked})
        try:
            for name, value in checked.items():
                setattr(self, name, value)
        except BaseException:
            changed.__exit__()
            raise
        return changed

    def __repr__(self) -> str:
        return table(self, list(rows()))

    def __reduce__(self) -> str:
        return "options"  # copies and pickles give this same object


class Changed:
    """Options that were just set: prints them, and restores the old values after a `with`."""

    __slots__ = ("_before", "_options")

    def __init__(self, target: Options, before: dict[str, Any]) -> None:
        self._options = target
        self._before = before

    def __enter__(self) -> Options:
        return self._options

    def __exit__(self, *exception: object) -> None:
        for name, value in self._before.items():
            setattr(self._options, name, value)

    def __repr__(self) -> str:
        return table(
            self._options, [row for row in rows() if row.name in self._before or not self._before]
        )


def rows() -> tuple[Row, ...]:
    """Every option, in the order of declaration."""
    global _rows
    if not _rows:
        _rows = tuple(
            Row(
                name,
                type(item.default),
                default=item.default,
                **{"variable": f"LAZYFUSE_{name.upper()}", **item.metadata},
            )
            for name, item in vars(Options)["__fields__"].items()
        )
    return _rows


def _row(name: str) -> Row:
    for row in rows():
        if row.name == name:
            return row
    names = ", ".join(row.name for row in rows())
    raise ConfigurationError(message("options", "unknown option", f"one of {names}", name, _HELP))


def table(values: Options, which: list[Row]) -> str:
    """Names, values, variables and help as aligned lines; users' options come first."""
    cells = [
        (row.name, row.show(getattr(values, row.name)), row.variable, row.help) for row in which
    ]
    widths = [max(len(cell[column]) for cell in cells) for column in range(3)]
    lines: tuple[list[str], list[str]] = ([], [])
    for row, (*texts, help_line) in zip(which, cells, strict=True):
        padded = [text.ljust(width) for text, width in zip(texts, widths, strict=True)]
        lines[row.developer].append("  ".join([*padded, help_line]))
    title = ["", "for who works on lazyfuse:"] if all(lines) else []
    return "\n".join([*lines[0], *title, *lines[1]])


def on_any_change(callback: Callable[[Any], None]) -> None:
    """Call `callback(value)` now and whenever any option is set."""
    for row in rows():
        on_change(row.name, callback)


def on_change(name: str, callback: Callable[[Any], None]) -> None:
    """Call `callback(value)` now and whenever option `name` is set: for fast module globals."""
    row = _row(name)
    _observers.setdefault(row.name, []).append(callback)
    callback(getattr(options, row.name))


_rows: tuple[Row, ...] = ()
_observers: dict[str, list[Callable[[Any], None]]] = {}

options = Options()
