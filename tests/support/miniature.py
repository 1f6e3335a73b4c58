"""Miniature copies of IAM, LibriSpeech and WSJ in their real formats, with enough words for pieces.

Texts are those of Python's ``help()``; images and recordings are noise. To look at them:

    python tests/support/miniature.py FOLDER
"""

import functools
import sys
from pathlib import Path

import numpy as np
import soundfile
from PIL import Image
from trees import RATE, sphere, write

# Words of a line or a sentence; lines of a form; seconds of a recording.
NUM_WORDS, NUM_LINES, SECONDS = 50, 10, 0.1
# Lines or sentences of each split.
SIZES = {"train": 320, "validation": 2, "test": 2}

HEIGHT, WIDTH = 20, 60  # of a line, with white around it


@functools.cache
def texts() -> list[str]:
    """Sentences with capitals and punctuation, for all splits."""
    from pydoc_data.topics import topics

    # Words of ASCII characters, with which neither IAM's files nor the dot files mean anything.
    unused = set('|#<>[](){}*\\":;`~_^=+-/&%@')
    words = [
        word
        for topic in sorted(topics)
        for word in topics[topic].split()
        if word.isascii() and not unused & set(word) and word.strip(".,'")
    ]
    count = sum(SIZES.values())
    return [" ".join(words[i * NUM_WORDS : (i + 1) * NUM_WORDS]) for i in range(count)]


def splits() -> dict[str, list[str]]:
    """The sentences of each split."""
    left = iter(texts())
    return {name: [next(left) for _ in range(size)] for name, size in SIZES.items()}


def noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-0.3, 0.3, round(SECONDS * RATE))


def iam(root: Path) -> Path:
    """Forms with boxes of lines, ``lines.txt``, and the files of the splits."""
    rows = ["#--- lines.txt ---", "#"]
    files = {"train": "trainset.txt", "validation": "validationset1.txt", "test": "testset.txt"}
    write(root / "validationset2.txt", "")
    number = 0
    for split, lines in splits().items():
        ids = []
        for begin in range(0, len(lines), NUM_LINES):
            form = f"{split[0]}01-{number:03}"
            number += 1
            rng = np.random.default_rng(number)
            page = np.full((NUM_LINES * HEIGHT, 2 * WIDTH), 255, np.uint8)
            for row, text in enumerate(lines[begin : begin + NUM_LINES]):
                name, top, left = f"{form}-{row:02}", row * HEIGHT, WIDTH // 2
                page[top : top + HEIGHT, left : left + WIDTH] = rng.integers(
                    0, 256, (HEIGHT, WIDTH)
                )
                written = text.replace(" ", "|")
                rows.append(f"{name} ok 154 9 {left} {top} {WIDTH} {HEIGHT} {written}")
                ids.append(name)
            root.mkdir(parents=True, exist_ok=True)
            Image.fromarray(page).save(root / f"{form}.png", compress_level=1)
        write(root / files[split], "\n".join(ids) + "\n")
    write(root / "lines.txt", "\n".join(rows) + "\n")
    return root


def librispeech(root: Path) -> Path:
    """A chapter of FLAC files for each split, with its transcripts in capitals."""
    names = {"train": "train-clean-100", "validation": "dev-clean", "test": "test-clean"}
    for speaker, (split, sentences) in enumerate(splits().items(), 1):
        folder = root / "LibriSpeech" / names[split] / str(speaker) / "7"
        rows = [f"{speaker}-7-{i:04} {spoken(text).upper()}" for i, text in enumerate(sentences)]
        write(folder / f"{speaker}-7.trans.txt", "\n".join(rows) + "\n")
        for i in range(len(sentences)):
            soundfile.write(folder / f"{speaker}-7-{i:04}.flac", noise(i), RATE)
    return root


def spoken(text: str) -> str:
    """The text in letters and apostrophes, as LibriSpeech has it."""
    letters = "".join(letter for letter in text if letter.isalpha() or letter in " '")
    return " ".join(letters.split())


def wsj(root: Path) -> Path:
    """Index files, dot files and SPHERE recordings; all training sentences are of WSJ1."""
    rows: dict[str, list[str]] = {}
    # The set, its part of the distribution, its index, and the folder of its dot files.
    places = {
        "train": (
            "si_tr_s",
            "wsj1",
            "13_1_1",
            "csr_2_comp/13-1.1",
            "csr_2_comp/13-34.1/wsj1/doc/indices/si_tr_s.ndx",
            "csr_2_comp/13-34.1/wsj1/trans",
        ),
        "validation": (
            "si_dt_20",
            "wsj1",
            "13_16_1",
            "csr_2_comp/13-16.1",
            "csr_2_comp/13-34.1/wsj1/doc/indices/h1_p0.ndx",
            "csr_2_comp/13-34.1/wsj1/trans",
        ),
        "test": (
            "si_et_20",
            "wsj0",
            "11_14_1",
            "csr_1/11-14.1",
            "csr_1/11-13.1/wsj0/doc/indices/test/nvp/si_et_20.ndx",
            "csr_1/11-14.1",
        ),
    }
    for split, sentences in splits().items():
        part, disc, code, audio, index, dots = places[split]
        texts_of: list[str] = []
        for i, text in enumerate(sentences):
            name = f"46{split[0]}c{i:04}"
            recording = f"{disc}/{part}/46{split[0]}/{name}"
            path = root / audio / f"{recording}.wv1"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(sphere(noise(i)))
            # The rows of the evaluation lack the suffix.
            rows.setdefault(index, []).append(
                f"{code}:{recording}{'' if split == 'test' else '.wv1'}"
            )
            texts_of.append(f"{text} ({name})")
        folder = root / dots / disc / part / f"46{split[0]}"
        write(folder / f"46{split[0]}c0000.dot", "\n".join(texts_of) + "\n")
    # WSJ0 has training sentences too; here, only those of a speaker that is left out.
    rows["csr_1/11-13.1/wsj0/doc/indices/train/tr_s_wv1.ndx"] = [
        "11_2_1:wsj0/si_tr_s/401/401c0201.wv1"
    ]
    for name, entries in rows.items():
        write(root / name, "\n".join([";; a comment", *entries]) + "\n")
    return root


if __name__ == "__main__":
    out = Path(sys.argv[1])
    for make in (iam, librispeech, wsj):
        print(make(out / make.__name__))
