"""The readers that the fuzzer tries: every function of the library that reads a file.

A new reader is one entry in `READERS`. Its seeds are in `tests/recipes/fuzz/corpus/<name>`, or are
made here.
"""

import functools
import io
import json
import struct
import tempfile
import zipfile
import zlib
from pathlib import Path

import trees
from fuzzing import CORPUS, Reader

import arcgrad as ag
from arcgrad import gtn
from arcgrad.recipes.checked_files import EMPTY, IN_HEADER, digest, to_json
from arcgrad.recipes.cli.align import _read_manifest
from arcgrad.recipes.data import (
    Letters,
    digits,
    iam,
    input_features,
    librispeech,
    load_data,
    load_tokenizer,
    read_input,
    wsj,
)
from arcgrad.recipes.experiments import find, load_settings, override
from arcgrad.recipes.inference import read_lexicon
from arcgrad.recipes.paper.reproduction import RESULT, _result
from arcgrad.recipes.recognizer import INNER, TOKENS, TRANSITIONS, Recognizer
from arcgrad.recipes.run import (
    BEST,
    Run,
    load_environment,
    load_history,
    load_run,
)

SPEECH, IMAGES = find("fig5/digits/pieces18/marginal"), find("demo")
TINY = ["data.train=6", "data.validation=2", "data.test=2"]
RUN = override(
    find("table3/letters/wfst"),
    [
        *(*TINY, "tokens.num_pieces=40", "model.inner_pieces=30"),
        *("loss.ngram=2", "loss.prune=0", "loss.blank=optional"),
    ],
)


# Damage that the checksums of a file do not find


def crc64(content):
    """CRC-64/XZ, bit by bit."""
    remainder = 2**64 - 1
    for byte in content:
        remainder ^= byte
        for _ in range(8):
            remainder = (remainder >> 1) ^ (0xC96C5795D7870F42 if remainder & 1 else 0)
    return remainder ^ (2**64 - 1)


def damaged_graph(damage, content):
    body = damage(content[:-8])
    return body + crc64(body[:5000]).to_bytes(8, "little")


def damaged_archive(damage, content):
    """An archive of which one array is damaged."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w") as new:
        names = old.namelist()
        chosen = damage.rng.choice(names)
        for name in names:
            body = old.read(name)
            if name == chosen and name == "head.npy" and damage.rng.random() < 0.5:
                head = str(ag._files._parse_array(body))
                written = damage.value(json.loads(head))
                body = npy(json.dumps(written))
            elif name == chosen:
                body = damage(body)
            new.writestr(name, body, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def npy(text):
    import numpy as np

    file = io.BytesIO()
    np.lib.format.write_array(file, np.array(text), allow_pickle=False)
    return file.getvalue()


def damaged_json(damage, content):
    """A JSON object of a run that is not what was saved, with the right checksum."""
    found = json.loads(content)
    del found["sha256"]
    found = damage.value(found)
    return to_json(found) if isinstance(found, dict) else json.dumps(found).encode()


def damaged_rows(damage, content):
    lines = content.splitlines()
    i = damage.rng.randrange(len(lines))
    row = json.loads(lines[i])
    del row["sha256"]
    row = damage.value(row)
    lines[i] = to_json(row, indent=None).strip() if isinstance(row, dict) else b"[]"
    return b"\n".join(lines) + b"\n"


def damaged_checkpoint(damage, content):
    """A checkpoint with other content and the right checksum."""
    size = int.from_bytes(content[:8], "little")
    header, body = content[8 : 8 + size], content[8 + size :]
    if damage.rng.random() < 0.5:
        fields = json.loads(header)
        plain = json.loads(fields["__metadata__"]["arcgrad"])
        plain["content"] = damage.value(plain["content"])
        fields["__metadata__"]["arcgrad"] = json.dumps(plain)
        header = json.dumps(fields).encode("utf-8", "surrogatepass")
    else:
        header, body = damage.json(header), damage.flip(body)
    if damage.rng.random() < 0.95:
        header += b" " * (-len(header) % 8)
        content = len(header).to_bytes(8, "little") + header + body
    else:
        content = damage.integer(content)
    found = IN_HEADER.search(content)
    if found is None:
        return content
    begin, end = found.span(1)
    empty = content[:begin] + EMPTY.encode() + content[end:]
    return content[:begin] + digest(empty).encode() + content[end:]


def damaged_png(damage, content):
    """An image of which one chunk is damaged, with the right checksums."""
    if not content.startswith(b"\x89PNG"):
        return damage(content)
    chunks, at = [], 8
    while at < len(content):
        (size,) = struct.unpack(">I", content[at : at + 4])
        chunks.append(content[at + 4 : at + 8 + size])
        at += size + 12
    i = damage.rng.randrange(len(chunks))
    chunks[i] = chunks[i][:4] + damage(chunks[i][4:])[:10_000]
    parts = [struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks]
    return content[:8] + b"".join(parts)


# Folders


def run_folder(folder):
    """The folder of a run, without its training."""
    for name, content in run_files().items():
        (folder / name).write_bytes(content)


@functools.cache
def run_files():
    with tempfile.TemporaryDirectory() as folder:
        save_run(Path(folder))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def save_run(folder):
    data = load_data(RUN).train
    recognizer, run = Recognizer.for_data(RUN, data), Run(folder)
    run.save_settings(RUN)
    recognizer.save(folder)
    environment = {"command": "arcgrad train", "cores": 2, "threads": 1, "max_seconds": None}
    run.save_environment(environment, is_first=True)
    run.save_environment(environment, is_first=False)
    run.save_metrics([{"epoch": 1, "train_loss": 2.5}, {"epoch": 2, "train_loss": float("nan")}])
    (folder / RESULT).write_bytes(to_json({"test_cer": 4.5, "settings": {}}))
    run.save(
        BEST,
        {
            "files": run.digests(),
            "height": recognizer.height,
            "network": recognizer.network.state_dict(),
            "criterion": recognizer.criterion.state_dict(),
        },
    )


def small_checkpoint():
    """A checkpoint that is quick to check."""
    import torch

    from arcgrad.recipes.checked_files import to_tensors

    rng = {"host": torch.arange(5, dtype=torch.uint8), "device": None}
    content = {
        "experiment": {"description": "", "seed": 3},
        "network": {"0.weight": torch.ones(2, 3), "0.bias": torch.zeros(0)},
        "optimizer": {"state": {"0": {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1}]},
        "position": {"best_cer": float("inf"), "history": []},
        "rng": [rng, rng],
    }
    return to_tensors(content)


def compact_model():
    model = ag.ngram.estimate(ag.ngram.count(["ab", "ba", "abab"], 3)).compact()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.ngrams"
        model.save(str(path))
        return path.read_bytes()


def arpa_files():
    return [path.read_bytes() for path in sorted((CORPUS / "arpa").iterdir())]


def read_spellings(path):
    return ag.decoding.CTCDecoder(["", "a", "b"], lexicon=path)


def iam_xml(folder):
    trees.iam_sets(folder)
    trees.iam_xml(folder)
    trees.iam_line_images(folder)


def iam_rows(folder):
    iam_xml(folder)
    trees.iam_lines(folder)
    trees.iam_words(folder)


def manifest_of_lines(folder):
    trees.iam(folder)
    iam.prepare(folder, folder)


def manifest_of_recordings(folder):
    trees.librispeech(folder)
    librispeech.prepare(folder, folder)


def prepared(name, corpus, file, folder, derive=None, **options):
    """A reader of the folder of a corpus, of which one file is damaged."""
    depth = len(Path(file).parts)

    def read(path):
        root = path.parents[depth - 1]
        return corpus.prepare(root, allow_missing=True, check_only=True, **options)

    # An error names the files or the examples.
    return Reader(
        *(name, read, file, folder, derive),
        share=0.25,
        names="the corpus must be complete",
    )


FLAC = "dev-clean/84/121123/84-121123-0000.flac"

# Errors of files that are intact, but do not fit the other files of a run.
FIT = f"{BEST}|must fit the settings|{TOKENS}|{TRANSITIONS}|{INNER}"

LETTERS = Letters(("▁", *"abcdefghijklmnopqrstuvwxyz"))


def recognizer_of(path):
    return Recognizer.load(RUN, path.parent, 16)


def read_yaml_or_toml(path):
    return override(find("demo"), load_settings(path), source=path)


def read_as(format):
    return lambda path: ag.load(path, format)


def in_run(name, read, file, derive=None, **options):
    return Reader(name, read, file, run_folder, derive, **options)


def input_of(experiment):
    features = input_features(experiment)
    return lambda path: read_input(features, path)


READERS = [
    Reader("graph", ag.load, "graph", derive=damaged_graph, share=2),
    Reader("graph-text", ag.loadtxt, "graph.txt", share=2),
    Reader("graph-gtn", gtn.load, "graph"),
    Reader("graph-openfst", ag.load, "graph.fst", share=2),
    Reader("graph-att", read_as("att"), "graph.txt", share=2),
    Reader("graph-k2", read_as("k2"), "graph.txt"),
    Reader("archive", ag.load_archive, "archive", share=2),
    Reader("symbols", ag.SymbolTable.load, "symbols.txt"),
    Reader("counts", ag.ngram.Counts.load, "counts", share=2),
    Reader("counts-npz", ag.ngram.Counts.load, "counts.npz", derive=damaged_archive, share=2),
    Reader("arpa", ag.ngram.load_arpa, "model.arpa", share=2),
    Reader("compact", ag.ngram.load_compact, "model.ngrams", seeds=[compact_model()]),
    Reader("compact-arpa", ag.ngram.load_compact, "model.arpa", seeds=arpa_files()),
    Reader("decoder-lexicon", read_spellings, "words.txt", seeds=[b"ab a b\nba b a\n"]),
    Reader("lexicon", lambda path: read_lexicon(path, LETTERS), "words.txt"),
    Reader("letters", load_tokenizer, "letters.json"),
    Reader("pieces", load_tokenizer, "pieces.model", share=0.5),
    Reader("settings-toml", read_yaml_or_toml, "settings.toml"),
    Reader("settings-yaml", read_yaml_or_toml, "settings.yaml"),
    # The folder of a run
    in_run(
        "run-experiment", lambda p: Run(p.parent).settings("fuzz"), "experiment.json", damaged_json
    ),
    in_run(
        "run-environment", lambda p: load_environment(p.parent), "environment.json", damaged_json
    ),
    in_run("run-metrics", lambda p: load_history(p.parent), "metrics.jsonl", damaged_rows),
    in_run("run-result", lambda p: _result(p.parent), "result.json", damaged_json),
    in_run("run-tokens", recognizer_of, TOKENS, share=0.15, names=FIT),
    in_run("run-transitions", recognizer_of, TRANSITIONS, damaged_graph, share=0.15, names=FIT),
    in_run("run-inner-pieces", recognizer_of, INNER, share=0.15, names=FIT),
    in_run(
        "run-load", lambda p: load_run(p.parent), BEST, damaged_checkpoint, share=0.1, names=FIT
    ),
    Reader(
        "checkpoint",
        lambda path: Run(path.parent).load("fuzz", path.name),
        BEST,
        derive=damaged_checkpoint,
        seeds=[small_checkpoint()],
        share=2,
    ),
    # Corpora
    Reader("manifest-lines", lambda p: iam.load(p.parent), "lines-train.jsonl", manifest_of_lines),
    Reader(
        "manifest-recordings",
        lambda p: librispeech.load(p.parent),
        "dev-clean.jsonl",
        manifest_of_recordings,
    ),
    Reader("manifest-align", _read_manifest, "said.tsv"),
    Reader("digits-index", digits._read_index, "index.npz", derive=damaged_archive),
    prepared("iam-lines", iam, "lines.txt", iam_rows),
    prepared("iam-words", iam, "words.txt", trees.iam, unit="words"),
    prepared("iam-xml", iam, "xml/a01-003.xml", iam_xml),
    prepared("iam-split", iam, "trainset.txt", iam_rows),
    prepared("iam-form", iam, "a01-003.png", trees.iam, damaged_png),
    prepared(
        "librispeech", librispeech, "dev-clean/84/121123/84-121123.trans.txt", trees.librispeech
    ),
    prepared("librispeech-flac", librispeech, FLAC, trees.librispeech),
    prepared("wsj-index", wsj, f"{wsj.INDICES_2}/si_tr_s.ndx", trees.wsj),
    prepared("wsj-dots", wsj, next(iter(trees.DOTS)), trees.wsj),
    Reader("image", input_of(IMAGES), "image", derive=damaged_png),
    Reader("recording", input_of(SPEECH), "recording", share=0.5),
]
