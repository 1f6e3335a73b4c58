"""The recipes need packages of their own; without them these tests are left out."""

import importlib.util

NEEDED = (
    *("torch", "sentencepiece", "soundfile", "PIL", "rapidfuzz"),
    *("typer", "rich", "matplotlib", "yaml"),
)

collect_ignore_glob = (
    [] if all(importlib.util.find_spec(name) for name in NEEDED) else ["test_*.py"]
)
