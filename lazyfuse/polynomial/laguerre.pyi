# Written by scripts/write_stubs.py. Edit that.
from numpy.polynomial.laguerre import *
