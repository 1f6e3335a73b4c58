"""The search against exhaustive enumeration of all paths."""

import decoder_reference as reference
import numpy as np
import pytest
from decoder_tasks import ALL, LABELS, LEXICON, model, scores

import arcgrad as ag
from arcgrad.decoding import CTCDecoder

MERGES = {"max": max, "sum": reference.logadd}


def numbers(lexicon):
    """Spellings as numbers of labels."""
    return {w: [[LABELS.index(c) for c in way] for way in ways] for w, ways in lexicon.items()}


def language(lm):
    return lambda words: lm.score(["<unk>" if isinstance(w, tuple) else w for w in words])


def texts(words):
    return tuple(
        "".join(LABELS[c] for c in word) if isinstance(word, tuple) else word for word in words
    )


def check(decoder, x, expected, **options):
    found = decoder.decode(x, nbest=10**6, **options)[0]
    assert all(result.is_complete for result in found)
    got = {}
    for result in found:
        words = tuple((word.text, word.is_known) for word in result.words)
        assert words not in got, "results differ in their words"
        got[words] = result.score
        assert result.text == " ".join(word.text for word in result.words)
    wanted = {
        tuple(zip(texts(words), (not isinstance(w, tuple) for w in words), strict=True)): score
        for words, score in expected
    }
    assert got.keys() == wanted.keys()
    assert [got[k] for k in got] == sorted(got.values(), reverse=True)
    for words, score in wanted.items():
        assert got[words] == pytest.approx(score, abs=1e-4), words


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("separator", ["|", ""])
def test_lexicon(merge, separator, seed):
    x = scores(seed)
    decoder = CTCDecoder(LABELS, lexicon=LEXICON, separator=separator, beta=0.3, merge=merge, **ALL)
    expected = reference.decode(
        x,
        numbers(LEXICON),
        separator=1 if separator else None,
        beta=0.3,
        merge=MERGES[merge],
    )
    check(decoder, x, expected)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("separator", ["|", ""])
@pytest.mark.parametrize(
    "form", ["model", "compact", "graph", "graph with node weights", "graph with failure arcs"]
)
def test_language_model(merge, separator, order, form):
    x = scores(order + 10)
    lm = model(order)
    given = {"model": lm, "compact": lm.compact()}.get(form)
    lexicon = LEXICON
    if given is None:
        # All histories as nodes, so that the graph is exact.
        lexicon = {word: LEXICON[word] for word in lm.symbols if word in LEXICON}
        given = exact_graph(lm, list(lexicon), ends="node" in form)
        if "failure" in form:
            number = {lm.symbols.index(word): i for i, word in enumerate(lexicon)}
            graph = lm.graph(backoff="failure", dtype="float64")
            known = {ag.epsilon, ag.phi, *number}
            other = [k for k, arc in enumerate(graph) if arc.ilabel not in known]
            given = ag.relabel(ag.delete_arcs(graph, other), number, number)
    decoder = CTCDecoder(
        LABELS, given, lexicon, separator=separator, alpha=0.7, beta=-0.2, merge=merge, **ALL
    )
    expected = reference.decode(
        x,
        numbers(lexicon),
        separator=1 if separator else None,
        language=language(lm),
        alpha=0.7,
        beta=-0.2,
        merge=MERGES[merge],
    )
    check(decoder, x, expected)


def exact_graph(lm, words, *, ends):
    """An acceptor with a node for each history of fewer words than the order.

    With `ends`, all nodes accept with a weight, in place of epsilon arcs to an accept node.
    """
    graph = ag.Graph(calc_grad=False, dtype="float64")
    length = lm.order - 1
    first = ("<s>",)[:length]
    nodes, queue = {first: graph.add_node(start=True)}, [first]
    end = graph.add_node(accept=True)
    for history in queue:
        known = [word for word in history if word != "<s>"]
        following = lm.next_scores(known, start="<s>" in history)
        for i, word in enumerate(words):
            longer = (*history, word)[-length:] if length else ()
            if longer not in nodes:
                nodes[longer] = graph.add_node()
                queue.append(longer)
            score = following[lm.symbols.index(word)]
            graph.add_arc(nodes[history], nodes[longer], i, i, score)
        if ends:
            graph.make_accept(nodes[history], following[-1])
        else:
            graph.add_arc(nodes[history], end, ag.epsilon, ag.epsilon, following[-1])
    return graph


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("merge", MERGES)
def test_open_vocabulary(merge, seed):
    x = scores(seed + 20)
    lm = model(2)
    options = {"alpha": 0.7, "beta": 0.4, "unknown_score": -1.5, "silence_score": -0.25}
    decoder = CTCDecoder(LABELS, lm, LEXICON, open_vocabulary=True, merge=merge, **options, **ALL)
    expected = reference.decode(
        x,
        numbers(LEXICON),
        separator=1,
        is_open=True,
        language=language(lm),
        merge=MERGES[merge],
        **options,
    )
    check(decoder, x, expected)


@pytest.mark.parametrize("merge", MERGES)
def test_without_lexicon_the_model_is_the_lexicon(merge):
    x = scores(31)
    lm = model(3, words=("a", "ab", "ba"))
    decoder = CTCDecoder(LABELS, lm, merge=merge, **ALL)
    expected = reference.decode(
        x,
        numbers({word: [word] for word in ("a", "ab", "ba")}),
        separator=1,
        is_open=True,
        language=language(lm),
        alpha=0.5,
        beta=1.0,
        unknown_score=-10.0,
        merge=MERGES[merge],
    )
    check(decoder, x, expected)


@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("order", [None, 1, 3])
def test_labels(merge, order):
    """Without a lexicon each label is a word."""
    x = scores(40, frames=5)
    lm = None if order is None else model(order, words=("a", "b", "|"))
    decoder = CTCDecoder(LABELS, lm, merge=merge, alpha=0.6, beta=0.3, **ALL)
    expected = reference.decode(
        x,
        {name: [[i]] for i, name in enumerate(LABELS) if i},
        language=language(lm) if lm else lambda words: 0.0,
        alpha=0.6,
        beta=0.3 if lm else 0.0,
        merge=MERGES[merge],
    )
    found = decoder.decode(x, nbest=10**6)[0]
    got = {tuple(LABELS[c] for c in result.labels): result.score for result in found}
    assert len(got) == len(found) == len(expected)
    for words, score in expected:
        assert got[words] == pytest.approx(score, abs=1e-4)
    best = found[0]
    assert best.text == " ".join("".join(expected[0][0]).replace("|", " ").split())


@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("kind", ["open", "closed", "no separator", "labels"])
def test_hotwords(merge, kind):
    x = scores(50)
    phrases = {"a": 0.8, "ab": 1.5, "ab a": 2.0, "ba ba": 1.2, "b": -0.7}
    separator = "" if kind == "no separator" else "|"
    lexicon = {**LEXICON, "b": ["b"]}
    options = {} if kind == "labels" else {"lexicon": lexicon}
    decoder = CTCDecoder(
        LABELS,
        separator=separator,
        hotwords=phrases,
        open_vocabulary=kind == "open",
        merge=merge,
        beta=0.0,
        unknown_score=-1.0,
        **options,
        **ALL,
    )
    spelled = numbers({word: [word] for word in ("a", "ab", "ba", "b")})
    boosts = [([spelled[w][0] for w in phrase.split()], b) for phrase, b in phrases.items()]
    if kind == "no separator":
        # A phrase begins and ends where words do: here its occurrences among the words.
        expected = without_separator(x, lexicon, phrases, MERGES[merge])
    else:
        words = (
            {n: [[i]] for i, n in enumerate(LABELS) if i} if kind == "labels" else numbers(lexicon)
        )
        expected = reference.decode(
            x,
            words,
            separator=1 if kind != "labels" else None,
            is_open=kind == "open",
            unknown_score=-1.0,
            merge=MERGES[merge],
            hotwords=boosts if kind != "labels" else (),
        )
    if kind != "labels":
        check(decoder, x, expected)
        return
    found = {tuple(r.labels): r for r in decoder.decode(x, nbest=10**6)[0]}
    for words, score in expected:
        tokens = tuple(LABELS.index(word) for word in words)
        boost = sum(b * reference.occurrences(tokens, phrase, 1) for phrase, b in boosts)
        assert found[tokens].score == pytest.approx(score + boost, abs=1e-4)
        assert found[tokens].hotword == pytest.approx(boost, abs=1e-5)


def without_separator(x, lexicon, phrases, merge):
    """The reference where a phrase is compared with words, by their spelling."""
    plain = reference.decode(x, numbers(lexicon), merge=merge)
    spelling = {"A": "a"}
    found = []
    for words, score in plain:
        spelled = [spelling.get(word, word) for word in words]
        boost = 0.0
        for phrase, b in phrases.items():
            wanted = phrase.split()
            size = len(wanted)
            boost += b * sum(spelled[k : k + size] == wanted for k in range(len(spelled)))
        found.append((words, score + boost))
    return found


RULES = {
    "ctc": ag.tokens.Tokens.ctc(4),
    "asg": ag.tokens.Tokens.asg(4),
    "spike": ag.tokens.Tokens.spike(4),
    "forced": ag.tokens.Tokens(4, blank="forced"),
}


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize("seed", range(5))
def test_other_tokens(kind, seed):
    """The best path by the rules of the tokens, against the built graph."""
    x = scores(seed + 60, frames=9)
    tokens = RULES[kind]
    labels = ["_", *LABELS[1:]]
    lexicon = {"ab": ["ab"], "b|": ["b|"], "aa": ["aa"]} | ({"_": ["_"]} if kind == "asg" else {})
    decoder = CTCDecoder(
        labels, lexicon=lexicon, separator="", blank=0, tokens=tokens, beta=0.0, **ALL
    )
    spelled = [[labels.index(c) for c in ways[0]] for ways in lexicon.values()]
    graph = ag.compose(tokens.graph(), ag.lexicon.word_lexicon_graph(spelled))
    best = ag.viterbi_path(ag.compose(ag.linear_graph(*x.shape, x), graph))
    found = decoder.decode(x)[0][0]
    assert found.score == pytest.approx(ag.viterbi_score(best).item(), abs=1e-4)
    if tokens.blank == "none":
        return  # repeated tokens and longer tokens have the same score
    words = [w for w in best.labels_to_list(ilabel=False) if w != ag.epsilon]
    assert [word.text for word in found.words] == [[*lexicon][w] for w in words]


@pytest.mark.parametrize("beam", [1.0, 2.5, 6.0])
def test_same_beam_as_the_built_graph(beam):
    """Labels with a bigram: the states of both searches are the same, so the beam is."""
    for seed in range(20):
        x = scores(seed + 70, frames=12)
        lm = ag.ngram.dense_graph(4, 2)
        table = np.random.default_rng(seed).normal(size=(5, 4))
        lm.set_weights(table.ravel())
        built = ag.compose(ag.tokens.Tokens.ctc(4).graph(), lm)
        lattice = ag.beam_search(built, ag.linear_graph(*x.shape, x), beam=beam)
        expected = ag.viterbi_score(lattice).item()
        decoder = CTCDecoder(LABELS, lm, alpha=1.0, beta=0.0, beam=beam, max_active=10**6)
        found = decoder.decode(x)[0]
        assert found[0].score == pytest.approx(expected, abs=1e-4)
