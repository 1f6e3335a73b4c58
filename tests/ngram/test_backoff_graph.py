"""Back-off n-gram graphs against a definition of their arcs, and against scores of models."""

import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from spec import table
from tools import build, snapshot, weights

import arcgrad as ag
from arcgrad import ngram
from arcgrad.ngram import END, START, Counts, backoff_graph, count, estimate

TEXTS = st.lists(st.lists(st.integers(0, 2), max_size=5), min_size=1, max_size=6)
ENDS = "end"


BACK_OFF_LABELS = {"failure": ag.phi, "epsilon": ag.epsilon, "none": None}


def definition(ngrams, order, *, start=True, end=True, backoff="failure"):
    """Arcs between histories, in the documented order: (history, history or "end", label)."""
    ngrams = sorted(ngrams, key=lambda gram: (len(gram), gram))
    histories = {(), *(gram[:-1] for gram in ngrams)}
    histories |= {gram for gram in ngrams if len(gram) < order and gram[-1] != END}
    if start and order > 1:
        histories.add((START,))
    nodes = sorted(histories, key=lambda history: (len(history), history))
    arcs = []
    for gram in ngrams:
        if gram[-1] == END:
            arcs.append((gram[:-1], ENDS, ag.epsilon))
        else:
            arcs.append((gram[:-1], gram[max(0, len(gram) - order + 1) :], gram[-1]))
    if backoff != "none":
        for history in nodes[1:]:
            suffixes = [history[k:] for k in range(1, len(history) + 1)]
            suffix = next(s for s in suffixes if s in histories)
            arcs.append((history, suffix, BACK_OFF_LABELS[backoff]))
    number = {history: k for k, history in enumerate(nodes)}
    number[ENDS] = len(nodes)
    arcs = [(number[src], number[dst], label, label, 0.0) for src, dst, label in arcs]
    first = number[START,] if start and order > 1 else 0
    accept = {len(nodes)} if end else set(range(len(nodes)))
    return build(len(nodes) + end, {first}, accept, arcs, dtype="float32")


def with_blanks(ngrams, order, blank, mode):
    """Every n-gram with blanks in it, by putting them into sequences one pattern at a time."""
    found = {(blank,)} | {gram for gram in ngrams if mode == "optional" or len(gram) == 1}
    for gram in ngrams:
        patterns = itertools.product([0, 1], repeat=len(gram) + 1)
        for pattern in patterns if mode == "optional" else [[1] * (len(gram) + 1)]:
            sequence = []
            for token, is_used in zip(gram, pattern, strict=False):
                sequence += [blank] * (is_used and token != START) + [token]
            sequence += [blank] * (pattern[-1] and gram[-1] != END)
            for n in range(1, order + 1):
                for k in range(len(sequence) - n + 1):
                    part = tuple(sequence[k : k + n])
                    found |= {part} if blank in part else set()
    return found


def with_self_loops(ngrams, order):
    found = set(ngrams)
    for length in range(1, order):
        for gram in [gram for gram in found if len(gram) == length]:
            for k, token in enumerate(gram):
                if token >= 0:
                    found.add((*gram[: k + 1], *gram[k:]))
    return found


@given(
    TEXTS,
    st.integers(1, 4),
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
    st.sampled_from(list(BACK_OFF_LABELS)),
)
def test_nodes_are_histories_and_arcs_are_ngrams(sequences, order, limit, start, end, backoff):
    counts = count(sequences, order, start=start, end=end)
    counts = counts.prune([0] + [limit] * (order - 1))
    graph = backoff_graph(counts, backoff=backoff)
    expected = definition(dict(counts.items()), order, start=start, end=end, backoff=backoff)
    assert snapshot(graph) == snapshot(expected)


@pytest.mark.parametrize("mode", ["optional", "forced"])
@given(TEXTS, st.integers(1, 3), st.integers(0, 2), st.booleans())
def test_ngrams_have_arcs_with_every_pattern_of_blanks(mode, sequences, order, limit, self_loops):
    counts = count(sequences, order, num_tokens=3).prune([0] + [limit] * (order - 1))
    found = with_blanks(dict(counts.items()), order, 3, mode)
    if self_loops:
        found = with_self_loops(found, order)
    graph = backoff_graph(counts, blank=mode, self_loops=self_loops)
    assert snapshot(graph) == snapshot(definition(found, order))


def test_blanks_of_a_bigram_by_hand():
    counts = count([[0, 1]], 2)
    blank = 7
    optional = backoff_graph(counts, blank="optional", blank_label=blank)
    pairs = {(START, 0), (0, 1), (1, END)}
    pairs |= {(START, 7), (7, 0), (0, 7), (7, 1), (1, 7), (7, END)}
    # Four unigrams, and a back-off for <s>, both tokens and the blank.
    assert optional.num_arcs() == 4 + len(pairs) + 4
    forced = backoff_graph(counts, blank="forced", blank_label=blank)
    assert forced.num_arcs() == 4 + len(pairs) - 3 + 4
    looped = backoff_graph(counts, blank="optional", blank_label=blank, self_loops=True)
    assert looped.num_arcs() == optional.num_arcs() + 3


def test_figure_4b():
    a, b, c = 0, 1, 2
    found = {(a,), (b,), (c,), (a, b), (b, a), (b, b), (a, b, a)}
    counts = Counts(dict.fromkeys(found, 1), start=False, end=False)
    graph = backoff_graph(counts)
    nodes = [(), (a,), (b,), (c,), (a, b), (b, a), (b, b)]
    arcs = {(nodes[arc.src], nodes[arc.dst], arc.ilabel) for arc in table(graph).arcs}
    # The figure leaves out the other arcs.
    assert arcs >= {
        ((a, b), (b, a), a),
        ((a, b), (b,), ag.phi),
        ((b,), (b, b), b),
        ((b,), (b, a), a),
        ((b,), (), ag.phi),
        ((), (c,), c),
        ((), (b,), b),
    }
    assert graph.num_arcs() == len(found) + len(nodes) - 1


def test_histories_back_off_to_the_longest_known_suffix():
    found = {(0,): 1, (1,): 1, (0, 1): 1, (START, 0): 1, (1, 0): 1, (0, 1, 0): 1, (END,): 1}
    graph = backoff_graph(Counts(found))
    assert snapshot(graph) == snapshot(definition(found, 3))


def test_the_start_has_a_node_after_all_its_ngrams_are_pruned():
    counts = count([[0], [1]], 2).prune([0, 1])
    assert counts.sizes == (3, 0)
    graph = backoff_graph(counts)
    scores = [ag.viterbi_score(graph @ ag.chain_graph(s)).item() for s in ([], [0], [0, 1])]
    assert scores == [0.0, 0.0, 0.0]


def test_an_ngram_needs_the_one_without_its_first_token():
    counts = Counts({(0,): 3, (END,): 1, (0, 1): 2}, symbols=["a", "b"])
    message = r"without its first token must be .* there is \(a, b\) and no \(b\)"
    with pytest.raises(ValueError, match=f"backoff_graph: .* {message}"):
        backoff_graph(counts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blank": "some"}, "blank must be one of none, optional, forced, but it is 'some'"),
        ({"backoff": "phi"}, "backoff must be one of failure, epsilon, none, but it is 'phi'"),
        ({"symbols": ["a"]}, "belong to a dict of weights, but the source is of type Counts"),
        ({"back_offs": {}}, "belong to a dict of weights, but the source is of type Counts"),
        ({"blank": "forced", "blank_label": 1}, r"not be a token, but label 1 is in \(1\)"),
        ({"blank": "forced", "blank_label": -1}, "must be 0 or more, but it is -1"),
    ],
)
def test_rejects_invalid_blanks(options, message):
    with pytest.raises(ValueError, match=message):
        backoff_graph(count([[0, 1]], 2), **options)


def test_rejects_a_graph_without_an_end():
    with pytest.raises(ValueError, match="an n-gram must end in </s>, but none does; prune less"):
        backoff_graph(count([[0, 0, 0]], 2).prune([1, 1]))


@pytest.mark.parametrize("options", [{"blank": "optional"}, {"self_loops": True}])
def test_a_model_has_no_scores_for_blanks(options):
    model = estimate(count([[0, 1]], 2))
    with pytest.raises(ValueError, match="blanks and self-loops need counts, but scores are given"):
        backoff_graph(model, **options)
    with pytest.raises(ValueError, match="blanks and self-loops need counts, but scores are given"):
        backoff_graph({(0,): -1.0}, **options)


def test_options_of_weights():
    counts = count([[0, 1]], 2)
    graph = backoff_graph(counts)
    assert graph.calc_grad
    assert graph.dtype == np.float32
    graph = backoff_graph(counts, calc_grad=False, dtype="float64")
    assert not graph.calc_grad
    assert graph.dtype == np.float64
    assert not estimate(counts).graph().calc_grad


def test_its_products_are_not_materialized():
    counts = count([[0, 1, 2, 1], [2, 2]], 3, num_tokens=3)
    for options in ({}, {"backoff": "epsilon"}, {"blank": "optional", "self_loops": True}):
        graph = backoff_graph(counts, **options)
        product = ag.intersect(graph, ag.linear_graph(6, 4))
        assert ag.explain(product).kernel in ("csr", "lanes", "dense")


def test_direct_and_backed_off_paths_add_up_in_the_log_semiring():
    counts = Counts({(0,): 1, (0, 0): 1, (START, 0): 1}, end=False)
    graph = backoff_graph(counts, backoff="epsilon", dtype="float64")
    product = ag.intersect(graph, ag.chain_graph([0]))
    # Read 0 after <s>, and by backing off; then back off once more or not.
    assert ag.forward_score(product).item() == pytest.approx(math.log(4))
    assert ag.viterbi_score(product).item() == 0.0


# Graphs of models


def best(model, sequence):
    """The best of all ways to read a sequence with back-off, by trying them."""
    rows = [
        {tuple(row): k for k, row in enumerate(model.ngrams(n + 1).tolist())}
        for n in range(model.order)
    ]

    def score(gram):
        return model.log_probs(len(gram))[rows[len(gram) - 1][gram]]

    def after(history, rest):
        options = [0.0] if not rest else []
        if rest and (*history, rest[0]) in rows[len(history)]:
            gram = (*history, rest[0])
            if rest[0] == END:
                options.append(score(gram))
            else:
                options.append(
                    score(gram) + after(gram[max(0, len(gram) - model.order + 1) :], rest[1:])
                )
        if history:
            weight = model.back_offs(len(history))[rows[len(history) - 1][history]]
            options.append(weight + after(history[1:], rest))
        return max(options, default=-math.inf)

    history = (START,) if model.has_start and model.order > 1 else ()
    return after(history, (*sequence, END) if model.has_end else tuple(sequence))


@given(
    TEXTS,
    st.integers(1, 3),
    st.sampled_from(["kneser_ney", "katz", "mle"]),
    st.booleans(),
    st.lists(st.integers(0, 2), max_size=4),
)
def test_the_best_path_is_the_best_way_to_back_off(sequences, order, method, end, sequence):
    counts = count([*sequences, [0]], order, num_tokens=3, end=end)
    model = estimate(counts, method)
    graph = model.graph(backoff="epsilon", dtype="float64")
    product = ag.intersect(graph, ag.chain_graph(sequence, dtype="float64"))
    found = ag.viterbi_score(product).item()
    assert found == pytest.approx(best(model, sequence), abs=1e-9)
    assert found >= model.score(sequence) - 1e-9
    assert ag.forward_score(product).item() >= found - 1e-9


def test_the_best_path_is_the_score_of_the_model_if_direct_is_better():
    rng = np.random.default_rng(0)
    sequences = [rng.integers(0, 4, rng.integers(1, 9)).tolist() for _ in range(60)]
    model = estimate(count(sequences, 3), "kneser_ney")
    graph = model.graph(backoff="epsilon", dtype="float64")
    equal = 0
    for sequence in sequences:
        product = ag.intersect(graph, ag.chain_graph(sequence, dtype="float64"))
        equal += abs(ag.viterbi_score(product).item() - model.score(sequence)) < 1e-9
    assert equal > len(sequences) / 2


def test_weights_of_a_model_are_its_scores_in_the_order_of_the_arcs():
    model = estimate(count([[0, 1, 0], [1]], 2), "katz")
    graph = model.graph(dtype="float64")
    is_read = model.ngrams(1)[:, 0] != START
    scores = [model.log_probs(1)[is_read], model.log_probs(2)]
    # Node 0 has no back-off, </s> is no history.
    is_history = model.ngrams(1)[:, 0] != END
    expected = np.concatenate([*scores, model.back_offs(1)[is_history]])
    assert weights(graph) == pytest.approx(expected)


METHODS = st.sampled_from(["kneser_ney", "katz", "mle"])


@given(TEXTS, st.integers(1, 3), METHODS, st.booleans(), st.booleans())
def test_the_graph_of_a_model_is_the_model(sequences, order, method, start, end):
    counts = count([*sequences, [0]], order, num_tokens=3, start=start, end=end)
    model = estimate(counts, method)
    graph = model.graph(dtype="float64")
    for sequence in itertools.chain.from_iterable(
        itertools.product(range(3), repeat=n) for n in range(4)
    ):
        target = ag.chain_graph(sequence, dtype="float64")
        expected = pytest.approx(model.score(sequence), abs=1e-9)
        assert ag.forward_score(ag.intersect(graph, target)).item() == expected
        assert ag.viterbi_score(ag.intersect(graph, target)).item() == expected
        # Emissions that allow only this sequence.
        frames = np.full((len(sequence), 3), -np.inf)
        frames[np.arange(len(sequence)), list(sequence)] = 0
        product = ag.intersect(graph, ag.linear_graph(*frames.shape, frames, dtype="float64"))
        assert ag.forward_score(product).item() == expected


@given(TEXTS, st.integers(1, 3), st.sampled_from(["kneser_ney", "katz"]))
def test_the_mass_of_a_model_is_one(sequences, order, method):
    model = estimate(count([*sequences, [0]], order, num_tokens=3), method)
    graph = model.graph(dtype="float64")
    # Of all sequences that end after n tokens, for n up to 60: the rest is what goes on.
    total, left, end = 0.0, 1.0, math.exp(least_end(model))
    for n in range(61):
        emissions = ag.linear_graph(n, 3, dtype="float64")
        total += math.exp(ag.forward_score(ag.intersect(graph, emissions)).item())
        left *= 1 - end
    assert total <= 1 + 1e-9
    assert total >= 1 - left - 1e-9


def least_end(model):
    """The smallest score of </s> after any history."""
    histories = itertools.chain.from_iterable(
        itertools.product(range(3), repeat=n) for n in range(model.order)
    )
    return min(model.next_scores(h, start=start)[-1] for h in histories for start in (False, True))


def test_the_graph_of_an_arpa_file_is_the_model(tmp_path):
    path = tmp_path / "katz.arpa"
    path.write_text(
        "\\data\\\nngram 1=4\nngram 2=3\n\n\\1-grams:\n-99 <s> -0.3\n-0.5 a -0.4\n-0.6 b -0.2\n"
        "-0.7 </s>\n\n\\2-grams:\n-0.9 <s> a\n-1.5 a b\n-0.3 b </s>\n\n\\end\\\n"
    )
    model = ngram.load_arpa(path)
    graph = model.graph(dtype="float64")
    for text in ([0, 1], [1, 0], [0], [], [1, 1, 0, 1]):
        product = ag.intersect(graph, ag.chain_graph(text))
        assert ag.forward_score(product).item() == pytest.approx(model.score(text), abs=1e-9)
    overcounted = ag.intersect(model.graph(backoff="epsilon"), ag.chain_graph([0, 1]))
    assert ag.forward_score(overcounted).item() > model.score([0, 1]) + 0.1


def test_gradients_count_ngrams_and_back_offs():
    weights = {("a",): -1.0, ("b",): -2.0, ("a", "b"): -0.5, ("</s>",): -3.0, ("b", "</s>"): -1.0}
    back_offs = {("a",): -0.25}
    # Arcs: </s>, a, b; ab, b</s>; the back-offs of a and b.
    cases = {(0, 1): (-2.5, [0, 1, 0, 1, 1, 0, 0]), (0, 0): (-5.5, [1, 2, 0, 0, 0, 2, 0])}
    for text, (score, counts) in cases.items():
        target = ag.chain_graph(text, dtype="float64")
        frames = np.where(np.arange(2) == np.array(text)[:, None], 0.0, -np.inf)
        for other in (target, ag.linear_graph(2, 2, frames, dtype="float64")):
            graph = backoff_graph(weights, back_offs=back_offs, symbols="ab", dtype="float64")
            found = ag.forward_score(ag.intersect(graph, other))
            assert found.item() == score
            ag.backward(found)
            assert graph.grad().weights_to_list() == pytest.approx(counts)


def test_weights_of_named_ngrams():
    named = {("b",): 2.0, ("a",): 1.0, ("<s>", "b"): 4.0, ("</s>",): 3.0}
    graph = backoff_graph(named, back_offs={("<s>",): 5.0, ("b",): 6.0}, symbols=["a", "b"])
    assert weights(graph).tolist() == [3, 1, 2, 4, 5, 0, 6]
    numbers = {(1,): 2.0, (0,): 1.0, (START, 1): 4.0, (END,): 3.0}
    same = backoff_graph(numbers, back_offs={(START,): 5.0, (1,): 6.0})
    assert snapshot(same) == snapshot(graph)
    counts = Counts(dict.fromkeys(numbers, 1))
    assert ag.equal(ag.scale(graph, 0), ag.scale(backoff_graph(counts), 0))


@pytest.mark.parametrize(
    ("ngrams", "options", "message"),
    [
        ({("a",): 1.0}, {}, "a name must be one of the symbols, but there is 'a'"),
        ({("a",): 1.0}, {"symbols": ["b"]}, "a name must be one of the symbols, but there is 'a'"),
        (
            {("a",): 1.0, (0,): 2.0},
            {"symbols": ["a"]},
            "must be given once, but one is given twice",
        ),
        ({(0,): 1.0}, {"back_offs": {(0,): 1.0}}, r"back_offs must be of histories.*\(0\) is not"),
        ({(0,): 1.0, (0, 1): 1.0}, {}, r"must be an n-gram too.*there is \(0, 1\) and no \(1\)"),
        ({(): 1.0}, {}, "an n-gram must have 1 to 1 tokens"),
    ],
)
def test_rejects_invalid_weights(ngrams, options, message):
    with pytest.raises(ValueError, match=message):
        backoff_graph(ngrams, **options)


def test_ngram_is_a_module_of_the_package():
    assert ag.ngram is ngram
