"""Inference: emissions, evaluation, decoding, alignment, and predictions for examples."""

from .adapter import Adapter, FileEmissions, FileModel, load_model
from .alignment import (
    Alignment,
    Segment,
    align,
    to_ctm,
    to_json,
    to_srt,
    to_textgrid,
    to_tsv,
    to_vtt,
    token_names,
)
from .corpus import CorpusItem, CorpusTask, ItemError, read_items, run_corpus
from .decoder import BEAM, Decoder, Transcript, read_lexicon
from .decompositions import (
    Comparison,
    PieceSpan,
    compare,
    count_decompositions,
    split_words,
    viterbi_decompositions,
)
from .devices import find_device, load_run_on, torch_threads
from .emissions import dataset_emissions, log_probs
from .evaluation import evaluate_recognizer, evaluate_run
from .prediction import Prediction, predict

__all__ = [
    "BEAM",
    "Adapter",
    "Alignment",
    "Comparison",
    "CorpusItem",
    "CorpusTask",
    "Decoder",
    "FileEmissions",
    "FileModel",
    "ItemError",
    "PieceSpan",
    "Prediction",
    "Segment",
    "Transcript",
    "align",
    "compare",
    "count_decompositions",
    "dataset_emissions",
    "evaluate_recognizer",
    "evaluate_run",
    "find_device",
    "load_model",
    "load_run_on",
    "log_probs",
    "predict",
    "read_items",
    "read_lexicon",
    "run_corpus",
    "split_words",
    "to_ctm",
    "to_json",
    "to_srt",
    "to_textgrid",
    "to_tsv",
    "to_vtt",
    "token_names",
    "torch_threads",
    "viterbi_decompositions",
]
