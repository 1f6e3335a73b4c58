"""The program ``arcgrad``, which the extra ``[recipes]`` brings; also ``python -m arcgrad``."""


def main() -> None:
    """Run the command line; without the extra, end with one line that names it."""
    try:
        from arcgrad.recipes import cli
    except ImportError as error:
        raise SystemExit(f"arcgrad: {error}") from error
    cli.main()


if __name__ == "__main__":
    main()
