"""Sphinx configuration. The API pages are written at build time from `arcgrad.__all__`."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import api_pages  # noqa: E402
import arcgrad  # noqa: E402
import arcgrad.recipes.data  # noqa: E402
import arcgrad.recipes.inference  # noqa: E402
import arcgrad.recipes.metrics  # noqa: E402
import arcgrad.recipes.models  # noqa: E402
import arcgrad.recipes.report  # noqa: E402
import arcgrad.recipes.training  # noqa: E402
import arcgrad.torch  # noqa: E402

project = "arcgrad"
author = "The arcgrad developers"
copyright = author
release = version = arcgrad.__version__

extensions = [
    "inline_svg",
    "mathml",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
# Pages with code cells are executed at build time; an error in a cell is an error of the build.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 60
nb_merge_streams = True
# Prompts and outputs of examples are not copied.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_math_renderer = "mathml"
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the descriptions name the types
napoleon_use_rtype = False
napoleon_use_ivar = True  # `Attributes:` beside fields of a NamedTuple would be two descriptions

# Two classes with an attribute of the same name: a reference to it is not one to another page.
suppress_warnings = ["ref.python"]

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["graphs.css"]
html_js_files = ["stepper.js"]
html_title = f"arcgrad {release}"

api_pages.write(
    arcgrad,
    HERE / "generated",
    [
        arcgrad.torch,
        arcgrad.recipes.data,
        arcgrad.recipes.models,
        arcgrad.recipes.metrics,
        arcgrad.recipes.inference,
        arcgrad.recipes.training,
        arcgrad.recipes.report,
    ],
)
