"""The op table is the only list of ops: what others know of an op is a column of its row.

A collection of op names elsewhere (in Python a tuple, list, set or dict, or a text of names; in C a
block) would have to be kept in step by hand, and drifts. Names of three ops that make up most of a
collection count as one; fewer are a special case, which may say so where it stands.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lazyfuse.codegen.table.op import KINDS
from lazyfuse.codegen.table.ops import TABLE

ROOT = Path(__file__).parents[1]
OPS = {name.removeprefix("reduce:") for name in TABLE} - {*KINDS}
FEWEST = 3

ALLOWED = {
    "devices/base.py": "functions of the C library that Python's math calls",
    "devices/cpu/frontend/arithmetic.py": "functions that LLVM has",
    "devices/cpu/frontend/loop_functions.py": "the same, of two numbers",
    "devices/pools/own_math.py": "functions that the file itself has",
    "devices/pools/vector_math.py": "functions of libmvec, of which some are no op",
    "lazyfuse/native/arrays/operators.c": "the slots that Python gives operators in a type",
}
"""Files with such collections, and why these are no lists beside the table."""


def collections(tree: ast.AST) -> Iterator[list[str]]:
    """The strings of each collection, and the words of each text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            yield strings(node.elts)
        elif isinstance(node, ast.Dict):
            yield strings(node.keys)
            yield strings(node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.split()


def strings(nodes: list[ast.expr] | list[ast.expr | None]) -> list[str]:
    return [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def blocks(text: str) -> Iterator[list[str]]:
    """The words in the strings of each outermost block in braces of a C source, and the first
    words of the rows of each table that is a macro.
    """
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    for table in re.findall(r"#define \w+\(_\) *\\\n(?:.*\\\n)*.*", text):
        yield re.findall(r"\b_\((\w+)", table)
    depth, found = 0, list[str]()
    for token in re.findall(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|[{}]', text):
        if token[0] == '"':
            found += token[1:-1].split()
        elif token in "{}":
            depth += 1 if token == "{" else -1
            if not depth:
                yield found
                found = []


def lists(path: Path, text: str) -> Iterator[str]:
    """The names of three ops or more that stand together in a source."""
    found = blocks(text) if path.suffix in (".c", ".h") else collections(ast.parse(text))
    for words in found:
        names = list(dict.fromkeys(word for word in words if word in OPS))
        if len(names) >= FEWEST and 2 * len(names) >= len(words):
            yield " ".join(names)


def sources() -> Iterator[Path]:
    for folder in ("lazyfuse", "codegen", "devices"):
        for path in sorted((ROOT / folder).rglob("*.*")):
            relative = path.relative_to(ROOT)
            if path.suffix in (".py", ".c", ".h") and "codegen/table" not in relative.as_posix():
                yield relative


def test_no_list_of_ops_stands_beside_the_table() -> None:
    found = [
        (path.as_posix(), names)
        for path in sources()
        for names in lists(path, (ROOT / path).read_text())
    ]
    wrong = [each for each in found if each[0] not in ALLOWED]
    assert not wrong, "make these columns of codegen/table/op.py"
    assert not ALLOWED.keys() - {path for path, _ in found}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "X = frozenset(('add', 'subtract', 'multiply'))"),
        ("a.py", "X = 'add subtract multiply'.split()"),
        ("a.py", "X = {'add': 1, 'subtract': 2, 'multiply': 3}"),
        ("a.py", "def f(x): return x in ('add', 'subtract', 'multiply')"),
        ("a.c", 'static const char *const X[] = {"add", "subtract", "multiply"};'),
        ("a.c", 'int f(S x) { return is(x, "add") || is(x, "subtract") || is(x, "multiply"); }'),
    ],
)  # fmt: skip
def test_lists_are_found(name: str, text: str) -> None:
    assert list(lists(Path(name), text)) == ["add subtract multiply"]
