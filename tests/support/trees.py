"""Small trees of files with the layout of the licensed corpora."""

import io
from pathlib import Path

import numpy as np
import soundfile
from PIL import Image

RATE = 16000


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


# Handwriting. A form has three lines; its pixels are random, so that all crops differ.
FORMS = ("a01-000u", "a01-003", "b02-017", "c03-021b")
LINES = {
    "a01-000u-00": "A|MOVE|to|stop|Mr.|Gaitskell|from",
    "a01-000u-01": "nominating|any|more|Labour|life|Peers",
    "a01-000u-02": 'is|to|be|made|at|a|meeting|#|"',
    "a01-003-00": "Though|they|may|gather|some|Left-wing",
    "a01-003-01": "support|,|a|large|majority",
    "a01-003-02": "of|Labour|M|Ps|are|likely",
    "b02-017-00": "to|turn|down",
    "b02-017-01": "the|Foot-Griffiths",
    "b02-017-02": "resolution|.",
    "c03-021b-00": "Mr.|Foot's|line",
    "c03-021b-01": "will|be|that",
    "c03-021b-02": "as|Labour|M|Ps",
}
SETS = {
    "trainset.txt": [name for name in LINES if name.startswith("a01")],
    "validationset1.txt": ["b02-017-00", "b02-017-01"],
    "validationset2.txt": ["b02-017-02"],
    "testset.txt": [name for name in LINES if name.startswith("c03")],
}


def line_box(line: int) -> tuple[int, int, int, int]:
    return 10 + line, 20 + 40 * line, 150 + 10 * line, 30 + line


def page(form: str) -> Image.Image:
    rng = np.random.default_rng(FORMS.index(form))
    return Image.fromarray(rng.integers(0, 256, (150, 200), np.uint8))


def iam_sets(root: Path) -> None:
    for name, lines in SETS.items():
        write(root / name, "\n".join(lines) + "\n")


def iam_lines(root: Path) -> None:
    rows = ["#--- lines.txt ---", "# a comment"]
    for name, text in LINES.items():
        x, y, w, h = line_box(int(name[-2:]))
        status = "err" if name == "a01-003-01" else "ok"
        rows.append(f"{name} {status} 154 19 {x} {y} {w} {h} {text}")
    write(root / "lines.txt", "\n".join(rows) + "\n")


def iam_words(root: Path) -> None:
    rows = ["#--- words.txt ---"]
    for name, text in LINES.items():
        x, y, w, h = line_box(int(name[-2:]))
        words = text.split("|")
        for number, word in enumerate(words):
            status = "err" if (name, number) == ("a01-003-01", 1) else "ok"
            left = x + number * (w // len(words))
            box = f"{left} {y} {w // len(words)} {h}"
            rows.append(f"{name}-{number:02} {status} 154 {box} NN {word}")
    write(root / "words.txt", "\n".join(rows) + "\n")


def iam_xml(root: Path) -> None:
    for form in FORMS:
        parts = [f'<?xml version="1.0" encoding="UTF-8"?>\n<form id="{form}"><handwritten-part>']
        for line in range(3):
            name = f"{form}-{line:02}"
            x, y, w, h = line_box(line)
            parts.append(f'<line id="{name}" segmentation="ok" text="ignored">')
            for number, word in enumerate(LINES[name].split("|")):
                # The corpus escapes quotes twice.
                word = word.replace('"', "&amp;quot;")
                # The components of a line together span its box.
                box = f'x="{x}" y="{y}" width="{w if number else 5}" height="{h if number else 5}"'
                parts.append(f'<word id="{name}-{number:02}" text="{word}"><cmp {box}/></word>')
            parts.append("</line>")
        parts.append("</handwritten-part></form>")
        write(root / "xml" / f"{form}.xml", "\n".join(parts))


def iam_forms(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for form in FORMS:
        page(form).save(root / f"{form}.png")


def iam_line_images(root: Path) -> None:
    for name in LINES:
        x, y, w, h = line_box(int(name[-2:]))
        form = name[:-3]
        path = root / "lines" / form.split("-")[0] / form / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        page(form).crop((x, y, x + w, y + h)).save(path)


def iam(root: Path) -> Path:
    iam_sets(root)
    iam_lines(root)
    iam_words(root)
    iam_forms(root)
    return root


# Speech.
def tone(number: int, seconds: float) -> np.ndarray:
    times = np.arange(round(seconds * RATE)) / RATE
    return 0.3 * np.sin(2 * np.pi * (200 + 50 * number) * times)


UTTERANCES = {
    "train-clean-100": {"19-198": ["NORTHANGER ABBEY", "THIS LITTLE WORK"], "26-495": ["IT'S HE"]},
    "dev-clean": {"84-121123": ["GO DO YOU HEAR"]},
    "test-clean": {"61-70968": ["HE BEGAN A CONFUSED COMPLAINT", "GIVE NOT SO EARNEST A MIND"]},
}


def librispeech(root: Path) -> Path:
    number = 0
    for part, chapters in UTTERANCES.items():
        for chapter, texts in chapters.items():
            folder = root / part / chapter.replace("-", "/")
            rows = [f"{chapter}-{i:04} {text}" for i, text in enumerate(texts)]
            write(folder / f"{chapter}.trans.txt", "\n".join(rows) + "\n")
            for i in range(len(texts)):
                number += 1
                samples = tone(number, 0.5 + 0.1 * number)
                soundfile.write(folder / f"{chapter}-{i:04}.flac", samples, RATE)
    return root


def sphere(samples: np.ndarray, *, shorten: bool = False) -> bytes:
    """A NIST SPHERE file; only the header of a compressed one says so."""
    file = io.BytesIO()
    soundfile.write(file, samples, RATE, format="NIST", subtype="PCM_16")
    content = file.getvalue()
    if not shorten:
        return content
    header = (
        b"NIST_1A\n   1024\nchannel_count -i 1\nsample_rate -i 16000\n"
        + f"sample_count -i {len(samples)}\n".encode()
        + b"sample_coding -s26 pcm,embedded-shorten-v2.00\nend_head\n"
    )
    return header.ljust(1024) + content[1024:][::2]


WSJ = {
    "csr_2_comp/13-34.1/wsj1/doc/indices/si_tr_s.ndx": ["13_1_1:wsj1/si_tr_s/46a/46ac0201.wv1"],
    "csr_1/11-13.1/wsj0/doc/indices/train/tr_s_wv1.ndx": [
        "11_1_1:wsj0/si_tr_s/01i/01ic0201.wv1",
        "11_1_1:wsj0/si_tr_s/01i/01ic0202.wv1",
        "11_2_1:wsj0/si_tr_s/401/401c0201.wv1",
    ],
    "csr_2_comp/13-34.1/wsj1/doc/indices/h1_p0.ndx": ["13_16_1:wsj1/si_dt_20/4k0/4k0c0301.wv1"],
    "csr_1/11-13.1/wsj0/doc/indices/test/nvp/si_et_20.ndx": [
        "11_14_1:wsj0/si_et_20/440/440c0401",
        "11_14_1:wsj0/si_et_20/440/440c0402",
    ],
}
DOTS = {
    "csr_1/11-4.1/wsj0/transcrp/dots/11_1_1/wsj0/si_tr_s/01i/01ic0200.dot": [
        "The sale of the hotels is part of Holiday's strategy (01ic0201)",
        "The hotel operator's *embassy* [lip_smack] suites -HYPHEN plan . (01ic0202)",
    ],
    "csr_2_comp/13-34.1/wsj1/trans/wsj1/si_tr_s/46a/46ac0200.dot": [
        'Mr. Smith said ,COMMA "DOUBLE-QUOTE no (46ac0201)'
    ],
    "csr_2_comp/13-34.1/wsj1/trans/wsj1/si_dt_20/4k0/4k0c0300.dot": [
        "Saatchi \\& Saatchi <fell> two .POINT five %PERCENT (4K0C0301)"
    ],
    "csr_1/11-14.1/wsj0/si_et_20/440/440c0400.dot": [
        "Drexel remains confident (440c0401)",
        "`It works' he says (440c0402)",
    ],
}
WSJ_AUDIO = [
    "csr_2_comp/13-1.1/wsj1/si_tr_s/46a/46ac0201.wv1",
    "csr_1/11-1.1/wsj0/si_tr_s/01i/01ic0201.wv1",
    "csr_1/11-1.1/wsj0/si_tr_s/01i/01ic0202.wv1",
    "csr_2_comp/13-16.1/wsj1/si_dt_20/4k0/4k0c0301.wv1",
    "csr_1/11-14.1/wsj0/si_et_20/440/440c0401.wv1",
    "csr_1/11-14.1/wsj0/si_et_20/440/440c0402.wv1",
]


def wsj(root: Path, *, shorten: bool = False) -> Path:
    for name, rows in WSJ.items():
        write(root / name, "\n".join([";; a comment", *rows]) + "\n")
    for name, rows in DOTS.items():
        write(root / name, "\n".join(rows) + "\n")
    for number, name in enumerate(WSJ_AUDIO):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sphere(tone(number, 0.4 + 0.1 * number), shorten=shorten))
    return root
