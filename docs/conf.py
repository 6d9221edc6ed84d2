"""How Sphinx makes the pages: `python -m sphinx -W --keep-going -b html docs build/pages`."""

import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]

project = PROJECT["name"]
author = "the lazyfuse developers"
release = PROJECT["version"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = [
    "README.md",  # the index for who reads the files; index.md is that of the site
    "exactness.in.md",  # what exactness.md is made from
]
html_theme = "furo"
html_title = f"lazyfuse {release}"
myst_heading_anchors = 4  # links to headings are made as GitHub makes them
autodoc_typehints = "none"  # most of them are Any
default_role = "code"  # docstrings quote names with single backticks
autodoc_member_order = "bysource"
