"""For every test: costs that a developer has measured on this machine must not choose devices."""

from __future__ import annotations

import os

os.environ.setdefault("LAZYFUSE_OFFLOAD", "off")
