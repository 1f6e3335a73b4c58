"""Pictures of executed cells as parts of the page, which take their colors from the theme."""

import re
from pathlib import Path

from pictures import embedded


def inline(app, page, template, context, doctree):
    sources = {name: Path(app.srcdir, path) for path, name in app.builder.images.items()}

    def replaced(match):
        path = sources.get(match[1])
        if path is None or path.parent.name != "jupyter_execute":
            return match[0]
        return embedded(path.read_text())

    if body := context.get("body"):
        context["body"] = re.sub(r'<img[^>]*src="[^"]*/([^"/]+\.svg)"[^>]*>', replaced, body)


def setup(app):
    app.connect("html-page-context", inline)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
