"""Open a page in headless Chromium: fail if the console has messages, and take screenshots.

Usage: python scripts/look_at_report.py <page> [<folder for pictures>]

The screenshots are light and dark, 1600 and 400 pixels wide. The exit code is 3 if there is no
Chromium; the environment variable CHROMIUM names the program if it is not on the path.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-extensions", "--enable-logging=stderr"),
)
SCHEMES = {"dark": 0, "light": 1}
HEIGHTS = {1600: 6000, 400: 9000}
SECONDS = 120
NO_CHROMIUM = 3


def find() -> str | None:
    """Return the path of Chromium, or None."""
    names = [os.environ["CHROMIUM"]] if "CHROMIUM" in os.environ else PROGRAMS
    return next(filter(None, map(shutil.which, names)), None)


def run(program: str, page: Path, *options: str) -> tuple[str, list[str]]:
    """Return the output of a run, and the messages of the console."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        done = subprocess.run(
            [program, *OPTIONS, f"--user-data-dir={profile}", *options, page.resolve().as_uri()],
            capture_output=True,
            encoding="utf-8",
            timeout=SECONDS,
            check=True,
        )
    return done.stdout, re.findall(r":CONSOLE.*", done.stderr)


def main(page: Path, pictures: Path | None = None) -> int | str:
    program = find()
    if program is None:
        return NO_CHROMIUM
    document, messages = run(program, page, "--dump-dom")
    if "</html>" not in document or "<h1" not in document:
        messages.append("the page has no heading")
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
        for scheme, number in SCHEMES.items():
            for width, height in HEIGHTS.items():
                picture = (pictures / f"{page.stem}-{scheme}-{width}.png").resolve()
                options = [
                    f"--blink-settings=preferredColorScheme={number}",
                    f"--window-size={width},{height}",
                    f"--screenshot={picture}",
                ]
                messages += run(program, page, *options)[1]
                print(picture)
    return "\n".join(f"{page}: {message}" for message in messages)


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])) or None)
