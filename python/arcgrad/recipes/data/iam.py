"""The IAM handwriting database: lines or words of scanned forms (licensed; fki.tic.heia-fr.ch).

These files of its folder are read:

* texts and boxes: ``lines.txt`` or ``words.txt``, or else ``xml/<form>.xml``;
* images: the forms ``<form>.png``, from which lines are cut, or else the lines themselves,
  ``lines/a01/a01-000u/a01-000u-00.png`` (``words/...``);
* splits: ``trainset.txt``, ``validationset1.txt``, ``validationset2.txt`` and ``testset.txt`` of
  the task "Large Writer Independent Text Line Recognition". The last two are the test set.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple
from xml.etree import ElementTree

from PIL import Image

from arcgrad import _files

from . import manifests
from .examples import SPLITS, Splits
from .images import ImageAugmentation, ImagesInFiles, Pixels, scaled_width
from .manifests import Line, PathLike, Prepared, Problems
from .tokenizers import Letters

Unit = Literal["lines", "words"]

SPLIT_FILES = {
    "train": ("trainset.txt",),
    "validation": ("validationset1.txt",),
    "test": ("validationset2.txt", "testset.txt"),
}
# The folders into which the parts of the distribution may have been unpacked.
TEXT_FOLDERS = (".", "ascii", "task", "largeWriterIndependentTextLineRecognitionTask")
FORM_FOLDERS = (".", "forms", "formsA-D", "formsE-H", "formsI-Z")

# Mean and standard deviation of all pixels, white being 1.
MEAN, STD = 0.912, 0.168
HEIGHT = 64

#: The augmentation of training images.
AUGMENTATION = ImageAugmentation()

# The fields of a row before its text; words have a tag where lines have the number of components.
NUM_FIELDS = 8

# The names of lines and words, which name the files of their images.
NAME = re.compile(r"[A-Za-z0-9]{1,20}(-[A-Za-z0-9]{1,20}){2,3}")


class Entry(NamedTuple):
    """A line or a word of a form."""

    id: str
    text: str
    box: tuple[int, int, int, int]

    @property
    def form(self) -> str:
        """The form it is on."""
        return "-".join(self.id.split("-")[:2])

    @property
    def line(self) -> str:
        """The line it is, or is on."""
        return "-".join(self.id.split("-")[:3])


def clean(text: str) -> str:
    """Return a clean transcript: ``|`` separates words, ``#`` is deleted.

    >>> from arcgrad.recipes.data import iam
    >>> iam.clean("A|MOVE|to|stop|Mr.|Gaitskell#|from")
    'A MOVE to stop Mr. Gaitskell from'
    """
    return " ".join(text.replace("#", "").replace("|", " ").split())


def prepare(
    data_path: PathLike,
    out: PathLike | None = None,
    *,
    unit: Unit = "lines",
    allow_missing: bool = False,
    check_only: bool = False,
    progress: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> Prepared:
    """Read IAM's folder, cut lines from forms, and write manifests.

    Lines whose segmentation is marked as wrong are used; such words are not. Lines and words that
    are completely crossed out are left out.

    Args:
        data_path: The folder of the corpus.
        out: The folder for manifests and cut images; by default ``arcgrad`` in the corpus folder.
        unit: ``"lines"`` or ``"words"``.
        allow_missing: Whether to leave out examples with problems instead of raising.
        check_only: Whether to decode every file and write nothing.
        progress: Wraps the sequence of forms to show progress.

    Returns:
        A summary.

    Raises:
        CorpusError: If files are missing or cannot be read; the message counts and names them.
        ValueError: If there is no such folder.
    """
    op = "iam.prepare"
    if unit not in ("lines", "words"):
        raise ValueError(f"{op}: the unit must be 'lines' or 'words', but it is {unit!r}")
    root = manifests.existing_folder(op, data_path)
    folder = root / manifests.FOLDER if out is None else Path(out)
    problems = Problems(op)
    split_of = _read_splits(root, problems)
    entries = _read_entries(root, unit, problems)
    problems.check(allow=allow_missing)

    known = {entry.line for entry in entries}
    for name in split_of:
        # A line may have no words left if all are segmented wrongly.
        if name not in known and unit == "lines":
            problems.add("lines of the splits without text", name)
    forms: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.line in split_of and not entry.text:
            problems.leave_out(f"{unit} that are crossed out", entry.id)
        elif entry.line in split_of:
            forms.setdefault(entry.form, []).append(entry)
    rows: dict[str, list[Line]] = {split: [] for split in SPLITS}
    for form in progress(sorted(forms)):
        for entry, line in _images(
            *(root, folder, unit, form, forms[form], problems), check_only=check_only
        ):
            rows[split_of[entry.line]].append(line)
    parts = {f"{unit}-{split}": rows[split] for split in SPLITS}
    if check_only:
        manifests.decode(parts, folder, _decode, problems, progress)
    return manifests.write(folder, parts, problems, allow=allow_missing, check_only=check_only)


def _decode(row: Line, path: Path) -> None:
    """Decode an image; raise if it is damaged."""
    with Image.open(path) as image:
        image.load()
        if image.size != (row.width, row.height):
            raise ValueError("the image has another size")


def _read_splits(root: Path, problems: Problems) -> dict[str, str]:
    """The split of each line."""
    split_of: dict[str, str] = {}
    for split, names in SPLIT_FILES.items():
        for name in names:
            path = _find(root, TEXT_FOLDERS, name)
            if path is None:
                problems.add("missing files", name)
                continue
            for line in " ".join(manifests.read_lines(path, problems)).split():
                if split_of.setdefault(line, split) != split:
                    problems.add("lines in two splits", line)
    return split_of


def _find(root: Path, folders: Iterable[str], name: str) -> Path | None:
    """The file of a name in one of some folders."""
    paths = (root / folder / name for folder in folders)
    return next((path for path in paths if path.is_file()), None)


def _read_entries(root: Path, unit: Unit, problems: Problems) -> list[Entry]:
    """All lines or words of the corpus."""
    path = _find(root, TEXT_FOLDERS, f"{unit}.txt")
    if path is not None:
        return _read_rows(path, unit, problems)
    files = sorted((root / "xml").glob("*.xml"))
    if not files:
        problems.add("missing files", f"{unit}.txt or xml/")
    return [entry for file in files for entry in _read_xml(file, unit, problems)]


def _read_rows(path: Path, unit: Unit, problems: Problems) -> list[Entry]:
    """The rows of ``lines.txt`` or ``words.txt``."""
    entries = []
    box_begin = 4 if unit == "lines" else 3
    for number, row in enumerate(manifests.read_lines(path, problems), 1):
        if row.startswith("#") or not row.strip():
            continue
        fields = row.split()
        try:
            x, y, w, h = map(int, fields[box_begin : box_begin + 4])
            _check_entry(fields[0], (x, y, w, h))
        except ValueError:
            problems.add(f"malformed rows of {path.name}", f"line {number}")
            continue
        if unit == "lines" or fields[1] == "ok":
            text = clean(" ".join(fields[NUM_FIELDS:]))
            entries.append(Entry(fields[0], text, (x, y, w, h)))
    return entries


def _read_xml(path: Path, unit: Unit, problems: Problems) -> list[Entry]:
    """The lines or words of a form, with the boxes around their components."""
    try:
        return list(_form_entries(ElementTree.parse(path), unit))
    # Beside its own error, the parser raises those of encodings.
    except (ElementTree.ParseError, LookupError, OSError, ValueError):
        problems.add("unreadable files", f"xml/{path.name}")
        return []


def _form_entries(tree: Any, unit: Unit) -> Iterable[Entry]:
    """The lines or words in the tree of a form."""
    for line in tree.iter("line"):
        for element in [line] if unit == "lines" else line.iter("word"):
            # Texts are escaped once more than XML does.
            text = " ".join(html.unescape(word.get("text", "")) for word in element.iter("word"))
            boxes = [
                tuple(int(part.get(name, 0)) for name in ("x", "y", "width", "height"))
                for part in element.iter("cmp")
            ]
            left, top = (min((box[i] for box in boxes), default=0) for i in (0, 1))
            right, bottom = (max((box[i] + box[i + 2] for box in boxes), default=0) for i in (0, 1))
            is_good = unit == "lines" or line.get("segmentation", "ok") == "ok"
            if is_good:
                box = (left, top, right - left, bottom - top)
                name = element.get("id", "")
                _check_entry(name, box)
                yield Entry(name, clean(text), box)


def _check_entry(name: str, box: tuple[int, int, int, int]) -> None:
    """Raise ValueError unless a name can name a file, and a box can be one of pixels."""
    if not NAME.fullmatch(name) or max(map(abs, box)) > manifests.MOST_PIXELS:
        raise ValueError


def _images(
    root: Path,
    folder: Path,
    unit: Unit,
    form: str,
    entries: list[Entry],
    problems: Problems,
    *,
    check_only: bool,
) -> Iterable[tuple[Entry, Line]]:
    """The rows of the lines or words of a form, cut from it or from existing images."""
    page_path = _find(root, FORM_FOLDERS, f"{form}.png")
    if page_path is None:
        for entry in entries:
            yield from _ready_image(root, folder, unit, entry, problems)
        return
    try:
        with Image.open(page_path) as file:
            page = file.convert("L")
    except Exception:  # Pillow raises errors of many classes for damaged files
        problems.add("unreadable images", page_path.name)
        return
    if not check_only:
        (folder / unit).mkdir(parents=True, exist_ok=True)
    for entry in entries:
        x, y, w, h = entry.box
        box = (max(x, 0), max(y, 0), min(x + w, page.width), min(y + h, page.height))
        if box[0] >= box[2] or box[1] >= box[3]:
            problems.add("boxes outside of their forms", entry.id)
            continue
        image = page.crop(box)
        path = folder / unit / f"{entry.id}.png"
        if not check_only:
            content = io.BytesIO()
            image.save(content, "PNG")
            _files.write(path, content.getvalue())
        name = manifests.relative(path, folder)
        fields = entry.id, entry.text, name, image.width, image.height
        for row in manifests.new_rows(Line, problems, *fields):
            yield entry, row


def _ready_image(
    root: Path, folder: Path, unit: Unit, entry: Entry, problems: Problems
) -> Iterable[tuple[Entry, Line]]:
    """The row of a line or word that has an image of its own."""
    group = entry.id.split("-")[0]
    path = root / unit / group / entry.form / f"{entry.id}.png"
    if not path.is_file():
        problems.add("missing images", f"{entry.form}.png or {path.relative_to(root)}")
        return
    try:
        with Image.open(path) as file:
            width, height = file.size
    except Exception:
        problems.add("unreadable images", str(path.relative_to(root)))
        return
    fields = entry.id, entry.text, manifests.relative(path, folder), width, height
    for row in manifests.new_rows(Line, problems, *fields):
        yield entry, row


def load(
    data_path: PathLike,
    *,
    unit: Unit = "lines",
    height: int = HEIGHT,
    normalize: Literal["corpus", "image"] = "corpus",
    augmentation: ImageAugmentation | None = AUGMENTATION,
    limit: int | None = None,
    limits: Mapping[str, int] | None = None,
    damaged: Literal["stop", "skip"] = "stop",
    seed: int = 0,
) -> Splits[ImagesInFiles]:
    """Lines or words of IAM, after :func:`prepare`.

    Args:
        data_path: The folder of the corpus, or the folder with its manifests.
        unit: ``"lines"`` or ``"words"``.
        height: The height to which images are scaled.
        normalize: Whether images are normalised with the mean and standard deviation of the corpus,
            or each with its own.
        augmentation: The augmentation of training images, or None.
        limit: The maximum number of examples of each split, at equal distances; None for all.
        limits: The same for ``"train"``, ``"validation"`` and ``"test"``, which counts first.
        damaged: Whether to raise for a file that is missing or has changed its size, or to
            ``"skip"`` it.
        seed: The seed of the augmentation.

    Returns:
        The data sets, with the letters of all splits as tokens.

    Raises:
        ValueError: If there are no manifests, or they are damaged. The test data may be missing.
        CorpusError: If a file is missing or has changed its size.
    """
    folder, rows, left_out = manifests.load_rows(
        *("iam.load", data_path, [(f"{unit}-{split}",) for split in SPLITS]),
        Line,
        limits=[(limits or {}).get(split, limit) for split in SPLITS],
        damaged=damaged,
    )
    letters = Letters.from_texts(row.text for part in rows for row in part)
    parts = [
        ImagesInFiles(
            [folder / row.image for row in part],
            [row.id for row in part],
            [row.text for row in part],
            [scaled_width(row.width, row.height, height) for row in part],
            letters,
            pixels=pixels(height, normalize),
            augmentation=augmentation if split == "train" else None,
            split=split,
            seed=seed,
        )
        for split, part in zip(SPLITS, rows, strict=True)
    ]
    return Splits(*parts, left_out=left_out)


def pixels(height: int = HEIGHT, normalize: Literal["corpus", "image"] = "corpus") -> Pixels:
    """Return the preprocessing of images.

    >>> from arcgrad.recipes.data import iam
    >>> iam.pixels(normalize="image")
    Pixels(height=64, mean=None, std=None)
    """
    return Pixels(height, *((MEAN, STD) if normalize == "corpus" else ()))
