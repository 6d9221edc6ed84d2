"""As `numpy.linalg`: norms are decomposed (decompositions.py), factorizations need values."""

from __future__ import annotations

from lazyfuse.namespace import numpy_modules

__getattr__, __dir__ = numpy_modules.filler(__name__, "numpy.linalg")
