"""Formulas as MathML: browsers draw them without a script, a font or a connection."""

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def visit_math(translator, node):
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def visit_displaymath(translator, node):
    formula = tex2mathml(node.astext(), as_block=True)
    translator.body.append(f'<div class="formula">{formula}</div>\n')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displaymath, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
