"""The files of a run: exact, checked bit by bit, and without code."""

import json
import pickle
import random

import pytest
import safetensors.torch
import torch
from fuzz_readers import RUN, TINY, run_folder
from runs import BIGRAM, override

from arcgrad.recipes.checked_files import (
    EMPTY,
    IN_HEADER,
    digest,
    from_tensors,
    to_json,
    to_tensors,
)
from arcgrad.recipes.experiments import find
from arcgrad.recipes.run import Run, load_environment, load_history, load_run
from arcgrad.recipes.training import train

CHECKPOINT = "best.safetensors"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a run that has every file."""
    path = tmp_path_factory.mktemp("run")
    run_folder(path)
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained")
    train(override(BIGRAM, ["optim.epochs=1"]), path, quiet=True)
    return path


def read(path, content):
    """Read a file as part of a run."""
    run = Run(path.parent)
    readers = {
        "experiment.json": lambda: run.settings("read"),
        "environment.json": lambda: load_environment(path.parent),
        "metrics.jsonl": lambda: load_history(path.parent),
        CHECKPOINT: lambda: run.load("read", CHECKPOINT),
    }
    return readers.get(path.name, lambda: run.check_digests("read", content))()


@pytest.mark.parametrize(
    "name",
    [
        *("experiment.json", "environment.json", "metrics.jsonl", CHECKPOINT),
        *("tokens", "transitions", "inner_pieces.json"),
    ],
)
def test_every_flipped_bit_is_an_error_that_names_the_file(folder, name):
    path = folder / name
    content = Run(folder).load("read", CHECKPOINT)
    whole = bytearray(path.read_bytes())
    read(path, content)
    bits = range(8 * len(whole))
    if len(bits) > 2000:
        # The beginning has the header of a checkpoint.
        bits = [*range(400), *random.Random(0).sample(bits, 600)]
    try:
        for bit in bits:
            whole[bit // 8] ^= 1 << bit % 8
            path.write_bytes(whole)
            with pytest.raises(ValueError, match=rf"^[\w.]+: .*{path}"):
                read(path, content)
            whole[bit // 8] ^= 1 << bit % 8
    finally:
        path.write_bytes(whole)
    read(path, content)


def test_a_run_with_every_file_is_loaded(folder):
    experiment, recognizer = load_run(folder)
    assert experiment == RUN
    saved = Run(folder).load("read", CHECKPOINT)
    for name in ("network", "criterion"):
        for key, value in getattr(recognizer, name).state_dict().items():
            same = torch.equal(value, saved[name][key]) if torch.is_tensor(value) else True
            assert same, key


def test_a_file_that_is_missing_is_named(folder, tmp_path):
    for name in ("tokens", "transitions", "inner_pieces.json"):
        (folder / name).rename(tmp_path / name)
        with pytest.raises(ValueError, match=f"^load_run: .* but '{folder / name}' is missing"):
            load_run(folder)
        (tmp_path / name).rename(folder / name)


ODD = {
    "half": torch.tensor([1.5, -0.0, float("nan"), float("inf")], dtype=torch.bfloat16),
    "double": torch.tensor(1 / 3, dtype=torch.float64),
    "numbers": torch.tensor([[-(2**63), 2**63 - 1]]),
    "flags": torch.tensor([True, False]),
    "bytes": torch.arange(256, dtype=torch.uint8),
    "nothing": torch.zeros(0, 3),
    "columns": torch.arange(6.0).reshape(2, 3).T,
}


def test_tensors_are_read_back_bit_by_bit(tmp_path):
    shared = torch.ones(3)
    plain = {"a": [1, -0.0, 1e-310, 2**70, None, True, "é\n"], "b": {"c.d": {}}, "e": float("inf")}
    content = {"tensors": ODD, "twice": [shared, shared[1:]], "leaf": torch.nn.Parameter(shared)}
    found = from_tensors("read", tmp_path / "a", to_tensors({**content, **plain}))
    assert {name: found[name] for name in plain} == plain
    assert [tensor.tolist() for tensor in found["twice"]] == [[1, 1, 1], [1, 1]]
    assert found["leaf"].tolist() == [1, 1, 1]
    for name, tensor in ODD.items():
        other = found["tensors"][name]
        assert (other.dtype, other.shape) == (tensor.dtype, tensor.shape)
        raw = [torch.atleast_1d(x).contiguous().view(torch.uint8) for x in (tensor, other)]
        assert torch.equal(*raw)


def test_a_checkpoint_is_a_file_of_safetensors(folder):
    tensors = safetensors.torch.load_file(folder / CHECKPOINT)
    saved = Run(folder).load("read", CHECKPOINT)
    name, weights = next(iter(saved["network"].items()))
    assert torch.equal(tensors[f"network/{name}"], weights)


def test_keys_of_a_checkpoint_must_be_texts():
    with pytest.raises(TypeError, match=r"^to_tensors: keys must be texts, but one is 0$"):
        to_tensors({"state": {0: torch.ones(1)}})


class Payload:
    """Executes code when it is unpickled."""

    executed = False

    def __reduce__(self):
        return setattr, (Payload, "executed", True)


def test_nothing_in_a_run_is_unpickled(folder, tmp_path):
    for content in (pickle.dumps(Payload()), b"\x80\x02", b"PK\x03\x04"):
        (tmp_path / CHECKPOINT).write_bytes(content)
        with pytest.raises(ValueError, match=f"'{tmp_path / CHECKPOINT}' must be a checkpoint of"):
            Run(tmp_path).load("read", CHECKPOINT)
    torch.save({"network": Payload()}, tmp_path / "best.pt")
    (tmp_path / CHECKPOINT).unlink()
    for name in ("experiment.json", "tokens"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(ValueError, match=rf"^load_run: .* '{tmp_path}/best.pt' is a pickle"):
        load_run(tmp_path)
    assert not Payload.executed


def test_a_run_of_an_earlier_version_is_neither_resumed_nor_overwritten(tmp_path):
    torch.save({}, tmp_path / "last.pt")
    for resume in (True, False):
        with pytest.raises(ValueError, match=r"^train: .*last.pt' is a pickle .* train the run ag"):
            train(BIGRAM, tmp_path, resume=resume, quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == ["last.pt"]


def changed(content, change):
    """A checkpoint with another content and the right checksum."""
    size = int.from_bytes(content[:8], "little")
    fields = json.loads(content[8 : 8 + size])
    header = json.loads(fields["__metadata__"]["arcgrad"])
    change(header["content"])
    header["sha256"] = EMPTY
    fields["__metadata__"]["arcgrad"] = json.dumps(header)
    text = json.dumps(fields).encode()
    text += b" " * (-len(text) % 8)
    content = len(text).to_bytes(8, "little") + text + content[8 + size :]
    begin, end = IN_HEADER.search(content).span(1)
    return content[:begin] + digest(content).encode() + content[end:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("network"), "KeyError"),
        (lambda c: c.pop("files"), "KeyError"),
        (lambda c: c.update(height=10**9), "RuntimeError"),
        (lambda c: c.update(height=0), "the height of inputs is 0"),
        (lambda c: c.update(height="16"), "the height of inputs is '16'"),
        (lambda c: c.update(network=3), "TypeError"),
        (lambda c: c["files"].update(tokens="0"), "tokens' is another one"),
        (lambda c: c["network"].popitem(), "RuntimeError"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_an_error(folder, tmp_path, change, message):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    path = tmp_path / CHECKPOINT
    path.write_bytes(changed(path.read_bytes(), change))
    with pytest.raises(ValueError, match=rf"(?s)^\w+: .*{tmp_path}.*{message}"):
        load_run(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.pop("optimizer"),
        lambda c: c["optimizer"].update(param_groups=[]),
        lambda c: c["optimizer"].update(state={"a": {}}),
        lambda c: c["optimizer"].pop("state"),
        lambda c: c.update(position=[]),
        lambda c: c["position"].update(metrics=3),
        lambda c: c.update(rng=[{}]),
        lambda c: c["rng"][0].update(host=3),
        lambda c: c["criterion"].clear(),
        lambda c: c.pop("experiment"),
        lambda c: c.pop("files"),
    ],
)
def test_a_run_is_not_resumed_from_a_checkpoint_that_does_not_fit(trained, change):
    path = trained / "last.safetensors"
    whole = path.read_bytes()
    path.write_bytes(changed(whole, change))
    before = {file: file.read_bytes() for file in trained.iterdir()}
    try:
        with pytest.raises(ValueError, match=rf"^train: .*'{path}' does not: "):
            train(override(BIGRAM, ["optim.epochs=3"]), trained, resume=True, quiet=True)
        assert {file: file.read_bytes() for file in trained.iterdir()} == before
    finally:
        path.write_bytes(whole)


def test_settings_may_be_edited_without_their_checksum(folder, tmp_path):
    path = tmp_path / "experiment.json"
    settings = json.loads((folder / "experiment.json").read_bytes())
    settings["seed"] = 5
    path.write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=rf"'{path}' must be .*; remove the entry sha256"):
        Run(tmp_path).settings("read")
    del settings["sha256"]
    path.write_text(json.dumps(settings))
    assert Run(tmp_path).settings("read").seed == 5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 100_000, "must be JSON, but it is not"),
        (b"[]", r"must be a JSON object, but it is \[\]"),
        (b"\xff", "must be JSON"),
        (b'{"earlier": []}\n', "its checksum does not fit its content$"),
        (to_json({"earlier": 3}), "must have a list of earlier environments"),
        (to_json({"earlier": [3]}), "must have a list of earlier environments"),
    ],
)
def test_an_environment_that_is_not_one_is_an_error(tmp_path, content, message):
    path = tmp_path / "environment.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"^load_environment: '{path}' .*{message}"):
        load_environment(tmp_path)


def test_metrics_must_be_numbers(tmp_path):
    path = tmp_path / "metrics.jsonl"
    row = to_json({"epoch": 1}, indent=None)
    path.write_bytes(row + to_json({"epoch": [2]}, indent=None))
    with pytest.raises(ValueError, match=rf"'epoch' on line 2 of '{path}' is \[2\]"):
        load_history(tmp_path)


def test_a_run_is_resumed_only_with_the_texts_of_its_start(tmp_path):
    settings = [*TINY, "optim.epochs=1", "tokens.kind=pieces", "tokens.num_pieces=30"]
    experiment = override(find("demo"), settings)
    train(experiment, tmp_path, quiet=True)
    more = override(experiment, ["optim.epochs=2"])
    content = Run(tmp_path).load("read", "last.safetensors")
    tokens = (tmp_path / "tokens").read_bytes()
    # As if the texts of the corpus had changed.
    (tmp_path / "tokens").write_bytes(tokens + b"\n")
    with pytest.raises(ValueError, match=r"^train: .*tokens' is another one"):
        train(more, tmp_path, resume=True, quiet=True)
    content["files"] = Run(tmp_path).digests()
    Run(tmp_path).save("last.safetensors", content)
    with pytest.raises(ValueError, match=r"^train: a run must be resumed with the data th"):
        train(more, tmp_path, resume=True, quiet=True)
    assert (tmp_path / "tokens").read_bytes() == tokens + b"\n"
