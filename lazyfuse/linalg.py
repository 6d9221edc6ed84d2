"""As `numpy.linalg`: norms are followed (decompositions.py), factorizations look at values."""

from __future__ import annotations

from lazyfuse.namespace import numpy_modules

__getattr__, __dir__ = numpy_modules.filler(__name__, "numpy.linalg")
