"""Settings of the site: ``python -m sphinx -W docs site`` builds it, and runs the gallery."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import lightning_fl

project = "lightning-fl"
author = "The lightning-fl authors"
release = lightning_fl.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "generate",
]
exclude_patterns = ["scripts/**", "gallery/*.ipynb", "gallery/*.py", "gallery/*.json"]

html_theme = "furo"
html_title = "lightning-fl"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
default_role = "py:obj"  # docstrings name other classes in single backticks
add_module_names = False
autodoc_member_order = "bysource"
autodoc_mock_imports = ["flwr"]
napoleon_custom_sections = [("Shape", "notes_style")]
linkcheck_anchors = False

sphinx_gallery_conf = {
    "examples_dirs": "scripts",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/\d\d_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
    "matplotlib_animations": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
}
