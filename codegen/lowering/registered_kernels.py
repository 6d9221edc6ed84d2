"""Program texts made for one kernel, which replace the general printers' with the same ABI.

Owns the register and the texts that come with lazyfuse. The general printer is the reference: a
text is used only for variants where it has given the same results (see acceptance.py). Knows
kernels, variants and text; runs nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import field

from lazyfuse.codegen.lowering.kernel import Kernel, Reduce, verify
from lazyfuse.codegen.lowering.variant import KernelVariant
from lazyfuse.devices.base import Source
from lazyfuse.devices.dataclass import dataclass, replace

Builder = Callable[[Kernel, KernelVariant], str | None]
"""Returns the text for a variant, with `NAME` as the entry point; None for an unsupported one."""

LANGUAGES = ("numba", "numpy", "opencl")

UNCHECKED = "it was not checked against the general text"


@dataclass(eq=False)
class Specialisation:
    """A text for all kernels with the computation of `kernel`, over any number of axes."""

    name: str
    language: str
    kernel: Kernel
    build: Builder
    passed: set[KernelVariant] = field(
        default_factory=set
    )  # variants where it gave the general text's results
    failure: str = UNCHECKED  # why it is not used at all; empty once a check has passed

    @property
    def ok(self) -> bool:
        """Whether it has passed its check."""
        return not self.failure

    def source(self, general: Source, form: KernelVariant) -> Source | None:
        """The program that replaces `general`, which has the ABI; None where there is no text."""
        text = self.build(self.kernel, form)
        if text is None:
            return None
        text = text.strip() + "\n"
        name = f"{self.name}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        return replace(general, name=name, text=text.replace("NAME", name))

    def __str__(self) -> str:
        state = f"not used: {self.failure}" if self.failure else f"used in {len(self.passed)} forms"
        return f"{self.name} [{self.language}] {state}"


_REGISTER: dict[tuple[Kernel, str], Specialisation] = {}


def register(
    kernel: Kernel, build: str | Builder, language: str = "numba", name: str = "special"
) -> Specialisation:
    """Offer a text for a kernel. It replaces an earlier text for the same kernel.

    A plain text serves one loop over dense operands; other variants need a builder.
    """
    verify(kernel)
    if language not in LANGUAGES:
        expected = f"expected one of {LANGUAGES}, got {language!r}"
        raise ValueError(f"[register_kernel] language: {expected}")
    if not name.isidentifier():
        raise ValueError(f"[register_kernel] name: expected an identifier, got {name!r}")
    builder = build if callable(build) else _constant(build)
    made = Specialisation(name, language, kernel, builder)
    _REGISTER[_pattern(kernel), language] = made
    return made


def unregister(specialisation: Specialisation) -> None:
    """Remove a specialisation; the general text is used again."""
    key = _pattern(specialisation.kernel), specialisation.language
    if _REGISTER.get(key) is specialisation:
        del _REGISTER[key]


def choose(kernel: Kernel, form: KernelVariant, general: Source) -> Source:
    """The specialised program for a kernel variant if one may be used, else `general`."""
    found = _find(kernel, general.language)
    if found is None or form not in found.passed:
        return general
    return found.source(general, form) or general


def why_not(kernel: Kernel, form: KernelVariant, language: str) -> str:
    """Why a specialisation for this kernel is not used in a variant; empty if it is, or if none."""
    found = _find(kernel, language)
    if found is None or form in found.passed:
        return ""
    return f"specialised kernel {found.name}: {found.failure or 'this form was not checked'}"


def _find(kernel: Kernel, language: str) -> Specialisation | None:
    return _REGISTER.get((_pattern(kernel), language)) if _REGISTER else None


def _pattern(kernel: Kernel) -> Kernel:
    """A kernel without its axes, which belong to the variant."""
    return replace(kernel, rank=0, reduced=())


def _constant(text: str) -> Builder:
    return lambda kernel, form: text if _is_dense(form) else None


def _is_dense(form: KernelVariant) -> bool:
    return not form.outer and form.run == 1 and set(form.classes) <= {"0", "1"}


# -------------------------------------------------------------------- lazyfuse's specialisations

# A dense row, reduced as a whole: the variant of sums and extremes of whole arrays.
_DENSE_ROW = ("row", (), 1, "10")


def _is_dense_row(form: KernelVariant) -> bool:
    return (form.core, form.outer, form.run, form.classes) == _DENSE_ROW


def _count_true(kernel: Kernel, form: KernelVariant) -> str | None:
    """The number of true elements: bytes are added as bytes while they cannot overflow.

    The general text widens each element to eight bytes before it adds: this takes 0.4 of its time.
    """
    return _COUNT_TRUE if _is_dense_row(form) else None


_COUNT_TRUE = """
def NAME(meta, scalars):
    n0 = meta[0]
    a0 = meta[1]
    p1 = pointer_i8(meta[3])
    lanes = local_u1(128)
    total = int64(0)
    low = 0
    while low + 128 <= n0:
        rows = min(255, (n0 - low) // 128)
        for i in range(128):
            lanes[i] = uint8(0)
        for row in range(rows):
            p0 = pointer_u1(a0 + low + row * 128)
            for i in range(128):
                independent()
                h0 = p0[i]
                lanes[i] = uint8(lanes[i] + (h0 != 0))
        for i in range(128):
            total += int64(lanes[i])
        low += rows * 128
    p0 = pointer_u1(a0 + low)
    for i in range(n0 - low):
        total += int64(p0[i] != 0)
    p1[0] = total
    return int32(0)
"""


_COUNT = Kernel(1, ("b1",), (), (), (), (Reduce("add", 0, "i8", "i8"),), (True,))

OWN: dict[str, tuple[Kernel, Builder]] = {
    "count_true": (_COUNT, _count_true),
}
"""The texts for numba that come with lazyfuse; used once registered."""
