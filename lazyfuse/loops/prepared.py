"""The loops of code that Python has made already.

Owns the way from a function's code to its text and back, to the same code with its loops prepared
(find.py). A text that is not that of the code, by what Python makes of it, is never used.
"""

from __future__ import annotations

import ast
import builtins
import dis
import linecache
import warnings
from collections.abc import Iterator
from types import CodeType

from lazyfuse.devices.caches import cached
from lazyfuse.loops import find
from lazyfuse.loops.take_over import Loop

_compile = builtins.compile  # before the launcher has another
_BACKWARD = frozenset(code for name, code in dis.opmap.items() if "JUMP_BACKWARD" in name)


def prepared(code: CodeType) -> CodeType:
    """The code with its loops prepared; the same code if its text is not at hand, or has none."""
    parts = list(codes(code))
    has_loops = not all(_BACKWARD.isdisjoint(each.co_code[::2]) for each in parts)
    if not has_loops or any(type(each) is Loop for part in parts for each in part.co_consts):
        return code
    text = "".join(linecache.getlines(code.co_filename))
    plain, made = _of_text(text, code.co_filename).get(_place(code), (None, code))
    return made if plain == code else code


@cached(16)
def _of_text(text: str, file: str) -> dict[tuple[str, int], tuple[CodeType, CodeType]]:
    """The codes of a text by their places: as Python makes them, and with their loops prepared."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python has given them
            tree = ast.parse(text, file)
            plain = _compile(tree, file, "exec", dont_inherit=True)
            if not find.rewrite(tree, file):
                return {}
            made = find.insert(_compile(tree, file, "exec", dont_inherit=True))
    except (SyntaxError, ValueError, RecursionError):
        return {}
    ours = {_place(each): each for each in codes(made)}
    return {_place(each): (each, ours.get(_place(each), each)) for each in codes(plain)}


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def codes(code: CodeType) -> Iterator[CodeType]:
    """Code and that of its functions."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from codes(each)
