"""Count lines of code, without comments, docstrings and blank lines, by room and by commit.

Usage: python scripts/count_lines.py [<commit> ...]
"""

import io
import re
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter

ROOMS = re.compile(r"(csrc/arcgrad/\w+(?=/)|csrc/arcgrad|bindings|python/arcgrad/\w+(?=/)|\w+)")
SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
SKIPPED |= {tokenize.ENCODING, tokenize.ENDMARKER}


def count_python(text: str) -> int:
    lines: set[int] = set()
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_docstring = token.type == tokenize.STRING and before in SKIPPED
        if token.type not in SKIPPED and not is_docstring:
            lines.update(range(token.start[0], token.end[0] + 1))
        before = token.type
    return len(lines)


def count_cpp(text: str) -> int:
    text = re.sub(r'R"\((.*?)\)"', '""', text, flags=re.DOTALL)  # documentation of bindings
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return sum(not re.fullmatch(r"\s*(//.*)?", line) for line in text.splitlines())


def count(commit: str) -> Counter[str]:
    lines: Counter[str] = Counter()
    packed = subprocess.run(["git", "archive", commit], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        for member in files:
            name = member.name
            counter = count_python if name.endswith(".py") else count_cpp
            if not name.endswith((".py", ".cpp", ".h")):
                continue
            file = files.extractfile(member)
            room = ROOMS.match(name)
            assert file
            assert room
            lines[room[0]] += counter(file.read().decode())
    return lines


def main() -> None:
    commits = sys.argv[1:] or ["HEAD"]
    counts = [count(commit) for commit in commits]
    for part in ("csrc", "bindings", "python", "tests"):
        for found in counts:
            found[f"{part} in all"] = sum(
                n for room, n in found.items() if room.split("/")[0] == part
            )
    print(f"{'room':28}", *(f"{commit[:9]:>9}" for commit in commits))
    for room in sorted(set().union(*counts)):
        print(f"{room:28}", *(f"{found[room]:9}" for found in counts))


if __name__ == "__main__":
    main()
