"""Writes docs/options.md from lazyfuse/config.py: `python scripts/write_options.py`."""

from pathlib import Path

from lazyfuse.config import rows

TARGET = Path(__file__).parents[1] / "docs" / "options.md"

INTRODUCTION = """# Options

<!-- Written by scripts/write_options.py from lazyfuse/config.py. Edit those. -->

Every option is an attribute of `lazyfuse.options` and an environment variable that is read once,
when lazyfuse is imported. They hold for the whole process.

```python
import lazyfuse

lazyfuse.options(eager_below=0)           # from now on
with lazyfuse.options(fusion=False):      # for a block
    ...
lazyfuse.options.eager_below              # the present value
lazyfuse.options()                        # all of them, with their help
```

Switches take `on` or `off` (also 1, 0, true, false, yes, no), sizes in bytes a number or text
like `256MB`.

"""

HEAD = """| option | variable | type | default | what it does |
|---|---|---|---|---|
"""

SWITCHES = """
## Switches for who works on lazyfuse

Programs do not need these. They turn mechanisms off to find out what each is worth, or set limits
that measurements have set. They may go without notice.

"""

NOTES = """
With `single_precision` a device without float64 keeps and computes float64 as float32, and
complex128 as complex64: what goes there is rounded, and what is beyond 3.4e38 becomes infinite.
Results are float64 arrays with the accuracy of float32. Kernels that ran so are counted in
`lazyfuse.report()`, and `lazyfuse.explain` marks them. Devices with float64 are not concerned.
"""


def text() -> str:
    """The whole page."""
    lines: tuple[list[str], list[str]] = ([], [])
    for row in rows():
        cells = (
            f"`{row.name}`",
            f"`{row.variable}`",
            row.kind.__name__,
            row.default_text,
            row.help,
        )
        lines[row.developer].append("| " + " | ".join(cells) + " |\n")
    users, developers = map("".join, lines)
    return INTRODUCTION + HEAD + users + NOTES + SWITCHES + HEAD + developers


if __name__ == "__main__":
    TARGET.write_text(text())
