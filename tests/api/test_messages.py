"""Every public function has a signature, and refuses junk with an error in one form."""

import importlib
import inspect
import re

import numpy as np
import pytest

import arcgrad as ag
import arcgrad.gtn as gtn

torch = pytest.importorskip("torch")
agt = pytest.importorskip("arcgrad.torch")

MODULES = ["", ".criterion", ".gtn", ".lexicon", ".ngram", ".text", ".tokens", ".torch"]

# `<op>: <rule>, but <what was given>`, with the element where there is a list.
FORM = re.compile(r"^[\w.]+( \([\w ,]+\))?: .+, (but|or) .+", re.DOTALL)

IS_DUMP = "incompatible function arguments"

JUNK = [
    None,
    "b",
    b"x",
    "\ud800",
    3.5,
    -1,
    -7.5,
    2**70,
    1j,
    object(),
    {},
    {"a": object()},
    [object()],
    [[object()]],
    [[]],
    [None],
    (1, "x"),
    range(3),
    np.array("x"),
    np.array([[["x"]]]),
    np.array([True, False]),
    np.datetime64("2020-01-01"),
    lambda *_: 0,
    int,
    ag,
]


def graph():
    return ag.linear_graph(2, 3)


def counts():
    return ag.ngram.count(["abab", "ba"], 2)


# What makes a valid call, by the name of the parameter; some names mean different things.
VALID = {
    "a": graph,
    "accept": lambda: [1],
    "arc": lambda: 0,
    "b": graph,
    "blank_idx": lambda: 0,
    "counts": counts,
    "dst": lambda: [1],
    "emissions": graph,
    "encoder": lambda: ag.Encoder(),
    "fsa": lambda: ag.to_k2(graph()),
    "fst": lambda: ag.to_openfst(graph()),
    "factor": lambda: 2.0,
    "file_name": lambda: "graph.txt",
    "first": graph,
    "frames": lambda: 2,
    "function": lambda: lambda item: item,
    "g": graph,
    "g1": graph,
    "g2": graph,
    "graph": graph,
    "graphemes": lambda: [1],
    "graphs": graph,
    "ilabel": lambda: 0,
    "in_channels": lambda: 3,
    "input_lengths": lambda: [2],
    "inputs": graph,
    "iterable": lambda: [1],
    "M": lambda: 2,
    "N": lambda: 3,
    "ints": lambda: [1],
    "kernel_size": lambda: 2,
    "lazy": lambda: True,
    "left": lambda: ag.chain_graph([0]),
    "pairs": lambda: {"a": "b"},
    "right": lambda: ag.chain_graph([0]),
    "rules": lambda: ag.text.acceptor("a"),
    "tau": lambda: ag.text.acceptor("a"),
    "text": lambda: "a",
    "fn": lambda: np.square,
    "input": graph,
    "num_arcs": lambda: 4,
    "num_nodes": lambda: 3,
    "result": graph,
    "root": graph,
    "nodes": lambda: [0],
    "arcs": lambda: [0],
    "costs": lambda: [1.0] * 6,
    "kernels": lambda: [[1]],
    "label": lambda: 1,
    "labels": lambda: [1],
    "lexicon": lambda: ag.lexicon.Lexicon(["a", "b"]),
    "log_probs": graph,
    "max_blanks": lambda: 3,
    "min_blanks": lambda: 1,
    "model": lambda: ag.ngram.estimate(counts()),
    "n": lambda: 1,
    "ngrams": lambda: {(0,): 1},
    "node": lambda: 0,
    "num_bytes": ag.get_history_limit,
    "num_labels": lambda: 3,
    "num_threads": ag.get_num_threads,
    "num_tokens": lambda: 3,
    "order": lambda: 2,
    "outputs": lambda: ag.forward_score(graph()),
    "path": lambda: "file",
    "pieces": lambda: ["a", "b"],
    "pronunciations": lambda: {"no": [0]},
    "second": graph,
    "sequences": lambda: ["ab"],
    "source": counts,
    "src": lambda: [0],
    "start": lambda: [0],
    "target": lambda: [1],
    "target_lengths": lambda: [1],
    "targets": lambda: [[1]],
    "token_graphs": lambda: [ag.tokens.token_graph(1)],
    "threshold": lambda: 1.0,
    "tokens": lambda: ag.tokens.Tokens(3),
    "vectors": lambda: [1.0] * 6,
    "weight": lambda: 0.0,
    "weights": lambda: [0.0] * 6,
}
SPECIAL = {
    ("align_words", "labels", "torch"): lambda: ["<blank>", "a", "b"],
    ("align_words", "log_probs", "torch"): lambda: torch.zeros(2, 3),
    ("align_words", "words", "torch"): lambda: "a",
    ("chain_graph", "labels"): lambda: [1],
    ("best", "graph", "text"): lambda: ag.text.acceptor("a"),
    ("best_strings", "graph", "text"): lambda: ag.text.acceptor("a"),
    ("linear_graph", "labels"): lambda: 3,
    ("linear_graphs", "weights"): lambda: np.zeros((1, 2, 3)),
    ("beam_search", "emissions", "torch"): lambda: torch.zeros(1, 2, 3),
    ("collapse", "frames"): lambda: [1, 1],
    ("concat", "graphs"): lambda: [graph()],
    ("decompositions", "label"): lambda: "ab",
    ("emissions", "x"): lambda: torch.zeros(1, 2, 3),
    ("forced_align", "emissions", "torch"): lambda: torch.zeros(1, 2, 3),
    ("graph", "weights", "torch"): lambda: torch.zeros(6),
    ("ctc_loss", "log_probs", "torch"): lambda: torch.zeros(2, 1, 3),
    ("outputs", "graphs"): graph,
    ("replace", "graphs"): lambda: {7: graph()},
    ("union", "graphs"): lambda: [graph()],
    ("viterbi", "emissions", "torch"): lambda: torch.zeros(1, 2, 3),
}
# Errors of what the caller passes here, or of torch, pass through.
CALLBACKS = {
    "device",
    "derivative",
    "fn",
    "function",
    "iterable",
    "progress",
    "second_derivative",
    "tokenize",
}  # their own errors pass through
NO_CALL = {"LabelSequence", "TokenSpan", "Arc", "Explanation", "GraphInfo", "Model", "no_grad"}
NO_CALL |= {"CPU", "Device", "DeviceType"}  # values of arcgrad.gtn


def public():
    """Each public function, constructor and method of a graph, with a name."""
    for name in MODULES:
        module = importlib.import_module(f"arcgrad{name}")
        names = getattr(module, "__all__", ["ctc_loss"])
        for key in names:
            value = getattr(module, key)
            if callable(value):
                yield f"{module.__name__}.{key}", value
    for owner in (ag.Graph, ag.tokens.Tokens):
        for key, value in vars(owner).items():
            if callable(value) and not key.startswith("_"):
                yield f"{owner.__name__}.{key}", value


FUNCTIONS = dict(public())


def valid(name, parameter):
    short = name.rpartition(".")[2]
    place = name.split(".")[1] if name.count(".") > 1 else ""
    for key in ((short, parameter, place), (short, parameter)):
        if key in SPECIAL:
            return SPECIAL[key]()
    return VALID[parameter]()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_public_function_has_a_signature(name):
    parameters = inspect.signature(FUNCTIONS[name]).parameters.values()
    assert all(parameter.kind is not parameter.VAR_POSITIONAL for parameter in parameters)


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS)))
def test_junk_is_refused_by_name(name, tmp_path, monkeypatch):
    short = name.rpartition(".")[2]
    if short in NO_CALL:
        return
    monkeypatch.chdir(tmp_path)
    function = FUNCTIONS[name]
    is_method = name.startswith(("Graph.", "Tokens.")) and short not in STATIC
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self" and parameter.kind is not parameter.VAR_KEYWORD
    ]
    wrong = []
    for tried in parameters:
        if tried.name in CALLBACKS:
            continue
        for junk in JUNK:
            arguments = {
                p.name: junk if p is tried else valid(name, p.name)
                for p in parameters
                if p is tried or p.default is p.empty
            }
            first = []
            if is_method:
                first = [graph() if name.startswith("Graph.") else ag.tokens.Tokens(3)]
            message = refusal(function, first, arguments)
            # arcgrad.gtn has errors of its own, in the words of gtn.
            if message and (IS_DUMP in message or not name.startswith("arcgrad.gtn")):
                wrong.append(f"{tried.name}={junk!r}: {message[:200]}")
    assert not wrong, "\n".join(wrong[:40])


STATIC = {"from_arrays", "asg", "ctc", "spike", "limited", "spaced"}


def refusal(function, first, arguments):
    """The message of an error that is not in our form; None if there is no error, or a good one."""
    threads, limit = ag.get_num_threads(), ag.get_history_limit()
    try:
        function(*first, **arguments)
    except (TypeError, ValueError) as error:
        message = str(error)
        if IS_DUMP in message or not FORM.match(message):
            return f"{type(error).__name__}: {message}"
    except (OSError, RuntimeError) as error:
        # Files that do not exist, and graphs without gradients.
        return None if ": " in str(error) else f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        ag.set_num_threads(threads)
        ag.set_history_limit(limit)
    return None


def losses_and_layers():
    x = torch.zeros(1, 4, 4)
    call = {"targets": [[1]], "lengths": [4], "target_lengths": [1]}
    yield agt.CTCLoss(), {"emissions": x.transpose(0, 1), **call}
    for loss in (agt.TransducerLoss(4), agt.STCLoss(), agt.ASGLoss(4)):
        yield loss, {"emissions": x, **call}
    yield agt.ConvTransducer1d(4, [[1]], 2), {"x": x, "lengths": [4]}


def methods():
    lexicon, model = ag.lexicon.Lexicon(["a", "b", "ab"]), ag.ngram.estimate(counts())
    ends = {"start": True, "end": True}
    weighted = {"label": "ab", "weights": [0.0, 0.0, 0.0]}
    yield lexicon.spell, {"text": "a"}
    yield lexicon.graphemes_to_text, {"graphemes": [0]}
    yield lexicon.pieces_to_text, {"labels": [0]}
    yield lexicon.names, {"labels": [0]}
    yield lexicon.count, {"label": "ab"}
    yield lexicon.best, weighted
    yield lexicon.sample, {**weighted, "number": 1, "seed": 1}
    yield model.log_probs, {"order": 1}
    yield model.next_scores, {"history": ["a"], "start": True}
    yield model.score, {"sequence": ["a"], **ends}
    yield model.perplexity, {"sequences": ["a"], **ends}
    yield model.graph, {"calc_grad": True, "dtype": "float32"}
    yield counts().values, {"order": 1}
    yield counts().most_common, {"order": 1, "number": 1}
    yield counts().prune, {"thresholds": [0, 0]}
    yield counts().save, {"path": "counts.txt"}


@pytest.mark.parametrize("calls", [losses_and_layers, methods])
def test_junk_in_calls_of_objects_is_refused(calls, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = [
        f"{call!r} {name}={junk!r}: {message}"
        for call, good in calls()
        for name in good
        for junk in JUNK
        if (message := refusal(call, [], {**good, name: junk}))
    ]
    assert not wrong, "\n".join(wrong[:40])


@pytest.mark.parametrize("base", [ag.Graph, gtn.Graph])
def test_errors_of_a_subclass_name_the_argument(base):
    class Own(base):
        pass

    with pytest.raises(TypeError, match=r"add_arc: src(_node)? must be"):
        Own().add_arc("x", 0, 0)
