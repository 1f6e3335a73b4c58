"""Beam search through lexicons of several sizes, and the n best paths of its lattice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

import arcgrad as ag

from .graphs import Words, lexicon_tree, random_words
from .harness import Report, Row, Settings, costs_at_most, interleave, seconds_text

NUM_LABELS = 30
NUM_LETTERS = 26  # the other labels are unlikely in every frame
BEAM = 10.0
MAX_ACTIVE = 1_000


def noisy_frames(
    words: Words, num_frames: int, rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    """Log-probabilities of a random text of these words, two frames per letter, plus noise."""
    letters: list[int] = []
    while 2 * len(letters) < num_frames:
        letters += words[rng.integers(len(words))]
    frames = rng.standard_normal((num_frames, NUM_LABELS))
    frames[np.arange(num_frames), np.repeat(letters, 2)[:num_frames]] += 4.0
    frames[:, NUM_LETTERS:] -= 20.0
    frames -= np.log(np.exp(frames).sum(axis=1, keepdims=True))
    return frames.astype(np.float32)


def run(settings: Settings) -> Report:
    rng = np.random.default_rng(0)
    few, some, many = (settings.size(full, full // 100) for full in (1_100, 11_000, 110_000))
    lengths = [settings.size(full, full // 10) for full in (100, 200, 400, 800)]
    words = random_words(many, rng)
    # Words that no frame makes likely: the graph grows, but the search does not.
    unlikely = [(NUM_LETTERS + word[0] % 4, *word) for word in words[some:]]
    lexicons = {
        "few words": lexicon_tree(words[:few]),
        "some words": lexicon_tree(words[:some]),
        "some, many unlikely": lexicon_tree(words[:some] + unlikely),
        "many words": lexicon_tree(words),
    }
    # Every lexicon has the words of the text.
    frames = noisy_frames(words[:few], lengths[-1], rng)
    graphs = {name: arrays.graph(calc_grad=False) for name, arrays in lexicons.items()}
    limits = {"": {}, f", {MAX_ACTIVE} active": {"max_active": MAX_ACTIVE}}

    searches: dict[tuple[str, str, int], Callable[[], ag.Graph]] = {}
    for limit, options in limits.items():
        for name, graph in graphs.items():
            for length in lengths if name == "some words" else lengths[1:2]:
                emissions = ag.linear_graph(length, NUM_LABELS, frames[:length], calc_grad=False)
                search = partial(ag.beam_search, graph, emissions, beam=BEAM, **options)
                searches[limit, name, length] = search
    tasks = {" ".join(map(str, key)): search for key, search in searches.items()}
    timings = interleave("decode", tasks, settings)
    times = dict(zip(searches, timings.values(), strict=True))

    rows, lines = [], []
    for limit in limits:
        short, usual, long = lengths[0], lengths[1], lengths[-1]
        yardstick = times[limit, "some words", short].per(short)
        per_frame = times[limit, "some words", long].per(long)
        measure = f"beam {BEAM:g}{limit}"
        rows.append(
            Row(
                f"{measure}: a frame of {long}",
                per_frame,
                f"of {short}",
                yardstick,
                costs_at_most(1.5),
            )
        )
        large = lexicons["some, many unlikely"].num_arcs
        rows.append(
            Row(
                f"{measure}: {large} arcs, most of them unlikely",
                times[limit, "some, many unlikely", usual],
                f"{lexicons['some words'].num_arcs} arcs",
                times[limit, "some words", usual],
                costs_at_most(1.5),
            )
        )
    for (limit, name, length), search in searches.items():
        lattice, timing = search(), times[limit, name, length]
        cells = [f"beam {BEAM:g}{limit}", name, str(lexicons[name].num_arcs), str(length)]
        cells += [seconds_text(timing.minimum), seconds_text(timing.median)]
        lines.append([*cells, str(lattice.num_nodes()), str(lattice.num_arcs())])
    header = ["search", "lexicon", "arcs", "frames", "min", "median", "lattice nodes", "its arcs"]
    table = ("every search; more likely words mean more nodes within the beam", header, lines)

    lattice = searches["", "some words", lengths[1]]().detach()
    note = f"trees of words whose letters may repeat, {NUM_LABELS} labels, noisy frames of a text"
    return Report(rows + best_rows(lattice, settings), [table], [note])


def best_rows(lattice: ag.Graph, settings: Settings) -> list[Row]:
    """The n best paths of a lattice, against its single best path."""
    tasks: dict[str, Callable[[], object]] = {"viterbi_path": partial(ag.viterbi_path, lattice)}
    for n in (1, 10, 100):
        tasks[f"best_paths, n = {n}"] = partial(ag.best_paths, lattice, n)
        tasks[f"best_paths, n = {n}, unique"] = partial(ag.best_paths, lattice, n, unique=True)
    times = interleave("decode", tasks, settings)
    size = f"of {lattice.num_arcs()} arcs"
    return [
        Row(f"{name} {size}", timing, "viterbi_path", times["viterbi_path"])
        for name, timing in times.items()
        if name != "viterbi_path"
    ]
