"""Data: corpora, features, tokenizers and batches.

Each corpus is a module with a function ``load``, which returns training, validation and test data:
``letters`` (handwriting, part of the package), ``digits`` (speech, part of the repository), and
``iam``, ``librispeech`` and ``wsj``, which users bring and ``prepare``.
"""

from . import digits, iam, letters, librispeech, wsj
from ._audio import read_audio
from .corpora import load_data, load_split, read_split
from .examples import Batch, BucketSampler, Dataset, Example, Key, Split, Splits, collate
from .images import ImageAugmentation, ImageDataset, Pixels, read_image
from .inputs import Input, dataset_input, input_features, read_input
from .manifests import CorpusError, Prepared
from .speech import LogMel, SpecAugment, SpeechDataset
from .tokenizers import BOUNDARY, Letters, Tokenizer, WordPieces, load_tokenizer

__all__ = [
    "BOUNDARY",
    "Batch",
    "BucketSampler",
    "CorpusError",
    "Dataset",
    "Example",
    "ImageAugmentation",
    "ImageDataset",
    "Input",
    "Key",
    "Letters",
    "LogMel",
    "Pixels",
    "Prepared",
    "SpecAugment",
    "SpeechDataset",
    "Split",
    "Splits",
    "Tokenizer",
    "WordPieces",
    "collate",
    "dataset_input",
    "digits",
    "iam",
    "input_features",
    "letters",
    "librispeech",
    "load_data",
    "load_split",
    "load_tokenizer",
    "read_audio",
    "read_image",
    "read_input",
    "read_split",
    "wsj",
]
