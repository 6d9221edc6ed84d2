"""As `numpy.linalg`: norms are followed (recipes.py), factorizations look at values at once."""

from __future__ import annotations

from lazyfuse import namespaces

__getattr__, __dir__ = namespaces.filler(__name__, "numpy.linalg")
