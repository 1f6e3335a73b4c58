"""Decoding with a lexicon and a 3-gram model, against flashlight-text and pyctcdecode.

The task is made here: words whose letters follow a random Markov chain, sentences whose words have
likely successors, and frames of noise around their letters. The peers run if they are installed:
``pip install flashlight-text==0.0.7 pyctcdecode==0.5.0 kenlm==0.3.0``.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import arcgrad as ag
from arcgrad.decoding import CTCDecoder

from .harness import Report, Row, Settings, Task, costs_at_most, faster_by, interleave

LETTERS = "abcdefghijklmnopqrstuvwxyz'"
LABELS = ["<blank>", "|", *LETTERS]
ALPHA, BETA = 0.8, 0.5
ACTIVE = 100

Frames = npt.NDArray[np.float32]


class Example(NamedTuple):
    words: list[str]
    frames: Frames


def random_lexicon(count: int, rng: np.random.Generator) -> list[str]:
    size = len(LETTERS)
    chain = rng.dirichlet(np.full(size, 0.35), size + 1)
    words: dict[str, None] = {}
    while len(words) < count:
        last, word = size, ""
        for _ in range(rng.integers(2, 11)):
            last = rng.choice(size, p=chain[last])
            word += LETTERS[last]
        words[word] = None
    return list(words)


class Language:
    """Sentences: the next word is one of 20 likely successors, or any word."""

    def __init__(self, words: list[str], rng: np.random.Generator) -> None:
        self.words, self.rng = words, rng
        weights = 1 / np.arange(1, len(words) + 1)
        self.weights = weights / weights.sum()
        self.successors = rng.choice(len(words), size=(len(words), 20), p=self.weights)

    def sentence(self) -> list[str]:
        found = [self.rng.choice(len(self.words), p=self.weights)]
        while len(found) < 6 or self.rng.random() < 0.75:
            if self.rng.random() < 0.7:
                found.append(self.successors[found[-1], self.rng.integers(20)])
            else:
                found.append(self.rng.choice(len(self.words), p=self.weights))
        return [self.words[i] for i in found]


def noisy_frames(words: Sequence[str], rng: np.random.Generator) -> Frames:
    labels: list[int] = []
    for letter in "".join(f"{word}|" for word in words):
        label = LABELS.index(letter)
        if (labels and labels[-1] == label) or rng.random() < 0.4:
            labels.append(0)
        labels += [label] * rng.integers(1, 3)
        if rng.random() < 0.5:
            labels.append(0)
    frames = 1.6 * rng.standard_normal((len(labels), len(LABELS)))
    frames[np.arange(len(labels)), labels] += 4.2
    frames -= np.log(np.exp(frames).sum(axis=1, keepdims=True))
    return frames.astype(np.float32)


def num_errors(reference: list[str], words: list[str]) -> int:
    distances = list(range(len(words) + 1))
    for i, one in enumerate(reference, 1):
        before, distances[0] = distances[0], i
        for j, other in enumerate(words, 1):
            cost = min(distances[j] + 1, distances[j - 1] + 1, before + (one != other))
            before, distances[j] = distances[j], cost
    return distances[-1]


class Found(NamedTuple):
    words: list[str]
    score: float


Decode = Callable[[], list[Found]]


def ours(arpa: str, words: list[str], examples: list[Example], **options: Any) -> Decode:
    decoder = our_decoder(arpa, words, **options)

    def decode() -> list[Found]:
        results = decoder.decode([example.frames for example in examples])
        return [Found(found[0].text.split(), found[0].score) for found in results]

    return decode


def our_decoder(arpa: str, words: list[str], **options: Any) -> CTCDecoder:
    every = {"beam": math.inf, "max_active": ACTIVE, **options}
    return CTCDecoder(LABELS, arpa, words, alpha=ALPHA, beta=BETA, **every)


def flashlight_decoder(arpa: str, words: list[str]) -> Any:
    from flashlight.lib.text import decoder as fl
    from flashlight.lib.text.decoder.kenlm import KenLM
    from flashlight.lib.text.dictionary import Dictionary

    names = Dictionary()
    for word in words:
        names.add_entry(word)
    names.add_entry("<unk>")
    model = KenLM(arpa, names)
    trie, start = fl.Trie(len(LABELS), 1), model.start(False)
    for i, word in enumerate(words):
        trie.insert([LABELS.index(c) for c in f"{word}|"], i, model.score(start, i)[1])
    trie.smear(fl.SmearingMode.MAX)
    # The scores of KenLM are decimal logarithms.
    options = fl.LexiconDecoderOptions(
        *(ACTIVE, len(LABELS), 1e9, ALPHA * math.log(10), BETA, -1e9, 0.0),
        False,
        fl.CriterionType.CTC,
    )
    return fl.LexiconDecoder(options, trie, model, 1, 0, len(words), [], False)


def flashlight(decoder: Any, words: list[str], examples: list[Example]) -> list[Found]:
    found = []
    for _, frames in examples:
        best = decoder.decode(frames.ctypes.data, *frames.shape)[0]
        found.append(Found([words[w] for w in best.words if 0 <= w < len(words)], best.score))
    return found


def flashlight_without_lexicon() -> Any:
    from flashlight.lib.text import decoder as fl

    options = fl.LexiconFreeDecoderOptions(
        ACTIVE, len(LABELS), 1e9, 0.0, 0.0, False, fl.CriterionType.CTC
    )
    return fl.LexiconFreeDecoder(options, fl.ZeroLM(), 1, 0, [])


def has(*packages: str) -> bool:
    try:
        for package in packages:
            __import__(package)
    except ImportError:
        return False
    return True


def run(settings: Settings) -> Report:
    rng = np.random.default_rng(7)
    words = random_lexicon(settings.size(5_000, 200), rng)
    language = Language(words, rng)
    text = [language.sentence() for _ in range(settings.size(11_200, 300))]
    counts = ag.ngram.count([*text, *([word] for word in words)], order=3)
    model = ag.ngram.estimate(counts, "kneser_ney", unknown=True)
    examples = []
    for _ in range(settings.size(100, 3)):
        sentence = language.sentence()
        examples.append(Example(sentence, noisy_frames(sentence, rng)))
    with tempfile.TemporaryDirectory() as folder:
        arpa = str(Path(folder) / "words.arpa")
        ag.ngram.save_arpa(model, arpa)
        return measure(arpa, words, examples, sum(model.sizes), settings)


def measure(
    arpa: str, words: list[str], examples: list[Example], num_ngrams: int, settings: Settings
) -> Report:
    num_frames = sum(len(example.frames) for example in examples)
    small = {"": ours(arpa, words, examples)}
    small["50 hypotheses"] = ours(arpa, words, examples, max_active=50)
    small["200 hypotheses"] = ours(arpa, words, examples, max_active=200)
    small["sum over paths"] = ours(arpa, words, examples, merge="sum")
    free = CTCDecoder(LABELS, beam=math.inf, max_active=ACTIVE)
    arrays = [example.frames for example in examples]
    tasks: dict[str, Callable[[], Any] | Task] = {
        f"ours {key}".strip(): f for key, f in small.items()
    }
    tasks["ours, labels"] = partial(free.decode, arrays)
    tasks["ours, build"] = partial(our_decoder, arpa, words)
    has_flashlight = has("flashlight.lib.text.decoder", "kenlm")
    if has_flashlight:
        tasks["flashlight"] = partial(flashlight, flashlight_decoder(arpa, words), words, examples)
        plain = flashlight_without_lexicon()
        tasks["flashlight, labels"] = lambda: [
            plain.decode(x.ctypes.data, *x.shape)[0] for x in arrays
        ]
        tasks["flashlight, build"] = partial(flashlight_decoder, arpa, words)
    if has("pyctcdecode", "kenlm"):
        from pyctcdecode import build_ctcdecoder

        peer = build_ctcdecoder(["", " ", *LETTERS], arpa, words, alpha=ALPHA, beta=BETA)
        few = arrays[: max(1, len(arrays) // 25)]
        tasks["pyctcdecode"] = lambda: [peer.decode(x, beam_width=ACTIVE) for x in few]
    times = interleave("decoder", tasks, settings)
    per_frame = {name: timing.per(num_frames) for name, timing in times.items()}
    rows = []
    best = per_frame["ours"]
    if has_flashlight:
        rows = [
            Row("a frame", best, "flashlight-text", per_frame["flashlight"], faster_by(3.0)),
            Row(
                "a frame without a model",
                per_frame["ours, labels"],
                "flashlight-text",
                per_frame["flashlight, labels"],
                faster_by(5.0),
            ),
            Row("build", times["ours, build"], "flashlight-text", times["flashlight, build"]),
        ]
    if "pyctcdecode" in times:
        frames = sum(len(x) for x in few)
        rows.append(
            Row(
                "a frame, sum over paths",
                per_frame["ours sum over paths"],
                "pyctcdecode",
                times["pyctcdecode"].per(frames),
            )
        )
    rows.append(
        Row(
            "a frame, 200 hypotheses",
            per_frame["ours 200 hypotheses"],
            "100 hypotheses",
            best,
            costs_at_most(3.0),
        )
    )
    results: dict[str, Decode] = dict(small)
    if has_flashlight:
        results["flashlight-text"] = tasks["flashlight"]  # type: ignore[assignment]
    num_words = sum(len(example.words) for example in examples)
    lines = []
    for name, decode in results.items():
        found = decode()
        wrong = sum(
            num_errors(example.words, one.words)
            for example, one in zip(examples, found, strict=True)
        )
        lines.append(
            [
                name or "100 hypotheses",
                f"{wrong / num_words:.2%}",
                f"{sum(f.score for f in found):.1f}",
            ]
        )
    table = ("quality of all results", ["search", "word errors", "sum of scores"], lines)
    note = (
        f"{len(words)} words, {num_ngrams} n-grams, {len(examples)} examples, {num_frames} frames, "
        f"{ACTIVE} hypotheses"
    )
    return Report(rows, [table], [note])
