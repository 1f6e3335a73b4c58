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
    return text.string_map(dict.fromkeys(strings, ""))


def digits(low, high):
    one = text.string_map({str(k): str(k) for k in range(10)})
    return ag.union([ag.power(one, count) for count in range(low, high + 1)])


def build_ordinals(numbers):
    """Numbers as ordinals: the end of the last word changes."""
    letters = text.sigma_star("bytes", "abcdefghijklmnopqrstuvwxyz -")
    changed = ag.concat([letters, text.string_map(ORDINALS)])
    regular = ag.difference(letters, ag.project_input(changed))
    return ag.compose(numbers, ag.union([changed, ag.concat([regular, text.cross("", "th")])]))


def build_rules():
    numbers = build()
    ordinals = build_ordinals(numbers)
    month = text.string_map({f"{k}/": f"{name} " for k, name in enumerate(MONTHS.split(), 1)})
    day = ag.compose(digits(1, 2), ordinals)
    date = ag.concat([month, day, text.cross("/", " "), ag.compose(digits(4, 4), numbers)])
    many = ag.difference(digits(1, 12), text.acceptor("1"))
    dollars = ag.concat([ag.compose(many, numbers), text.cross("", " dollars")])
    dollars = ag.union([text.cross("1", "one dollar"), dollars])
    cents = ag.concat([ag.optional(delete("0")), ag.compose(digits(1, 2), numbers)])
    cents = ag.compose(digits(2, 2), cents)
    some = ag.concat([text.cross(".", " and "), cents, text.cross("", " cents")])
    money = ag.concat([delete("$"), dollars, ag.union([delete(".00", ""), some])])
    ordinal = ag.concat([ordinals, delete("st", "nd", "rd", "th")])
    begin = ag.union([ag.chain_graph([text.BEGIN]), text.string_map([" ", "("])])
    gap = ag.union([ag.chain_graph([text.END]), text.acceptor(" ")])
    end = ag.concat([ag.optional(text.string_map(list(".,;:!?)"))), gap])
    return [text.rewrite(rule, begin, end) for rule in (date, money, ordinal, numbers)]


def main():
    rules = build_rules()
    for sentence in ("On 7/4/1976 the 2nd train cost $1.50.", "Pay $83.25 by 11/19/2026!"):
        print(sentence, "->", text.apply(sentence, rules))


if __name__ == "__main__":
    main()
