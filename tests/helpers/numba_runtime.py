"""The names of language "numba" in numba's terms: what builtins.py emits, for numba to compile."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lazyfuse.devices.caches import CONSTANT, DTYPES, cached
from lazyfuse.devices.cpu.frontend import builtins, kinds
from lazyfuse.devices.cpu.frontend.kinds import Unsupported
from lazyfuse.devices.cpu.frontend.values import Value, llvm_type
from lazyfuse.devices.cpu.intrinsics import memory
from lazyfuse.devices.late_imports import module as heavy
from lazyfuse.devices.pools import vector_math

_TYPE_NAMES = {code: name for name, code in kinds.TYPES.items()}


@cached(1, CONSTANT, clears=False)
def namespace() -> dict[str, Any]:
    """All names of builtins.py; the globals of each program are a copy.

    numba knows the functions after its contexts' next `refresh`.
    """
    types, features = heavy("numba.core.types"), target_features()
    names: dict[str, Any] = {"np": np, "math": math, "njit": helpers()}
    names |= {name: getattr(types, name) for name in kinds.TYPES}
    names["CONVERTS_WIDE"] = vector_math.converts_wide(features)
    return names | {name: _known(each, features) for name, each in builtins.OWN.items()}


@cached(1, CONSTANT, clears=False)
def target_features() -> str:
    """The CPU features that numba compiles for, in LLVM's spelling."""
    return str(heavy("numba.core.registry").cpu_target.target_context.codegen()._tm_features)


def helpers() -> Any:
    """`njit` for helper functions. Programs with the same text share the helper."""
    dispatcher = heavy("numba.core.registry").CPUDispatcher
    known: dict[Any, Any] = {}

    def njit(function: Any) -> Any:
        code = function.__code__
        others = tuple(id(function.__globals__.get(name)) for name in code.co_names)
        key = (code.co_name, code.co_code, code.co_consts, code.co_names, others)
        if key not in known:
            options = {"nopython": True, "error_model": "numpy", "nogil": True}
            # Python never calls it: its wrappers took a quarter of the time
            options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
            known[key] = dispatcher(function, targetoptions=options)
        return known[key]

    return njit


@cached(why=DTYPES, clears=False)
def _pointer_type(code: str) -> Any:
    types = heavy("numba.core.types")
    return _pointer_class()(types.uint8 if code == "b1" else getattr(types, _TYPE_NAMES[code]))


@cached(1, CONSTANT, clears=False)
def _pointer_class() -> Any:
    """A pointer type whose loads and stores are in the access group of independent loops."""
    types, extending = heavy("numba.core.types"), heavy("numba.extending")

    class LoopPointer(types.CPointer):  # type: ignore[misc, name-defined]
        """A numba CPointer, whose templates type its indexing."""

        def __init__(self, dtype: Any) -> None:
            super().__init__(dtype)
            self.name = f"LoopPointer({dtype})"

    def load(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.gep(args[0], [args[1]])
        result = signature.return_type
        is_complex = isinstance(result, types.Complex)
        return _packed(context, builder, result, memory.load(builder, place, is_complex))

    def store(context: Any, builder: Any, signature: Any, args: Any) -> None:
        value = _parts(builder, signature.args[2], args[2])
        memory.store(builder, builder.gep(args[0], [args[1]]), value)

    extending.register_model(LoopPointer)(extending.models.PointerModel)
    integer = types.Integer
    extending.lower_builtin(operator.getitem, LoopPointer, integer)(load)
    extending.lower_builtin(operator.setitem, LoopPointer, integer, types.Any)(store)
    return LoopPointer


class _Walk(NamedTuple):
    """What functions of frontend/builtins.py read of the walk over a text."""

    builder: Any
    features: str
    depth: int = 0
    latches: tuple[Any, ...] = ()


def _known(emit: builtins.Function, features: str) -> Any:
    """A function of the language, in numba's terms."""
    types, templates = heavy("numba.core.types"), heavy("numba.core.typing.templates")

    def stub() -> None:
        """Stands for the function in texts."""

    class Template(templates.AbstractTemplate):  # type: ignore[misc, name-defined]
        key = stub
        prefer_literal = True

        def generic(self, args: Any, keywords: Any) -> Any:
            try:
                result = _result(emit, args, features)
            except Unsupported:
                return None  # numba then reports that no such call exists
            return templates.signature(result, *args)

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given = zip(signature.args, args, strict=True)
        values = [_value(kind, _parts(builder, kind, each)) for kind, each in given]
        found = emit(_Walk(builder, features), values)
        if found is None:
            return context.get_dummy_value()
        return _packed(context, builder, signature.return_type, found.parts)

    templates.infer_global(stub, types.Function(Template))
    heavy("numba.extending").lower_builtin(stub, types.VarArg(types.Any))(build)
    return stub


@cached(1024)
def _result(emit: builtins.Function, args: tuple[Any, ...], features: str) -> Any:
    """The type of a call's result: the call is emitted into a module for nothing else."""
    ir, types = heavy("llvmlite.ir"), heavy("numba.core.types")
    given = [_value(kind, ()) for kind in args]
    parts = [[llvm_type(each.kind)] * (2 if each.kind[0] == "c" else 1) for each in given]
    kind = ir.FunctionType(ir.VoidType(), [each for some in parts for each in some])
    function = ir.Function(ir.Module(), kind, "trial")
    left = iter(function.args)
    values = [
        each._replace(parts=tuple([next(left) for _ in some]))
        for each, some in zip(given, parts, strict=True)
    ]
    found = emit(_Walk(ir.IRBuilder(function.append_basic_block()), features), values)
    if found is None:
        return types.none
    if found.kind[0] == "*":
        return _pointer_type(found.target)
    return getattr(types, _TYPE_NAMES[found.kind])


def _value(kind: Any, parts: tuple[Any, ...]) -> Value:
    """A value of one of numba's types; raises `Unsupported` if texts have none of that type."""
    types = heavy("numba.core.types")
    literal = kind.literal_value if isinstance(kind, types.Literal) else None
    kind = types.unliteral(kind)
    is_pointer = isinstance(kind, types.CPointer)
    code = kinds.NAMES.get(str(kind.dtype if is_pointer else kind))
    if code is None:
        raise Unsupported(f"[translate] {kind}")
    return Value("*" * is_pointer + code, parts, literal)


def _parts(builder: Any, kind: Any, value: Any) -> tuple[Any, ...]:
    """The LLVM values of one of numba's: a complex number has two."""
    if not isinstance(kind, heavy("numba.core.types").Complex):
        return (value,)
    return builder.extract_value(value, 0), builder.extract_value(value, 1)


def _packed(context: Any, builder: Any, kind: Any, parts: Sequence[Any]) -> Any:
    """One of numba's values: two parts are a complex number."""
    if len(parts) == 1:
        return parts[0]
    made = context.make_complex(builder, kind)
    made.real, made.imag = parts
    return made._getvalue()
