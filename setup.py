"""Compiles the record path where a C compiler is there; elsewhere Python does its work.

Every installation compiles, an editable one in place: its machine code is used as long as the
sources are those it was made from (lazyfuse/bootstrap.py), so that edits count. LAZYFUSE_COMPILE=0
never compiles. A build that fails is told and leaves a complete, slower lazyfuse behind.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError

HERE = Path("lazyfuse")
SOURCES = sorted(str(path) for path in HERE.glob("native/**/*.[ch]"))
"""What the module lazyfuse._native is made from."""

TWINS = """
arrays/base.py arrays/eager_functions.py arrays/eager_operators.py arrays/eager_policy.py
arrays/eager_ufunc.py
arrays/exported_memory.py arrays/index_keys.py arrays/indexing.py arrays/methods.py
arrays/ndarray.py arrays/nodes.py arrays/operators.py arrays/recording.py
arrays/scalars.py arrays/storage.py functions/products.py functions/ufunc.py
loops/entering.py loops/kinds.py loops/take_over.py namespace/small_programs.py
namespace/steps.py
runtime/capture/evaluations.py
runtime/capture/native_replay.py runtime/events/counters.py runtime/events/spans.py
runtime/layout/meta_arrays.py runtime/numerics/errstate.py
runtime/scheduling/co_evaluation.py
runtime/scheduling/eager_rules.py runtime/scheduling/elision.py
runtime/scheduling/escapes.py runtime/scheduling/flush.py
runtime/scheduling/evaluate.py runtime/scheduling/fresh.py
codegen/graph/linearize.py codegen/graph/moves.py
devices/cpu/bound_launch.py devices/cpu/launch.py devices/cpu/native_threads.py
devices/critical.py devices/pools/buffers.py
""".split()
"""Modules that say in Python what these do: machine code is used beside no others."""

NOTE = "lazyfuse: the record path stays pure Python: "


def wanted() -> bool:
    """Whether this command builds something that machine code is to be part of."""
    if os.environ.get("LAZYFUSE_COMPILE") == "0" or sys.implementation.name != "cpython":
        return False
    if sysconfig.get_config_var("Py_GIL_DISABLED"):  # the C code counts on the lock
        return False
    commands = {"bdist_wheel", "build", "build_ext", "develop", "editable_wheel", "install"}
    return bool(commands & set(sys.argv))


def extensions() -> list[Extension]:
    """The module in C."""
    if not wanted():
        return []
    # exact arithmetic only: no product is to be contracted with a sum; no call between our files
    # goes through a table of symbols that others may replace
    exact = ["-O3", "-ffp-contract=off", "-fvisibility=hidden"]
    if "CFLAGS" not in os.environ:  # Python's own flags ask for debug information
        exact.append("-g0")
    native = Extension(
        "lazyfuse._native",
        [file for file in SOURCES if file.endswith(".c")],
        depends=SOURCES,
        include_dirs=[np.get_include()],
        extra_compile_args=[] if sys.platform == "win32" else exact,
        optional=True,  # no C compiler: a warning, not an error
    )
    return [native]


def source(name: str | Path) -> Path:
    """A file of the package, which has two folders beside it in a checkout."""
    return Path(name) if Path(name).parts[0] in ("codegen", "devices") else HERE / name


class Build(build_ext):
    """Builds the native extension, and says what it was made from."""

    def build_extensions(self) -> None:
        """As `build_ext.build_extensions`, with a file per core at a time.

        setuptools compiles one after the other what belongs to one extension. Compilers other than
        Unix ones keep a state and are left alone.
        """
        one_after_the_other = self.compiler.compile

        def compile_files(sources: list[str], **options: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                objects = pool.map(lambda file: one_after_the_other([file], **options), sources)
                return [name for names in objects for name in names]

        if self.compiler.compiler_type == "unix":
            self.compiler.compile = compile_files
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        """With calls between the files inlined, which makes small operations 5 % faster.

        Without, where the compiler or the linker cannot do that.
        """
        plain = ext.extra_compile_args
        if plain:
            ext.extra_compile_args = ext.extra_link_args = [*plain, "-flto=auto"]
            try:
                super().build_extension(ext)
                return
            except CCompilerError:
                ext.extra_compile_args, ext.extra_link_args = plain, []
        super().build_extension(ext)

    def run(self) -> None:
        """As `build_ext.run`."""
        file = Path(self.get_ext_fullpath("lazyfuse._native"))
        built = Path(self.build_lib) / self.get_ext_filename("lazyfuse._native")
        record = file.parent / "compiled.txt"
        for each in (file, built, record):  # of an earlier build, should this one fail
            each.unlink(missing_ok=True)
        super().run()
        if not self.extensions:
            return
        if not file.exists():
            print(f"{NOTE}no {file.name}: is there a C compiler?", file=sys.stderr)
            return
        made_from = [Path(each).relative_to(HERE) for each in SOURCES]
        sums = {name: zlib.crc32(source(name).read_bytes()) for name in [*made_from, *TWINS]}
        record.write_text("".join(f"{Path(name).as_posix()} {sums[name]}\n" for name in sums))


setup(ext_modules=extensions(), cmdclass={"build_ext": Build})
