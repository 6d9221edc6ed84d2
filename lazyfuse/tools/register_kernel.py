"""`lazyfuse.register_kernel`: the user's own program texts for kernels, with the same results.

Owns the public side of codegen/lowering/registered_kernels.py: patterns by example, the check on
the device in use, and the caches to clear when a text is registered or removed.
"""

from __future__ import annotations

from lazyfuse.codegen.lowering import registered_kernels
from lazyfuse.codegen.lowering.acceptance import check
from lazyfuse.codegen.lowering.kernel import Kernel
from lazyfuse.codegen.lowering.registered_kernels import Builder, Specialisation
from lazyfuse.errors import message
from lazyfuse.runtime.events import counters
from lazyfuse.runtime.placement import devices
from lazyfuse.runtime.scheduling import evaluate
from lazyfuse.tools.freeze import Program


def register_kernel(
    pattern: Program | Kernel | str,
    text: str | Builder | None = None,
    language: str = "numba",
    name: str = "special",
) -> Specialisation:
    """Use the caller's program text for a kernel, if it gives the general text's results.

    `pattern` is a frozen program that runs as one kernel (`lazyfuse.freeze(lambda m: m.sum(),
    m=example)`): the text serves every kernel that computes the same from operands of the same
    dtypes, over any number of axes. `text` is in `language` ("numba", "numpy" or "opencl") with
    `NAME` for its entry point and the arguments that `program.source(language)` shows; or a
    function `(kernel, variant) -> text or None`, called for each kernel variant. Instead of both,
    pass the name of a text that comes with lazyfuse (`lazyfuse.register_kernel("count_true")`).

    The text and the general one run on the device in use, on operands of many sizes and layouts.
    The text serves the variants that were checked, and none if a result differs: `ok` and
    `failure` of the returned object show it, as does `lazyfuse.report()`.
    """
    with evaluate.quiet:
        found = _offered(pattern, text, language, name)
        verdict = check(found, devices.current())
        evaluate.clear_plans()  # they hold programs of the former text
    if not verdict.ok:
        counters.totals().fallbacks[f"specialised kernel {found.name}: {verdict.why}"] += 1
    return found


def unregister_kernel(specialisation: Specialisation) -> None:
    """Remove a text: the general one serves again."""
    with evaluate.quiet:
        registered_kernels.unregister(specialisation)
        evaluate.clear_plans()


def _offered(
    pattern: Program | Kernel | str, text: str | Builder | None, language: str, name: str
) -> Specialisation:
    if isinstance(pattern, str):
        if pattern not in registered_kernels.OWN or text is not None:
            known = ", ".join(registered_kernels.OWN)
            raise ValueError(message("register_kernel", f"name: expected one of {known}", "", None))
        kernel, builder = registered_kernels.OWN[pattern]
        return registered_kernels.register(kernel, builder, "numba", pattern)
    if text is None:
        raise TypeError(message("register_kernel", "text", "a program text or a function", text))
    return registered_kernels.register(_kernel(pattern), text, language, name)


def _kernel(pattern: object) -> Kernel:
    """The only kernel of a program."""
    if isinstance(pattern, Kernel):
        return pattern
    if not isinstance(pattern, Program):
        got = type(pattern).__name__
        raise TypeError(message("register_kernel", "pattern", "a program of freeze", got))
    kernels = pattern.kernels()
    if len(kernels) != 1:
        text = f"pattern: expected a program of one kernel, got {len(kernels)}"
        raise ValueError(message("register_kernel", f"{text}; see program.explain()"))
    return kernels[0]
