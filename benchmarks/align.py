"""Forced alignment with the interface of torchaudio, against a Viterbi recursion in C++.

No wheel of torchaudio exists for the torch of this project without a GPU, so the yardstick is
``viterbi_reference.cpp``, which the case compiles with ``c++ -O3``. Both take tensors and return
the label and the score of each frame.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from arcgrad.decoding import align_words
from arcgrad.torch.torchaudio import forced_align

from .harness import Report, Row, Settings, Timing, faster_by, interleave, takes_under

NUM_LABELS = 32
SIZES = ((100, 20), (300, 60), (1000, 200), (3000, 600), (10_000, 2000), (30_000, 6000))
BATCHES = ((32, 100, 20), (32, 1000, 200))

Tensors = tuple[torch.Tensor, torch.Tensor]


def emissions(num_frames: int, num_tokens: int, seed: int = 0) -> Tensors:
    """Log-probabilities in which tokens are peaks between blanks, with noise, and the tokens."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(1, NUM_LABELS, num_tokens)
    frames = np.zeros(num_frames, int)
    frames[2 * np.sort(rng.choice(num_frames // 2, num_tokens, replace=False))] = tokens
    scores = rng.standard_normal((num_frames, NUM_LABELS), np.float32)
    scores[np.arange(num_frames), frames] += 6
    return torch.from_numpy(scores).log_softmax(-1)[None], torch.from_numpy(tokens)[None]


def compile_reference(folder: str) -> Any:
    source, library = Path(__file__).with_name("viterbi_reference.cpp"), Path(folder) / "viterbi.so"
    command = ["c++", "-O3", "-std=c++17", "-shared", "-fPIC", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    function = ctypes.CDLL(str(library)).viterbi_reference
    function.argtypes = [ctypes.c_void_p, *[ctypes.c_int64] * 2, ctypes.c_void_p]
    function.argtypes += [*[ctypes.c_int64] * 2, ctypes.c_void_p, ctypes.c_void_p]
    return function


def reference(function: Any, log_probs: torch.Tensor, targets: torch.Tensor) -> Tensors:
    batch, frames, labels = log_probs.shape
    paths = torch.empty((batch, frames), dtype=torch.int64)
    scores = torch.empty((batch, frames))
    for x, target, path, score in zip(log_probs, targets, paths, scores, strict=True):
        failed = function(
            *(x.data_ptr(), frames, labels, target.data_ptr(), len(target), 0),
            *(path.data_ptr(), score.data_ptr()),
        )
        assert not failed
    return paths, scores


def run(settings: Settings) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        return measure(compile_reference(folder), settings)


def measure(function: Any, settings: Settings) -> Report:
    rows = []
    sizes = [(1, *size) for size in SIZES] + list(BATCHES)
    for batch, num_frames, num_tokens in sizes[:3] if settings.quick else sizes:
        made = [emissions(num_frames, num_tokens, seed) for seed in range(batch)]
        x, targets = (torch.cat(part) for part in zip(*made, strict=True))
        tasks: dict[str, Callable[[], Tensors]] = {
            "ours": partial(forced_align, x, targets),
            "reference": partial(reference, function, x, targets),
        }
        ours, theirs = (task()[1].double().sum().item() for task in tasks.values())
        assert abs(ours - theirs) <= 1e-4 * abs(theirs), (ours, theirs)
        times = interleave("align", tasks, settings)
        name = f"{num_frames} x {num_tokens}"
        rows.append(
            Row(
                name if batch == 1 else f"{batch} x {name}",
                times["ours"],
                "a Viterbi recursion in C++",
                times["reference"],
                faster_by(1.5),
            )
        )
    rows.append(five_hours(settings))
    return Report(rows, [], ["one call of forced_align: tensors in, tensors out"])


def five_hours(settings: Settings) -> Row:
    num_frames, num_tokens = settings.size(900_000, 9000), settings.size(250_000, 2500)
    x, targets = emissions(num_frames, num_tokens)
    labels = ["<blank>", *(chr(ord("A") + i) for i in range(NUM_LABELS - 1))]
    text = "".join(labels[i] for i in targets[0].tolist())
    words = [text[i : i + 5] for i in range(0, len(text), 5)]
    frames = x[0].numpy()
    begin = settings.clock()
    found = align_words(frames, words, labels)
    seconds = settings.clock() - begin
    assert len(found) == len(words)
    assert found.score == found.bound
    return Row(
        f"align_words, {num_frames} x {num_tokens}, {len(words)} words",
        Timing.constant(seconds),
        target=takes_under(30.0),
        details={"width": found.width, "passes": found.passes},
    )
