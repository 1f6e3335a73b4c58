"""Tokenizers."""

import io
import pickle

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from arcgrad.recipes.data import BOUNDARY, Letters, WordPieces, letters, load_tokenizer

TEXTS = letters.running_text().split(" ")
TEXTS = [" ".join(TEXTS[i : i + 12]) for i in range(0, 6000, 12)]
PIECES = WordPieces.train(TEXTS, 200)
ALPHABET = Letters.from_texts(TEXTS)

words = st.text(alphabet="abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=6)


@pytest.mark.parametrize("tokenizer", [PIECES, ALPHABET], ids=["pieces", "letters"])
@given(st.lists(words, max_size=5))
def test_a_text_is_decoded_to_itself(tokenizer, parts):
    text = " ".join(parts)
    labels = tokenizer.encode(text)
    assert tokenizer.decode(labels) == text
    assert all(0 <= label < len(tokenizer.tokens) for label in labels)


@given(st.lists(words, min_size=1, max_size=5))
def test_pieces_spell_the_text_with_a_boundary_before_each_word(parts):
    spelled = "".join(PIECES.tokens[label] for label in PIECES.encode(" ".join(parts)))
    assert spelled == "".join(BOUNDARY + part for part in parts)


@given(st.lists(words, min_size=1, max_size=5))
def test_letters_with_a_leading_boundary_spell_the_same_text_as_pieces(parts):
    leading = Letters(ALPHABET.tokens, leading_boundary=True)
    spelled = "".join(leading.tokens[label] for label in leading.encode(" ".join(parts)))
    assert spelled == "".join(BOUNDARY + part for part in parts)


def test_spaces_are_normalised():
    assert ALPHABET.encode("  a \n b ") == ALPHABET.encode("a b")
    assert PIECES.encode("  a \n b ") == PIECES.encode("a b")
    assert ALPHABET.encode(" ") == PIECES.encode("") == []


def test_the_unknown_piece_is_not_a_token():
    assert len(PIECES.tokens) == 200
    assert "<unk>" not in PIECES.tokens
    assert set("".join(TEXTS)) - {" "} <= set(PIECES.tokens)


def test_every_letter_of_the_training_text_is_an_unnormalised_piece():
    # Usual normalisation would turn these into 1, ff and A.
    text = "\u2460 \ufb00 \uff21 plain text plain text"
    pieces = WordPieces.train([text] * 3, 13)
    assert pieces.decode(pieces.encode(text)) == text


def test_training_depends_on_the_text_only():
    assert WordPieces.train(TEXTS, 200) == PIECES
    assert WordPieces.train([f" {text}  " for text in TEXTS], 200).tokens == PIECES.tokens


def test_long_texts_are_not_left_out():
    text = " ".join(["word"] * 1000 + ["zebra"] * 100)
    assert "z" in "".join(WordPieces.train([text], 10).tokens)


def test_unknown_letters_raise_or_are_left_out():
    for tokenizer in (PIECES, ALPHABET):
        with pytest.raises(ValueError, match="must spell the text, but 'a ß ü' has 'ß', 'ü'"):
            tokenizer.encode("a ß ü")
        assert tokenizer.decode(tokenizer.encode("aß", skip_unknown=True)) == "a"


def test_a_text_must_not_have_the_boundary():
    for tokenizer in (PIECES, ALPHABET):
        with pytest.raises(ValueError, match="separated by spaces, but the text 'a▁b'"):
            tokenizer.encode("a▁b")


@pytest.mark.parametrize("label", [-1, 200])
def test_labels_must_be_in_range(label):
    with pytest.raises(ValueError, match=rf"must be in \[0, 200\), but one is {label}"):
        PIECES.decode([0, label])


@pytest.mark.parametrize("tokens", [("ab",), ("a", "a"), (" ",), ("",)])
def test_tokens_must_be_letters(tokens):
    with pytest.raises(ValueError, match="a token must be one letter, each once"):
        Letters(tokens)


def test_a_leading_boundary_must_be_a_token():
    with pytest.raises(ValueError, match="leading boundary must be a token"):
        Letters(("a", "b"), leading_boundary=True)


def test_the_size_must_suit_the_text():
    texts = ["abc abz", "xyw"]
    with pytest.raises(ValueError, match=r"must be at least 8, .* but it is 7"):
        WordPieces.train(texts, 7)
    with pytest.raises(ValueError, match="have at most 9 pieces, but the size is 10"):
        WordPieces.train(texts, 10)
    assert [len(WordPieces.train(texts, size).tokens) for size in (8, 9)] == [8, 9]


def test_the_training_text_must_not_be_empty():
    with pytest.raises(ValueError, match="there must be a text, but all are empty"):
        WordPieces.train(["", " "], 10)


@pytest.mark.parametrize(
    "tokenizer", [PIECES, ALPHABET, Letters(("▁", "ä"), leading_boundary=True)]
)
def test_tokenizers_are_saved_and_pickled(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokens")
    for other in (load_tokenizer(tmp_path / "tokens"), pickle.loads(pickle.dumps(tokenizer))):
        assert other == tokenizer
        assert other.tokens == tokenizer.tokens


def test_saved_pieces_are_a_sentencepiece_model(tmp_path):
    PIECES.save(tmp_path / "pieces.model")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "pieces.model"))
    assert [piece - 1 for piece in processor.encode("the class")] == PIECES.encode("the class")


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        b"{",
        b'{"tokens": ["ab"], "leading_boundary": false}',
        b"{\xff",
        b"{" * 10**6,
        b'{"tokens": "ab"}',
        b"\0",
    ],
)
def test_damaged_letters_are_rejected(content, tmp_path):
    (tmp_path / "tokens").write_bytes(content)
    with pytest.raises(ValueError, match=r"tokens.* must hold a tokenizer, but it does not"):
        load_tokenizer(tmp_path / "tokens")


def test_a_damaged_model_is_rejected(tmp_path):
    (tmp_path / "tokens").write_bytes(b"no model")
    with pytest.raises(ValueError, match="the model must be from SentencePiece"):
        load_tokenizer(tmp_path / "tokens")


def test_a_model_with_another_unknown_piece_is_rejected():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=model, vocab_size=60, unk_id=1, bos_id=0,
        minloglevel=2,
    )  # fmt: skip
    with pytest.raises(ValueError, match="must be piece 0, but it is piece 1"):
        WordPieces(model.getvalue())
