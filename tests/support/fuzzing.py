"""A fuzzer of everything that reads files; `make fuzz` runs it on 100,000 inputs.

Each input is a seed of the corpus with some damage. A reader must return or raise one ValueError
that names the file, within its time and memory, and leak nothing. The readers are registered in
`fuzz_readers.py`. An input that fails is kept in `build/fuzz`; with the error corrected, it belongs
into the corpus, in the folder of its reader.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import gc
import gzip
import hashlib
import json
import random
import re
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

CORPUS = Path(__file__).parents[1] / "recipes/fuzz/corpus"
FAILED = Path("build/fuzz")

# Limits of one input: seconds of the processor, and bytes of address space beyond the start.
MOST_SECONDS, MOST_MEMORY = 2.0, 4 << 30

# A reader of more inputs than this may keep this much: the noise of the allocator.
MOST_GROWTH = 24 << 20

# An error begins with the name of what failed.
NAMED = re.compile(r"[A-Za-z_][\w.]*( \(.*?\))?: ")

NUMBERS = (
    *("0", "-0", "1", "-1", "-2", "-3", "7", "255", "65536", "2147483646", "2147483647"),
    *("2147483648", "-2147483648", "4294967295", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775808", "99999999999", "1e5", "1e308", "1e999", "-1e999", "nan", "inf"),
    *("-inf", "0x10", "1_0", "1.5", "0.1", "5e-324", "9" * 400, "9" * 5000, "٣", ""),
)
JUNK = (
    *(None, True, False, 0, -1, 1, 1.5, 2**31, 2**63, 10**11, 10**400, 1e308, -1e308, "", "a"),
    *("\0", "▁", "é", "\ud800", "9" * 5000, [], [0], ["a", "a"], {}, {"a": 1}, [[[]]]),
    *(float("nan"), float("inf"), -float("inf"), "../../x", "none", "true"),
)
WORDS = (
    *(b"\0", b"\n", b"\r", b"\t", b" ", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xef\xbb\xbf"),
    *("▁".encode(), "\u2028".encode(), "\x85".encode(), b"\x1c", b"{", b"[", b'"', b"null", b"NaN"),
    *(b"<s>", b"</s>", b"<unk>", b"\\data\\", b"\\1-grams:", b"\\end\\", b"#", b"|", b":", b"../"),
    *(b"[" * 100_000, b'{"a":' * 50_000, b"a" * 100_000, b"\\u0000", b"\\ud800", b"&a ", b"*a"),
    *(b"!!python/object/apply:os.system ['true']", b"<<: *a", b"- ", b"? ", b"'", b"&lt;", b"\x1f"),
)


@dataclass
class Reader:
    """Something that reads a file.

    Attributes:
        name: Its name, and the folder of its seeds in the corpus.
        read: Reads a file, which may be a part of a folder.
        file: The name of the file, which errors must contain.
        folder: Writes the whole folder of the file, which is then a seed.
        derive: Damages the content of a seed in a way that its checksums do not find.
        seeds: Seeds beside those of the corpus.
        share: The number of inputs, relative to other readers.
        names: A pattern that an error must contain instead of the name of the file.
    """

    name: str
    read: Callable[[Path], object]
    file: str
    folder: Callable[[Path], object] | None = None
    derive: Callable[[Damage, bytes], bytes] | None = None
    seeds: Sequence[bytes] = ()
    share: float = 1.0
    names: str = ""
    outcomes: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0

    def all_seeds(self, path: Path) -> list[bytes]:
        """The seeds, in a fixed order; also what the function for the folder wrote there."""
        files = sorted((CORPUS / self.name).glob("*"))
        found = [*self.seeds, *(file.read_bytes() for file in files)]
        if path.exists():
            found.append(path.read_bytes())
        assert found, f"{self.name} has no seeds"
        return found


class Damage:
    """Damages contents at random."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.others: Sequence[bytes] = [b""]

    def __call__(self, content: bytes) -> bytes:
        """A content with one to four damages; rarely compressed afterwards."""
        for _ in range(self.rng.choice((1, 1, 1, 2, 4))):
            content = self.rng.choice(self.DAMAGES)(self, content)
        return gzip.compress(content, 1) if self.rng.random() < 0.01 else content

    def _slice(self, content: bytes) -> tuple[int, int]:
        begin = self.rng.randint(0, len(content))
        length = self.rng.choice((1, 1, 2, 4, 8, 32, 1000))
        return begin, min(len(content), begin + self.rng.randint(0, length))

    def flip(self, content: bytes) -> bytes:
        changed = bytearray(content)
        for _ in range(self.rng.choice((1, 1, 1, 8))):
            if changed:
                changed[self.rng.randrange(len(changed))] ^= 1 << self.rng.randrange(8)
        return bytes(changed)

    def overwrite(self, content: bytes) -> bytes:
        begin, end = self._slice(content)
        value = self.rng.choice((b"\0", b"\xff", b"\x7f", b"\x80", b"0", b"9", b" ", b"\n"))
        return content[:begin] + value * (end - begin) + content[end:]

    def integer(self, content: bytes) -> bytes:
        size = self.rng.choice((2, 4, 8))
        value = self.rng.choice((0, 1, -1, -2, 7, 1 << 15, 1 << 31, (1 << 31) - 1, (1 << 63) - 1))
        begin = self.rng.randint(0, max(0, len(content) - size)) // size * size
        written = (value % (1 << (8 * size))).to_bytes(size, "little")
        return content[:begin] + written + content[begin + size :]

    def delete(self, content: bytes) -> bytes:
        begin, end = self._slice(content)
        return content[:begin] + content[end:]

    def truncate(self, content: bytes) -> bytes:
        return content[: self.rng.randint(0, len(content))]

    def repeat(self, content: bytes) -> bytes:
        begin, end = self._slice(content)
        part = content[begin:end] * self.rng.choice((1, 1, 2, 50))
        at = self.rng.randint(0, len(content))
        return content[:at] + part + content[at:]

    def insert(self, content: bytes) -> bytes:
        at = self.rng.randint(0, len(content))
        word = self.rng.choice(WORDS)
        if self.rng.random() < 0.3:
            word = self.rng.randbytes(self.rng.randint(1, 16))
        return content[:at] + word + content[at:]

    def splice(self, content: bytes) -> bytes:
        other = self.rng.choice(self.others)
        begin, end = self._slice(other)
        at, to = self._slice(content)
        return content[:at] + other[begin:end] + content[to:]

    def number(self, content: bytes) -> bytes:
        found = list(re.finditer(rb"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", content[:20_000]))
        if not found:
            return self.flip(content)
        match = self.rng.choice(found)
        value = self.rng.choice(NUMBERS).encode()
        return content[: match.start()] + value + content[match.end() :]

    def lines(self, content: bytes) -> bytes:
        lines = content.split(b"\n")
        i, j = self.rng.randrange(len(lines)), self.rng.randrange(len(lines))
        what = self.rng.randrange(4)
        if what == 0:
            del lines[i]
        elif what == 1:
            lines.insert(j, lines[i])
        elif what == 2:
            lines[i], lines[j] = lines[j], lines[i]
        else:
            columns = lines[i].split(b" ")
            columns[self.rng.randrange(len(columns))] = self.rng.choice(NUMBERS).encode()
            lines[i] = b" ".join(columns)
        return b"\n".join(lines)

    def json(self, content: bytes) -> bytes:
        lines = content.split(b"\n")
        for part in (content, self.rng.choice(lines)):
            try:
                value = json.loads(part)
            except (ValueError, RecursionError):
                continue
            written = json.dumps(self.value(value), ensure_ascii=False)
            return content.replace(part, written.encode("utf-8", "surrogatepass"), 1)
        return self.number(content)

    def value(self, value: object) -> object:
        """A JSON value with one part replaced, removed or added."""
        if isinstance(value, dict) and value and self.rng.random() < 0.9:
            key = self.rng.choice(list(value))
            what = self.rng.random()
            if what < 0.1:
                return {k: v for k, v in value.items() if k != key}
            if what < 0.15:
                return {**value, str(self.rng.choice(JUNK)): self.rng.choice(JUNK)}
            return {**value, key: self.value(value[key])}
        if isinstance(value, list) and value and self.rng.random() < 0.9:
            i = self.rng.randrange(len(value))
            if self.rng.random() < 0.1:
                return [*value[:i], *value[i + 1 :]]
            return [*value[:i], self.value(value[i]), *value[i + 1 :]]
        return self.rng.choice(JUNK)

    DAMAGES = (
        *(flip, flip, overwrite, integer, delete, truncate, repeat, insert, insert, splice),
        *(number, number, number, lines, lines, json, json, json),
    )


@dataclass
class Failure:
    """An input that a reader did not refuse as it should."""

    reader: str
    content: bytes
    problem: str

    def keep(self) -> Path:
        """Write the input to a file."""
        FAILED.mkdir(parents=True, exist_ok=True)
        name = f"{self.reader}-{hashlib.sha256(self.content).hexdigest()[:10]}"
        (FAILED / name).write_bytes(self.content)
        return FAILED / name


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """Make a large allocation a MemoryError, where the system can do so."""
    if sys.platform != "linux":
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def memory() -> int:
    """The resident memory of this process, without what the allocator keeps."""
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
    return int(psutil.Process().memory_info().rss)


def attempt(reader: Reader, path: Path, content: bytes) -> str | None:
    """Read one input; return what is wrong with the outcome, or None."""
    path.write_bytes(content)
    begin = time.process_time()
    problem = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            reader.read(path)
        outcome = "read"
    except Exception as error:
        outcome = "refused"
        kind, message = type(error), str(error)
        if kind.__name__ not in ("ValueError", "CorpusError"):
            problem = f"{kind.__name__}: {message}"
        elif not NAMED.match(message):
            problem = f"an error that does not begin with the name of its op: {message}"
        elif not re.search(reader.names or re.escape(path.name), message):
            problem = f"an error that does not name the file: {message}"
        elif len(message) > 2000:
            problem = f"an error of {len(message)} characters: {message[:200]}"
    seconds = time.process_time() - begin
    if seconds > MOST_SECONDS:
        problem = f"it took {seconds:.1f} s"
    reader.slowest = max(reader.slowest, seconds)
    reader.outcomes[outcome if problem is None else "failed"] += 1
    return problem


def damaged(reader: Reader, damage: Damage, content: bytes) -> bytes:
    """A damaged content, often with the right checksums if there are any."""
    if reader.derive is not None and damage.rng.random() < 0.6:
        # A seed may be damaged itself.
        with contextlib.suppress(Exception):
            return reader.derive(damage, content)
    return damage(content)


def fuzz(
    readers: Sequence[Reader], inputs: int, seed: int, *, report: Callable[[str], object] = print
) -> list[Failure]:
    """Try a number of inputs, shared among the readers; return those that failed."""
    failures: list[Failure] = []
    total = sum(reader.share for reader in readers)
    with tempfile.TemporaryDirectory() as top, limited_memory():
        for number, reader in enumerate(readers):
            folder = Path(top) / str(number)
            path = folder / reader.file
            path.parent.mkdir(parents=True)
            if reader.folder is not None:
                reader.folder(folder)
            damage = Damage(seed * 1000 + number)
            damage.others = seeds = reader.all_seeds(path)
            count = max(1, round(inputs * reader.share / total))
            start, begin, is_long = 0, time.monotonic(), count >= 1000
            for i in range(-len(seeds), count):
                if i % 200 == 0:  # so that an input that hangs ends the run
                    faulthandler.dump_traceback_later(300, exit=True)
                if i == count // 3 and is_long:
                    start = memory()
                content = seeds[i] if i < 0 else damage.rng.choice(seeds)
                if i >= 0:
                    content = damaged(reader, damage, content)
                if problem := attempt(reader, path, content):
                    failures.append(Failure(reader.name, content, problem))
                    report(f"{failures[-1].keep()}: {problem[:500]}")
            faulthandler.cancel_dump_traceback_later()
            growth = memory() - start if is_long else 0
            if growth > MOST_GROWTH:
                failures.append(Failure(reader.name, b"", f"memory grew by {growth >> 20} MB"))
                report(f"{reader.name}: memory grew by {growth >> 20} MB")
            outcomes = ", ".join(f"{n} {what}" for what, n in sorted(reader.outcomes.items()))
            report(
                f"{reader.name:20} {outcomes}; {time.monotonic() - begin:.1f} s, slowest "
                f"{1000 * reader.slowest:.0f} ms, memory {growth / (1 << 20):+.1f} MB"
            )
    return failures


def main() -> None:
    """Run the fuzzer as a program."""
    from fuzz_readers import READERS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", action="append", help="only readers of this name")
    options = parser.parse_args()
    readers = [r for r in READERS if options.reader is None or r.name in options.reader]
    begin, before = time.monotonic(), memory()
    failures = fuzz(readers, options.inputs, options.seed)
    done = sum(sum(reader.outcomes.values()) for reader in readers)
    print(
        f"{done} inputs of {len(readers)} readers in {time.monotonic() - begin:.0f} s: "
        f"{len(failures)} failures, memory {before >> 20} MB before and {memory() >> 20} MB after"
    )
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
