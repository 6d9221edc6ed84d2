"""Compiles the record path with mypyc where a C compiler is there; elsewhere it stays Python.

`pip install .` and wheels compile; an editable installation stays Python, so that edits count,
unless LAZYFUSE_COMPILE=1 asks for machine code (which is then used only as long as the sources are
those it was made from, see lazyfuse/_source_tree.py). LAZYFUSE_COMPILE=0 never compiles. A build
that fails is told and leaves a complete, slower lazyfuse behind.
"""

from __future__ import annotations

import os
import sys
import zlib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

MODULES = ("beside", "core", "quick_calls", "quick_functions", "quick_geometry")
"""What is compiled: modules of lazyfuse/ that depend on no frames and count no references."""

NOTE = "lazyfuse: the record path stays pure Python: "


def wanted() -> bool:
    """Whether this command builds something that machine code is to be part of."""
    asked = os.environ.get("LAZYFUSE_COMPILE", "")
    if asked == "0" or sys.implementation.name != "cpython":
        return False
    if {"editable_wheel", "develop"} & set(sys.argv):
        return asked == "1"
    return bool({"bdist_wheel", "build", "build_ext", "install"} & set(sys.argv))


def extensions() -> list[Extension]:
    """The C sources that mypyc makes of the modules; none where it cannot."""
    if not wanted():
        return []
    try:
        from mypyc.build import mypycify

        made: list[Extension] = mypycify(
            [
                "--config-file=",
                "--cache-dir=build/mypyc_cache",
                "--follow-imports=skip",
                "--ignore-missing-imports",
                *[f"lazyfuse/{name}.py" for name in MODULES],
            ],
            opt_level="3",
            debug_level="0",
            group_name="lazyfuse.native",  # the shared code lies in the package, as native__mypyc
        )
    except (Exception, SystemExit) as error:  # mypycify ends the process where it fails
        print(f"{NOTE}mypyc: {error!r}", file=sys.stderr)
        return []
    for extension in made:
        extension.optional = True  # no C compiler: a warning, not an error
        # what one compiler warns of must not keep another from building
        flags = extension.extra_compile_args
        extension.extra_compile_args = [flag for flag in flags if flag != "-Werror"]
    return made


class Build(build_ext):
    """Builds all of the machine code or none of it, and says what it was made from."""

    def run(self) -> None:
        """As `build_ext.run`."""
        files = [Path(self.get_ext_fullpath(each.name)) for each in self.extensions]
        record = Path(self.get_ext_fullpath(f"lazyfuse.{MODULES[0]}")).parent / "compiled.txt"
        for each in (*files, record):  # of an earlier build, should this one fail
            each.unlink(missing_ok=True)
        super().run()
        missing = [each.name for each in files if not each.exists()]
        if missing:
            print(f"{NOTE}no {', '.join(missing)}: is there a C compiler?", file=sys.stderr)
            for each in files:
                each.unlink(missing_ok=True)
        if missing or not files:
            return
        sums = {name: zlib.crc32(Path(f"lazyfuse/{name}.py").read_bytes()) for name in MODULES}
        record.write_text("".join(f"{name} {found}\n" for name, found in sums.items()))


setup(ext_modules=extensions(), cmdclass={"build_ext": Build})
