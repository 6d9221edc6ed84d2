"""The results as a picture: one panel per size, one bar per case and library."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import numpy as np

from benchmarks.measure import Row


def draw(rows: Sequence[Row], path: str) -> None:
    """Write a picture of the ratios to NumPy, on a logarithmic axis."""
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    sizes = sorted({row.size for row in rows})
    cases = sorted({row.case for row in rows})
    libraries = [name for name in dict.fromkeys(row.library for row in rows) if name != "numpy"]
    ratio = {(row.size, row.case, row.library): row.ratio for row in rows if row.ratio}

    figure, panels = pyplot.subplots(
        len(sizes), 1, figsize=(1.5 + 0.55 * len(cases), 2.6 * len(sizes)), squeeze=False
    )
    place = np.arange(len(cases))
    width = 0.8 / max(len(libraries), 1)
    for size, axes in zip(sizes, panels[:, 0], strict=True):
        for number, library in enumerate(libraries):
            heights = [ratio.get((size, case, library), np.nan) for case in cases]
            left = place + (number + 0.5) * width - 0.4
            axes.bar(left, np.array(heights) - 1.0, width, bottom=1.0, label=library)
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_yscale("log")
        axes.set_title(f"n = {size:,}", loc="left", fontsize=9)
        axes.set_ylabel("times NumPy's speed", fontsize=8)
        axes.set_xlim(-0.6, len(cases) - 0.4)
        axes.set_xticks(place, cases if size == sizes[-1] else [""] * len(cases))
        axes.tick_params(axis="x", rotation=90, labelsize=8)
    panels[0, 0].legend(fontsize=8, ncols=min(len(libraries), 8))
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
