"""What texts for LLVM share: words that a pointer leads to, and the IEEE flags."""

from __future__ import annotations

from collections.abc import Mapping

from ..pools import vector_math


def words(pointer: str, kinds: Mapping[str, str], first: int = 0) -> str:
    """Text that reads words of 8 bytes from number `first` on: values by name, of these kinds."""
    return "\n".join(
        f"  %{name}.at = getelementptr i64, ptr %{pointer}, i64 {at}\n"
        f"  %{name} = load {kind}, ptr %{name}.at, align 8"
        for at, (name, kind) in enumerate(kinds.items(), first)
    )


def flag_text() -> tuple[str, str, str]:
    """Text that clears the flags, and returns them at the end (see `base.Program.launch`)."""
    masks = vector_math.fenv_flags()
    if masks is None:
        return "", "  ret i32 0", ""
    every = sum(masks)
    lines = [f"  %raised = call i32 @lf_fetestexcept(i32 {every})"]
    before = "0"
    for k, (mask, ours) in enumerate(zip(masks, (8, 1, 2, 4), strict=True)):
        lines += [
            f"  %bit{k} = and i32 %raised, {mask}",
            f"  %set{k} = icmp ne i32 %bit{k}, 0",
            f"  %our{k} = select i1 %set{k}, i32 {ours}, i32 0",
            f"  %sum{k} = or i32 {before}, %our{k}",
        ]
        before = f"%sum{k}"
    lines.append(f"  ret i32 {before}")
    declared = "declare i32 @lf_feclearexcept(i32)\ndeclare i32 @lf_fetestexcept(i32)"
    clear = f"%cleared = call i32 @lf_feclearexcept(i32 {every})"
    return clear, "\n".join(lines), declared
