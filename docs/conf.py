"""Sphinx settings of the documentation: `sphinx-build -W --keep-going -b html docs site`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import rpdp

project = "rpdp"
author = "the rpdp authors"
project_copyright = author
version = release = rpdp.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "generated_pages",
    "notebook_pages",
]
exclude_patterns = ["_ext", "reproduction/cells"]

# A link or anchor that does not exist is a warning, and `-W` makes it an error.
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!rpdp\.).*"),  # names of other libraries: the site links nowhere that needs a network
    (r"py:.*", r"rpdp\..*\..*"),  # names that rpdp does not export
]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings = ["myst.xref_ambiguous"]

smartquotes = False  # else --option loses a dash
default_role = "code"  # docstrings write `name` as Markdown does
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
add_module_names = False
napoleon_use_ivar = True
napoleon_use_rtype = False
toc_object_entries_show_parents = "hide"

copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = f"rpdp {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "monokai"
