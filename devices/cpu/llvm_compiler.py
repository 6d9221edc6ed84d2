"""Text of language "numba" -> object code by llvmlite alone.

Owns LLVM's passes over what frontend/ translates, for this processor. No pass reorders
floating-point arithmetic.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..base import DeviceError, Source
from ..late_imports import module as heavy
from ..pools import object_code, vector_math
from .frontend.translate import translate

# -O2. The texts' machine code is the same with -O3.
_LEVEL = 2

_lock = threading.Lock()  # several at once would need several times the memory


def compile_source(source: Source) -> bytes:
    """The object code of a source; raises `DeviceError`."""
    with _lock, _optimised(source) as (machine, module):
        return bytes(machine.emit_object(module))


def assembly(source: Source) -> str:
    """The machine code of a source as text."""
    with _lock, _optimised(source) as (machine, module):
        return str(machine.emit_assembly(module))


@contextmanager
def _optimised(source: Source) -> Iterator[tuple[Any, Any]]:
    """Describe this machine, and make LLVM's module of a source.

    The module ends here. An interrupt's traceback would leave it to the collector, which may end
    its context first, and then the module's memory is freed twice.
    """
    cpu, features = object_code.target()
    llvm = object_code.linker()
    object_code.room(object_code.TO_COMPILE)
    try:
        translated = translate(source, object_code.ENTRY, features)
    except (DeviceError, RecursionError) as error:
        raise DeviceError(f"[compile] {source.name}: {error}") from error
    has_vector_math = "vm_" in source.text or "vmf_" in source.text
    if has_vector_math:
        prefer_full_vectors(translated, features)
    machine = object_code.target_machine(cpu, features, _LEVEL)
    try:
        # a context of its own, which ends with it: constants and types stay in a context for ever
        module = llvm.parse_assembly(str(translated), llvm.create_context())
    except RuntimeError as error:
        raise DeviceError(f"[compile] {source.name}: {error}") from error
    with module:
        module.triple, module.data_layout = machine.triple, str(machine.target_data)
        options = llvm.create_pipeline_tuning_options(_LEVEL)
        options.loop_vectorization, options.slp_vectorization = True, False
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        if has_vector_math:
            inline_vector_math(machine, module)
        optimised = str(module)
        last = with_whole_stores(optimised)
        if "select(" in source.text:
            last = with_all_flags(last)
        if last == optimised:
            yield machine, module
            return
    with llvm.parse_assembly(last, llvm.create_context()) as module:
        yield machine, module


def inline_vector_math(machine: Any, module: Any) -> None:
    """Inline lazyfuse's mathematical functions into the loops that have just become vectors.

    Only then is it known which functions (own_math.py) they call, after all other passes.
    """
    llvm = heavy("llvmlite.binding")
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))


_COMPUTED = re.compile(r"(?m)^ +(%[\w.]+) = (?:tail )?(?:fadd|fsub|fmul|fdiv|call)\b")
_ARM = r"([^\s,<]+|splat \([^)]*\)|<[^>]*>)"
_CHOICE = re.compile(
    r"(?m)^( +)(%[\w.]+ = select .*?(?:<\d+ x i1>|i1) %[\w.]+), "
    rf"((?:<\d+ x )?(?:double|float)>?) {_ARM}, \3 {_ARM}"
)


def with_all_flags(text: str) -> str:
    """A module whose choices between computed floats compute both.

    Code generation makes arithmetic with a mask of a choice in vectors, and a branch of one that
    divides. The elements that are not chosen would raise no flags then, as they do in NumPy.
    """
    computed = set(_COMPUTED.findall(text))
    declared = dict[str, str]()
    count = 0

    def fenced(found: re.Match[str]) -> str:
        nonlocal count
        indent, choice, kind, *arms = found.groups()
        lines = []
        for at, arm in enumerate(arms):
            if arm in computed:
                code = kind.strip("<>").replace(" x ", "").replace("double", "f64")
                code = code.replace("float", "f32")
                name = f"@llvm.arithmetic.fence.{'v' if kind[0] == '<' else ''}{code}"
                declared[name] = f"declare {kind} {name}({kind})\n"
                arms[at] = f"%fence.{count}"
                lines.append(f"{indent}{arms[at]} = call {kind} {name}({kind} {arm})\n")
                count += 1
        return f"{''.join(lines)}{indent}{choice}, {kind} {arms[0]}, {kind} {arms[1]}"

    made = _CHOICE.sub(fenced, text)
    return made + "".join(declared.values()) if declared else text


_LOADED = re.compile(r"(?m)^ +(%[\w.]+) = load <\d+ x \w+>, ptr (%[\w.]+)")
_CHOSEN = re.compile(
    r"(?m)^ +(%[\w.]+) = (?:select <\d+ x i1> \S+, |(?:tail )?call .*@llvm\.[su](?:min|max)\S*\()"
    r"<\d+ x \w+> ([^ ,]+), <\d+ x \w+> ([^ )\n]+)"
)
_STORED = re.compile(r"(?m)^( +store )(<\d+ x \w+> (%[\w.]+), ptr (%[\w.]+))")


def with_whole_stores(text: str) -> str:
    """A module that stores vectors whole where some of their elements keep what they were.

    From LLVM 20 on code generation makes masked stores of these, which take ten times as long on
    AMD's processors with AVX2: minima of 100,000 doubles 66 us, in place of 14. Volatile stores are
    the ones that it leaves alone; no pass comes after this.
    """
    loaded = dict(_LOADED.findall(text))
    chosen = {name: arms for name, *arms in _CHOSEN.findall(text)}

    def whole(found: re.Match[str]) -> str:
        start, rest, value, target = found.groups()
        kept = any(loaded.get(arm) == target for arm in chosen.get(value, ()))
        return f"{start}volatile {rest}" if kept else found.group()

    return _STORED.sub(whole, text)


def prefer_full_vectors(ir_module: Any, features: str) -> None:
    """Let loops use vectors as wide as the mathematical functions take.

    LLVM prefers 256 bits on many CPUs that have 512, and then finds no function of that width.
    """
    bits = 8 * vector_math.vector_bytes(features)
    if bits:
        for function in ir_module.functions:
            set.add(function.attributes, f'"prefer-vector-width"="{bits}"')
