"""A small text normalizer: dates, money, ordinals and numbers as words."""

from english_numbers import build

import arcgrad as ag
from arcgrad import text

MONTHS = "january february march april may june july august september october november december"
ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth",
    "nine": "ninth", "twelve": "twelfth", "y": "ieth",
}  # fmt: skip


def delete(*strings):
    """Reads one of the strings and writes nothing."""
    return text.string_map(dict.fromkeys(strings, ""))


def insert(string):
    """Writes a string."""
    return text.cross("", string)


def digits(low, high):
    """All numbers of this many digits."""
    one = text.string_map({str(k): str(k) for k in range(10)})
    return ag.union([ag.power(one, count) for count in range(low, high + 1)])


def build_ordinals(numbers):
    """Numbers as ordinals: the end of the last word changes."""
    letters = text.sigma_star("bytes", "abcdefghijklmnopqrstuvwxyz -")
    changed = ag.concat([letters, text.string_map(ORDINALS)])
    regular = ag.difference(letters, ag.project_input(changed))
    return ag.compose(numbers, ag.union([changed, ag.concat([regular, insert("th")])]))


def build_rules():
    """The rules in the order in which they are applied."""
    numbers = build()
    ordinals = build_ordinals(numbers)
    names = MONTHS.split()
    month = text.string_map({f"{k}/": f"{name} " for k, name in enumerate(names, 1)})
    day = ag.compose(digits(1, 2), ordinals)
    date = ag.concat([month, day, text.cross("/", " "), ag.compose(digits(4, 4), numbers)])

    many = ag.difference(digits(1, 12), text.acceptor("1"))
    dollars = ag.union([
        text.cross("1", "one dollar"),
        ag.concat([ag.compose(many, numbers), insert(" dollars")]),
    ])  # fmt: skip
    cents = ag.concat([ag.optional(delete("0")), ag.compose(digits(1, 2), numbers)])
    cents = ag.compose(digits(2, 2), cents)
    some = ag.concat([text.cross(".", " and "), cents, insert(" cents")])
    money = ag.concat([delete("$"), dollars, ag.union([delete(".00", ""), some])])

    ordinal = ag.concat([ordinals, delete("st", "nd", "rd", "th")])
    begin = ag.union([ag.chain_graph([text.BEGIN]), text.string_map([" ", "("])])
    gap = ag.union([ag.chain_graph([text.END]), text.acceptor(" ")])
    end = ag.concat([ag.optional(text.string_map(list(".,;:!?)"))), gap])
    return [text.rewrite(rule, begin, end) for rule in (date, money, ordinal, numbers)]


def main():
    """Normalize some sentences."""
    rules = build_rules()
    for sentence in (
        "On 7/4/1976 the 2nd train cost $1.50.",
        "Pay $999 (12 x $83.25, or $1,000 later) by 11/19/2026!",
    ):
        print(sentence, "->", text.apply(sentence, rules))


if __name__ == "__main__":
    main()
