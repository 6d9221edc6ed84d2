"""Text of language "numba" -> object code by numba: the judge of what devices/cpu/ compiles.

numba types and lowers the text. Its LLVM module is optimised and emitted here as one object file
that exports only `ENTRY`. It never enters numba's own engine, which could not free it and
ends the process at an unknown symbol.
"""

from __future__ import annotations

import importlib.util
import linecache
import sys
from typing import Any

from lazyfuse.devices.base import DeviceError, Source
from lazyfuse.devices.caches import CONSTANT, cached
from lazyfuse.devices.cpu import llvm_compiler
from lazyfuse.devices.late_imports import module as heavy
from lazyfuse.devices.pools import object_code
from tests.helpers import numba_runtime

ERROR_STATUS = -1  # what the entry returns when the text raised a Python exception


def compile_source(source: Source) -> bytes:
    """The object code of a source; raises `DeviceError` with numba's message."""
    try:
        object_code.room(object_code.TO_COMPILE)
        with heavy("numba.core.compiler_lock").global_compiler_lock:
            _prepare()
            return bytes(_library(source).object_code)
    except (KeyboardInterrupt, DeviceError):
        raise
    except Exception as error:  # numba raises nearly anything, from typing to LLVM's verifier
        raise DeviceError(f"[compile] {source.name}: {error}") from error


@cached(1, CONSTANT, clears=False)
def _prepare() -> None:
    """Before the first compilation: give LLVM our symbols, and keep numba from importing SciPy.

    numba imports scipy.linalg to find a BLAS, which takes as long as the rest of its start (0.2 s).
    This check only asks whether SciPy is installed; later uses import it.
    """
    object_code.linker()  # numba's own engine links helper functions, which may need these symbols
    if "numba.np.arraymath" in sys.modules or "scipy.linalg" in sys.modules:
        return
    linear_algebra = heavy("numba.np.linalg")
    ensure_blas = getattr(linear_algebra, "ensure_blas", None)
    if ensure_blas is None or importlib.util.find_spec("scipy") is None:
        return
    linear_algebra.ensure_blas = lambda: None
    try:
        heavy("numba.np.arraymath").ensure_blas = ensure_blas
    finally:
        linear_algebra.ensure_blas = ensure_blas


def _library(source: Source) -> Any:
    """Compile like numba's `cfunc`, but stop before the code enters numba's engine."""
    types, compiler = heavy("numba.core.types"), heavy("numba.core.compiler")
    target = heavy("numba.core.registry").cpu_target
    typing_context, context = target.typing_context, target.target_context
    numba_runtime.namespace()
    typing_context.refresh()
    context.refresh()
    library = _library_class()(context.codegen(), source.name)
    library.has_vector_math = "vm_" in source.text or "vmf_" in source.text
    arguments = (types.CPointer(types.int64), types.CPointer(types.float64))
    result = compiler.compile_extra(
        typing_context,
        context,
        _function(source),
        arguments,
        types.int32,
        _flags(compiler),
        {},
        library=library,
    )
    _add_entry(library, context, result.fndesc)
    library.finalize()
    return library


def _function(source: Source) -> Any:
    """Execute the text; tracebacks and numba's messages can show its lines."""
    filename = f"<lazyfuse {source.name}>"
    linecache.cache[filename] = (len(source.text), None, source.text.splitlines(True), filename)
    names = dict(numba_runtime.namespace())
    exec(compile(source.text, filename, "exec"), names)
    return names[source.name]


def _flags(compiler: Any) -> Any:
    flags = compiler.Flags()
    flags.no_compile = True
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    flags.enable_looplift = False
    flags.release_gil = True
    flags.error_model = "numpy"
    return flags


def _add_entry(library: Any, context: Any, described: Any) -> None:
    """Add the C function `ENTRY` around the compiled function, which becomes private."""
    ir = heavy("llvmlite.ir")
    module = library.create_ir_module("entry")
    inner = context.declare_function(module, described)
    int32 = ir.IntType(32)
    pointers = [context.get_value_type(argument) for argument in described.argtypes]
    entry = ir.Function(module, ir.FunctionType(int32, pointers), object_code.ENTRY)
    builder = ir.IRBuilder(entry.append_basic_block("entry"))
    status, value = context.call_conv.call_function(
        builder, inner, described.restype, described.argtypes, entry.args
    )
    builder.ret(builder.select(status.is_error, int32(ERROR_STATUS), value))
    library.private_name = described.mangled_name
    library.add_ir_module(module)


@cached(1, CONSTANT, clears=False)
def _library_class() -> Any:
    codegen = heavy("numba.core.codegen")

    class KernelLibrary(codegen.CPUCodeLibrary):  # type: ignore[misc, name-defined]
        """A code library that ends as object code instead of entering numba's engine."""

        private_name = ""
        has_vector_math = False
        object_code = b""

        def add_ir_module(self, ir_module: Any) -> None:
            """Ask for full vectors, then continue as numba does."""
            if self.has_vector_math:
                llvm_compiler.prefer_full_vectors(ir_module, numba_runtime.target_features())
            super().add_ir_module(ir_module)

        def finalize(self) -> None:
            self._final_module.get_function(self.private_name).linkage = "internal"
            super().finalize()

        def _finalize_final_module(self) -> None:
            if self.has_vector_math:
                llvm_compiler.inline_vector_math(self._codegen._tm, self._final_module)
            self.object_code = self._codegen._tm.emit_object(self._final_module)
            self._finalized = True

    return KernelLibrary
