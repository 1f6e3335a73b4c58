"""Write the results of pyctcdecode and flashlight-text that tests/decoding compares with.

Run it where both are installed:
``pip install pyctcdecode==0.5.0 kenlm==0.3.0 flashlight-text==0.0.7``.
"""

import json
import math
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
import decoder_oracles as oracles

# How many results of each example are compared.
NBEST = 5


def from_pyctcdecode(arpa):
    from pyctcdecode import build_ctcdecoder

    found = {}
    for name, (has_model, build, options) in oracles.PYCTCDECODE.items():
        decoder = build_ctcdecoder(oracles.LABELS, arpa if has_model else None, **build)
        found[name] = [
            {
                "text": decoder.decode(x, **options),
                "beams": [
                    [text, round(logit, 6), round(score, 6)]
                    for text, _, _, logit, score in decoder.decode_beams(x, **options)[:NBEST]
                ],
            }
            for x in oracles.examples()
        ]
    return found


def from_flashlight(arpa):
    from flashlight.lib.text import decoder as fl
    from flashlight.lib.text.decoder.kenlm import KenLM
    from flashlight.lib.text.dictionary import Dictionary

    words = oracles.WORDS
    names = Dictionary()
    for word in [*words, "<unk>"]:
        names.add_entry(word)
    model = KenLM(arpa, names)
    trie = fl.Trie(len(oracles.LABELS), 1)
    for i, word in enumerate(words):
        trie.insert([oracles.LABELS.index(c) for c in f"{word} "], i, 0.0)
    trie.smear(fl.SmearingMode.MAX)
    found = {}
    for name, (lm_weight, word_score, sil_score, log_add) in oracles.FLASHLIGHT.items():
        options = fl.LexiconDecoderOptions(
            *(2000, len(oracles.LABELS), 1e9, lm_weight, word_score, -math.inf, sil_score),
            log_add,
            fl.CriterionType.CTC,
        )
        decoder = fl.LexiconDecoder(options, trie, model, 1, 0, len(words), [], False)
        found[name] = []
        for x in oracles.examples():
            frames = x.astype(np.float32)
            best = decoder.decode(frames.ctypes.data, *frames.shape)[0]
            text = " ".join(words[w] for w in best.words if 0 <= w < len(words))
            found[name].append([text, round(best.score, 4)])
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        arpa = str(Path(folder) / "words.arpa")
        oracles.save_model(arpa)
        results = {"pyctcdecode": from_pyctcdecode(arpa), "flashlight": from_flashlight(arpa)}
    oracles.FILE.write_text(json.dumps(results, indent=1) + "\n")
