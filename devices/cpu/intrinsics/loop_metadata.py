"""LLVM metadata that says "iterations of this loop do not touch each other's memory".

The vectoriser then needs no alias analysis and no run-time checks (for more than a handful of
pointers it gives up). Works on llvmlite's module objects; imports llvmlite in functions only.

An access belongs to the one access group of its module; a loop in which `mark` was called is
annotated with `llvm.loop.parallel_accesses` of that group. LLVM keeps the order of accesses within
an iteration, so an output may share its memory with an input of the same layout.
"""

from __future__ import annotations

from typing import Any

from ...pools import vector_math


def join_group(instruction: Any) -> Any:
    """Put a load or store into the module's access group; return the instruction."""
    instruction.set_metadata("llvm.access.group", _group(instruction.module))
    return instruction


def mark(latch: Any, width: int = 0, interleave: int = 0) -> None:
    """Say that a loop is parallel, at the block that jumps back to its head.

    `width`: the number of its iterations if they are one vector, so it must not be unrolled before.
    `interleave`: the number of vectors to compute side by side; 0: LLVM decides.
    """
    module = latch.function.module
    said = [_accesses(module), *(_one_vector(module, width) if width else ())]
    if interleave:
        said.append(_side_by_side(module, interleave))
    loop = _distinct(module, self_reference=True, operands=said)
    latch.terminator.set_metadata("llvm.loop", loop)


def side_by_side(count: int, features: str, latch: Any) -> None:
    """`mark` a loop whose text asks for `count` vectors at a time, on a CPU with these features."""
    x86 = vector_math.machine() in ("x86_64", "AMD64")
    if x86 and "+avx512f" not in features.split(","):
        count = count // 2 if count > 2 else 0  # vectors have 16 registers; 0: LLVM decides
    mark(latch, interleave=count)


def _group(module: Any) -> Any:
    if not hasattr(module, "lazyfuse_group"):
        module.lazyfuse_group = _distinct(module, self_reference=False, operands=[])
    return module.lazyfuse_group


def _accesses(module: Any) -> Any:
    return module.add_metadata(["llvm.loop.parallel_accesses", _group(module)])


def _one_vector(module: Any, width: int) -> list[Any]:
    from llvmlite import ir

    number, yes = ir.IntType(32), ir.IntType(1)(1)
    return [
        module.add_metadata(["llvm.loop.unroll.disable"]),
        module.add_metadata(["llvm.loop.vectorize.enable", yes]),
        module.add_metadata(["llvm.loop.vectorize.width", number(width)]),
        _side_by_side(module, 1),
    ]


def _side_by_side(module: Any, count: int) -> Any:
    from llvmlite import ir

    return module.add_metadata(["llvm.loop.interleave.count", ir.IntType(32)(count)])


def _distinct(module: Any, self_reference: bool, operands: list[Any]) -> Any:
    """A `distinct` metadata node: never merged with an equal one."""
    from llvmlite.ir import values

    class DistinctNode(values.MDValue):  # type: ignore[misc]
        def descr(self, buf: list[str]) -> None:
            own = [self.get_reference()] if self_reference else []
            listed = ", ".join(own + [operand.get_reference() for operand in self.operands])
            buf += (f"distinct !{{ {listed} }}", "\n")

        __hash__ = object.__hash__

        def __eq__(self, other: object) -> bool:
            return self is other

    return DistinctNode(module, operands, name=str(len(module.metadata)))
