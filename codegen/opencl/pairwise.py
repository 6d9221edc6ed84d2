"""NumPy's pairwise sum of contiguous floats as functions of OpenCL C.

Owns `pairwise_f8(pointer, count)` of private buffers, `pairwise_global_f8` of arrays, and the same
for f4, c8 and c16. The order of additions is NumPy's, and so are the bits; its eight accumulators
are vectors. OpenCL C has no recursion: halves that wait for their right side are on a stack.
Exceptions are checked once per leaf: a leaf whose sum is not finite is summed again step by step.
"""

from __future__ import annotations

import re

BLOCK = 128  # floats that eight accumulators sum; NumPy halves what is longer

_FOUR = """
typedef {item}4 four_{item} __attribute__((aligned({size})));
"""

_AGAIN = """
static void again_{name}(const {space} {item} *p, long count, int *raised)
{{
    {item} sums[8];
    long i = 8 / {parts};
    if (count < i)
        i = 1;
    for (int k = 0; k < {parts} * i; k++)
        sums[k] = p[k];
    if (i > 1) {{
        for (; i + 8 / {parts} <= count; i += 8 / {parts})
            for (int k = 0; k < 8; k++)
                sums[k] = {joined}(sums[k], p[{parts} * i + k], raised);
        for (int width = {parts}; width < 8; width *= 2)
            for (int k = 0; k < 8; k += 2 * width)
                for (int part = k; part < k + {parts}; part++)
                    sums[part] = {joined}(sums[part], sums[part + width], raised);
    }}
    for (; i < count; i++)
        for (int k = 0; k < {parts}; k++)
            sums[k] = {joined}(sums[k], p[{parts} * i + k], raised);
}}
"""

_FLOAT = """
static inline {item} leaf_{name}(const {space} {item} *p, long count, int *raised)
{{
    {item} total = {zero};
    long i = 0;
    if (count >= 8) {{
        {item}4 low = *(const {space} four_{item} *)p, high = *(const {space} four_{item} *)(p + 4);
        for (i = 8; i + 8 <= count; i += 8) {{
            low += *(const {space} four_{item} *)(p + i);
            high += *(const {space} four_{item} *)(p + i + 4);
        }}
        total = ((low.x + low.y) + (low.z + low.w)) + ((high.x + high.y) + (high.z + high.w));
    }}
    for (; i < count; i++)
        total += p[i];
    if (!isfinite(total))
        again_{name}(p, count, raised);
    return total;
}}
"""

_COMPLEX = """
static inline {item}2 leaf_{name}(const {space} {item} *p, long count, int *raised)
{{
    {item}2 total = {zero};
    long i = 0;
    if (count >= 4) {{
        {item}4 low = *(const {space} four_{item} *)p, high = *(const {space} four_{item} *)(p + 4);
        for (i = 4; i + 4 <= count; i += 4) {{
            low += *(const {space} four_{item} *)(p + 2 * i);
            high += *(const {space} four_{item} *)(p + 2 * i + 4);
        }}
        total = (low.xy + low.zw) + (high.xy + high.zw);
    }}
    for (; i < count; i++)
        total += ({item}2)(p[2 * i], p[2 * i + 1]);
    if (!isfinite(total.x) || !isfinite(total.y))
        again_{name}(p, count, raised);
    return total;
}}
"""

_TREE = """
static inline {result} pairwise_{name}(const {space} {item} *p, long count, int *raised)
{{
    {result} left[64];
    long right[64];
    int top = 0;
    for (;;) {{
        while (count > {block}) {{
            const long first = {half};
            right[top++] = count - first;
            count = first;
        }}
        {result} total = leaf_{name}(p, count, raised);
        p += {step};
        while (top > 0 && right[top - 1] == 0)
            total = {joined_result}(left[--top], total, raised);
        if (top == 0)
            return total;
        left[top - 1] = total;
        count = right[top - 1];
        right[top - 1] = 0;
    }}
}}
"""


def half(complex_values: bool) -> str:
    """How many of `count` elements the left branch of NumPy's tree takes, as text."""
    return "(count - (count & 7)) >> 1" if complex_values else "(count >> 1) & ~7L"


def call(dtype: str, pointer: str, is_global: bool, raised: str) -> str:
    """The expression for the sum of `count` elements; `raised`: where flags are added."""
    return f"pairwise_{'global_' if is_global else ''}{dtype}({pointer}, count, &{raised})"


def helpers(body: str) -> str:
    """The functions that a text calls."""
    names = sorted(set(re.findall(r"\bpairwise_((?:global_)?[fc]\d+)\(", body)))
    items = sorted({_item(name) for name in names})
    types = "".join(_FOUR.format(item=each, size=4 if each == "float" else 8) for each in items)
    return types + "".join(_functions(name) for name in names)


def _item(name: str) -> str:
    return "float" if name.endswith(("f4", "c8")) else "double"


def _functions(name: str) -> str:
    parts = 2 if name.endswith(("c8", "c16")) else 1
    item = _item(name)
    words = {
        "name": name,
        "space": "__global" if name.startswith("global_") else "__private",
        "item": item,
        "zero": "-0.0f" if item == "float" else "-0.0",
        "result": item if parts == 1 else f"{item}2",
        "block": str(BLOCK // parts),
        "half": half(parts == 2),
        "step": "count" if parts == 1 else "2 * count",
        "parts": str(parts),
        "joined": "joined_add_" + ("f4" if item == "float" else "f8"),
        "joined_result": "joined_add_" + name.removeprefix("global_"),
    }
    leaf = _FLOAT if parts == 1 else _COMPLEX
    return "".join(text.format(**words) for text in (_AGAIN, leaf, _TREE))
