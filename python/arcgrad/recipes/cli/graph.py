"""``arcgrad graph``, which is also there without the recipes."""

from __future__ import annotations

import typer

from arcgrad import _graph_command

from .application import app


@app.command(
    "graph",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def run_graph(context: typer.Context) -> None:
    """Convert and draw graphs, and apply operations to files of graphs."""
    raise typer.Exit(_graph_command.main(context.args))
