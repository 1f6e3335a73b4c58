"""The program ``arcgrad``; also ``python -m arcgrad``.

``arcgrad graph`` needs nothing else, and starts without torch. The extra ``[recipes]`` brings the
other commands.
"""

import sys


def main() -> None:
    """Run the command line; without the extra, end with one line that names it."""
    if sys.argv[1:2] == ["graph"]:
        from arcgrad import _graph_command

        raise SystemExit(_graph_command.main(sys.argv[2:]))
    try:
        from arcgrad.recipes import cli
    except ImportError as error:
        raise SystemExit(f"arcgrad: {error}") from error
    cli.main()


if __name__ == "__main__":
    main()
