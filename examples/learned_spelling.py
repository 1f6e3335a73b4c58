"""Rule weights learned by gradient: which sound a letter has before another letter."""

import functools
import itertools

import arcgrad as ag
from arcgrad import text

WORDS = {
    "cat": "kat", "cell": "sell", "cinema": "sinema", "cold": "kold", "cup": "kup",
    "cent": "sent", "music": "musik", "rice": "rise", "scan": "skan", "cocoa": "kokoa",
}  # fmt: skip
SOUNDS, NEXT = "ks", ["a", "e", "i", "o", "u", ""]


def build_options():
    """A leaf for each sound of `c` before each letter; the last is for anything else."""
    pairs = itertools.product(NEXT, SOUNDS)
    return {(after, sound): text.cross("c", sound, calc_grad=True) for after, sound in pairs}


def build_rule(options):
    """One rule per next letter, applied one after another; the general one comes last."""
    choices = {after: ag.union([options[after, sound] for sound in SOUNDS]) for after in NEXT}
    rules = [text.rewrite(choice, right=after) for after, choice in choices.items()]
    return functools.reduce(ag.compose, rules)


def log_likelihood(rule):
    total = ag.scalar_graph(0.0)
    for spelling, sounds in WORDS.items():
        every = ag.compose(text.acceptor(spelling), rule)
        right = ag.compose(every, text.acceptor(sounds))
        total = ag.add(total, ag.subtract(ag.forward_score(right), ag.forward_score(every)))
    return total


def learn(steps=25, rate=1.0):
    options = build_options()
    for _ in range(steps):
        score = log_likelihood(build_rule(options))
        ag.backward(score)
        for option in options.values():
            option.set_weights(option.weights_to_numpy() + rate * option.grad().weights_to_numpy())
            option.zero_grad()
    return options


def main():
    rule = build_rule(options := learn())
    print(f"log-likelihood {log_likelihood(rule).item():.2f}")
    for (after, sound), option in options.items():
        print(f"c before {after or 'others'}: {sound} {option.weight(0):+.2f}")
    for word in ("face", "cube", "citric"):
        print(word, text.apply(word, rule))


if __name__ == "__main__":
    main()
