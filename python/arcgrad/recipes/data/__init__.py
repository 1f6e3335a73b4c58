"""Data: corpora, features, tokenizers and batches.

Each corpus is a module with ``load``, which gives training, validation and test data: ``letters``
(handwriting, in the package), ``digits`` (speech, in the repository), and, wherever a user has
them, ``iam``, ``librispeech`` and ``wsj``, which ``prepare`` first. Needs
``pip install 'arcgrad[recipes]'``.
"""

try:
    import PIL as _PIL  # noqa: F401
    import sentencepiece as _sentencepiece  # noqa: F401
    import soundfile as _soundfile  # type: ignore[import-untyped]  # noqa: F401
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"arcgrad.recipes.data needs {error.name}, but it is not installed; "
        "pip install 'arcgrad[recipes]'"
    ) from error

from . import digits, iam, letters, librispeech, wsj
from ._audio import read_audio
from .examples import Batch, BucketSampler, Dataset, Example, Key, Splits, collate
from .images import ImageAugmentation, ImageDataset, Pixels, read_image
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
    "Key",
    "Letters",
    "LogMel",
    "Pixels",
    "Prepared",
    "SpecAugment",
    "SpeechDataset",
    "Splits",
    "Tokenizer",
    "WordPieces",
    "collate",
    "digits",
    "iam",
    "letters",
    "librispeech",
    "load_tokenizer",
    "read_audio",
    "read_image",
    "wsj",
]
