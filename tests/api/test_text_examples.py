"""The examples of strings and rules, against tables and an independent spelling."""

import random
import sys
from pathlib import Path

import pytest

import arcgrad as ag
from arcgrad import text

FOLDER = Path(__file__).parents[2] / "examples"
NAMES = ("english_numbers", "text_normalizer", "learned_spelling")


@pytest.fixture(scope="module")
def examples():
    """The modules; one imports another."""
    sys.path.insert(0, str(FOLDER))
    yield {name: __import__(name) for name in NAMES}
    sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def rules(examples):
    return examples["text_normalizer"].build_rules()


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_short_and_run(examples, name, capsys):
    assert len((FOLDER / f"{name}.py").read_text().splitlines()) < 60
    examples[name].main()
    assert len(capsys.readouterr().out) > 100


SMALL = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
SMALL += ["eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen"]
SMALL += ["eighteen", "nineteen"]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]

SCALES = [(100, "hundred"), (10**3, "thousand"), (10**6, "million"), (10**9, "billion")]
SCALES += [(10**12, "trillion")]


def spell(n):
    if n < 20:
        return SMALL[n]
    if n < 100:
        return TENS[n // 10 - 2] + (f"-{SMALL[n % 10]}" if n % 10 else "")
    size, name = max(scale for scale in SCALES if scale[0] <= n)
    return f"{spell(n // size)} {name}" + (f" {spell(n % size)}" if n % size else "")


def test_numbers_are_spelled_and_read(examples):
    numbers = examples["english_numbers"].build()
    read = ag.invert(numbers)
    rng = random.Random(1)
    some = [rng.randrange(10 ** rng.randint(1, 12)) for _ in range(200)]
    some += [10**k + d for k in range(12) for d in (-1, 0, 1)]
    for number in (*range(1001), *some, 10**12):
        words = text.best_strings(ag.compose(text.acceptor(str(number)), numbers), 2)
        assert [word for word, _ in words] == [spell(number)]
        back = text.best_strings(ag.compose(text.acceptor(spell(number)), read), 2)
        assert [digits for digits, _ in back] == [str(number)]
    for wrong in ("", "00", "01", "-1", str(10**12 + 1), "1e3"):
        assert not text.accepts(numbers, wrong)
    for wrong in ("", "twenty zero", "one one", "thousand", "one hundred hundred"):
        assert not text.accepts(read, wrong)


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("1st 2nd 3rd 4th", "first second third fourth"),
        ("the 11th, 12th and 20th", "the eleventh, twelfth and twentieth"),
        ("21st 100th 101st", "twenty-first one hundredth one hundred first"),
        ("$1", "one dollar"),
        ("$2.00!", "two dollars!"),
        ("($15.05)", "(fifteen dollars and five cents)"),
        ("12/1/1999", "december first one thousand nine hundred ninety-nine"),
        ("5/30/2012.", "may thirtieth two thousand twelve."),
        ("13/1/1999", "13/1/1999"),
        ("a 7, b8 and 0", "a seven, b8 and zero"),
        ("", ""),
        ("no digits — é", "no digits — é"),
    ],
)
def test_the_normalizer_follows_its_table(rules, written, spoken):
    assert text.apply(written, rules) == spoken


def test_sounds_are_learned(examples):
    learned = examples["learned_spelling"]
    rule = learned.build_rule(learned.learn(steps=8))
    assert learned.log_likelihood(rule).item() > -0.5
    for word, sounds in learned.WORDS.items():
        assert text.apply(word, rule) == sounds
