"""As `numpy.fft`: NumPy's transforms, run at once, with our arrays as operands and results."""

from __future__ import annotations

from lazyfuse.namespace import numpy_modules

__getattr__, __dir__ = numpy_modules.filler(__name__, "numpy.fft")
