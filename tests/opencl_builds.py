"""How kernels for OpenCL are built in tests, and in the processes that tests start. Holds no test.

PoCL takes 0.6 s to optimise a kernel and 0.1 s to translate it. The suite has kernels translated
only; LAZYFUSE_TEST_OPENCL=optimised has them built as users' are. Importing this module sees to it.
"""

import os

from lazyfuse.devices import opencl

OPTIMISED = os.environ.get("LAZYFUSE_TEST_OPENCL") == "optimised"

if not OPTIMISED:
    opencl.BUILD_OPTIONS.append("-cl-opt-disable")
