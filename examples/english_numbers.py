"""English numbers from 0 to 10^12, spelled and read by one transducer."""

import arcgrad as ag
from arcgrad import text

ONES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TEENS = ["ten", "eleven", "twelve", "thirteen", "fourteen", *(f"{k}teen" for k in ("fif", "six"))]
TEENS += ["seventeen", "eighteen", "nineteen"]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
SCALES = ["", " thousand", " million", " billion"]


def spelled(words, first):
    """The digits of numbers that count from `first`, as the words."""
    return text.string_map({str(first + k): word for k, word in enumerate(words)})


def build_groups():
    """Three digits as words with a space before them, and the first digits of a number."""
    digit, teen = spelled(ONES, 1), spelled(TEENS, 10)
    tens = spelled(TENS, 2)
    space, hyphen = text.cross("", " "), text.cross("", "-")
    round_tens = ag.concat([tens, text.cross("0", "")])
    two = ag.union([teen, round_tens, ag.concat([tens, hyphen, digit])])
    below_hundred = ag.union([two, ag.concat([text.cross("0", ""), digit])])
    hundred = text.cross("", " hundred")
    hundreds = ag.union([
        ag.concat([digit, hundred, text.cross("00", "")]),
        ag.concat([digit, hundred, space, below_hundred]),
    ])  # fmt: skip
    padded = ag.union([hundreds, ag.concat([text.cross("0", ""), below_hundred])])
    return ag.concat([space, padded]), ag.union([hundreds, two, digit])


def build():
    """The transducer from digits to words."""
    group, first = build_groups()
    numbers = [text.cross("0", "zero"), text.cross("1" + 12 * "0", "one trillion")]
    rest = text.acceptor("")
    for scale in SCALES:
        name = text.cross("", scale)
        numbers.append(ag.concat([first, name, rest]))
        nothing = text.cross("000", "")
        rest = ag.concat([ag.union([nothing, ag.concat([group, name])]), rest])
    return ag.connect(ag.remove(ag.union(numbers)))


def main():
    """Spell some numbers, and read them again."""
    numbers = build()
    for number in (0, 7, 12, 40, 99, 100, 2026, 1_000_001, 987_654_321_012):
        words = text.apply(str(number), numbers)
        print(f"{number:>15,} {words}")
        assert text.apply(words, ag.invert(numbers)) == str(number)


if __name__ == "__main__":
    main()
