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


def mark(builder: Any, width: int = 0, interleave: int = 0) -> None:
    """Remember that the innermost loop around the builder's position is parallel.

    `width`: the number of its iterations if they are one vector, so it must not be unrolled before.
    `interleave`: the number of vectors to compute side by side; 0: LLVM decides.
    """
    module = builder.module
    if not hasattr(module, "lazyfuse_marks"):
        module.lazyfuse_marks = []
    module.lazyfuse_marks.append((builder.block, width, interleave))


def side_by_side(count: int, features: str, builder: Any) -> None:
    """`mark` a loop whose text asks for `count` vectors at a time, on a CPU with these features."""
    x86 = vector_math.machine() in ("x86_64", "AMD64")
    if x86 and "+avx512f" not in features.split(","):
        count = count // 2 if count > 2 else 0  # vectors have 16 registers; 0: LLVM decides
    mark(builder, interleave=count)


def annotate(module: Any) -> None:
    """Write the metadata of all marked loops of a finished module."""
    for block, width, interleave in getattr(module, "lazyfuse_marks", ()):
        latches = _innermost_latches(block)
        if latches:
            said = [_accesses(module), *(_one_vector(module, width) if width else ())]
            if interleave:
                said.append(_side_by_side(module, interleave))
            loop = _distinct(module, self_reference=True, operands=said)
            for latch in latches:
                latch.terminator.set_metadata("llvm.loop", loop)


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


def _innermost_latches(block: Any) -> list[Any]:
    """The blocks that jump back to the head of the smallest loop around `block`."""
    best: tuple[int, list[Any]] | None = None
    for head, latches in _back_edges(block.function).items():
        body = _loop_body(head, latches)
        if block in body and (best is None or len(body) < best[0]):
            best = len(body), latches
    return best[1] if best else []


def _successors(block: Any) -> list[Any]:
    from llvmlite import ir

    return [op for op in block.terminator.operands if isinstance(op, ir.Block)]


def _back_edges(function: Any) -> dict[Any, list[Any]]:
    """Loop heads and the blocks that jump back to them, by depth-first search."""
    found: dict[Any, list[Any]] = {}
    entry = function.basic_blocks[0]
    state = {entry: 1}  # 1: on the path, 2: done
    path = [(entry, iter(_successors(entry)))]
    while path:
        block, following = path[-1]
        for successor in following:
            if state.get(successor) == 1:
                found.setdefault(successor, []).append(block)
            elif successor not in state:
                state[successor] = 1
                path.append((successor, iter(_successors(successor))))
                break
        else:
            state[block] = 2
            path.pop()
    return found


def _loop_body(head: Any, latches: list[Any]) -> set[Any]:
    """The blocks of a natural loop: all that reach a latch without passing the head."""
    predecessors: dict[Any, list[Any]] = {}
    for block in head.function.basic_blocks:
        for successor in _successors(block):
            predecessors.setdefault(successor, []).append(block)
    body, pending = {head}, list(latches)
    while pending:
        block = pending.pop()
        if block not in body:
            body.add(block)
            pending.extend(predecessors.get(block, ()))
    return body
