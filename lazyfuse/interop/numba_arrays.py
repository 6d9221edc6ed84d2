"""Arrays of ours as arguments of functions that numba compiles.

Owns two entries with numba. `typeof` says of an array of ours what it says of NumPy's on the same
memory, so that types, signatures and compiled functions are the same. The function by which all
compiled code takes arrays from Python (`NRT_adapt_ndarray_from_python`; code that numba has kept on
disk names it too) asks us when it refuses an object: an array of ours then passes as NumPy's.
NumPy's arrays go the way that they always went. Imported when the program has imported numba.
"""

from __future__ import annotations

from typing import Any

from lazyfuse.arrays.conversion import EXPORT, to_numpy
from lazyfuse.arrays.ndarray import OURS, ndarray

_NAME = "adapt_ndarray_from_python"
_kept: list[Any] = []  # machine code, and what its text holds the address of

_TEXT = """
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)
declare void @Py_DecRef(ptr)

define i32 @lazyfuse_{name}(ptr %object, ptr %target) {{
entry:
  %theirs = inttoptr i64 {theirs} to ptr
  %refused = call i32 %theirs(ptr %object, ptr %target)
  %taken = icmp eq i32 %refused, 0
  br i1 %taken, label %done, label %ask
done:
  ret i32 0
ask:
  %convert = inttoptr i64 {convert} to ptr
  %real = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %convert, ptr %object, ptr null)
  %failed = icmp eq ptr %real, null
  br i1 %failed, label %refuse, label %again
refuse:
  ret i32 -1
again:
  %last = call i32 %theirs(ptr %real, ptr %target)
  call void @Py_DecRef(ptr %real)
  ret i32 %last
}}
"""


def _real(value: Any) -> Any:
    """NumPy's array on the memory of ours; the caller's code holds it for as long as it needs."""
    if type(value) is not ndarray:
        raise TypeError(f"[numba] argument: expected an array, got {type(value).__name__}")
    return to_numpy(value, EXPORT)


def adapt(numba: Any) -> None:
    """Make the entries with numba, once in a process."""
    from llvmlite import binding

    typeof, runtime = numba.extending.typeof_impl, numba.core.runtime
    for kind in OURS:
        typeof.register(kind, lambda value, c: typeof(to_numpy(value, EXPORT), c))
    helpers: dict[str, int] = runtime._nrt_python.c_helpers
    if _kept or _NAME not in helpers:
        return
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    text = _TEXT.format(name=_NAME, theirs=helpers[_NAME], convert=id(_real))
    machine = binding.Target.from_default_triple().create_target_machine()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(text), machine)
    engine.finalize_object()
    _kept.extend((engine, machine, _real))
    helpers[_NAME] = engine.get_function_address(f"lazyfuse_{_NAME}")
    if runtime.nrt.rtsys._init:  # it has told its linker the addresses already
        binding.add_symbol(f"NRT_{_NAME}", helpers[_NAME])
