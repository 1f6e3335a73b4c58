"""Data sets, batches, and the order of examples."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from arcgrad.recipes.data import (
    BucketSampler,
    Dataset,
    Example,
    Key,
    Letters,
    Splits,
    WordPieces,
    collate,
    letters,
)

TOKENS = Letters(tuple("▁ab"))


class Noise(Dataset):
    """Inputs that are random numbers."""

    def _input(self, index, rng):
        return torch.from_numpy(rng.standard_normal((4, self.lengths[index])).astype(np.float32))


def noise(count=20, seed=0, **kwargs):
    lengths = [3 + (7 * i) % 11 for i in range(count)]
    texts = ["a" * (1 + i % 3) + " b" for i in range(count)]
    return Noise([f"id-{i}" for i in range(count)], texts, lengths, TOKENS, seed=seed, **kwargs)


def example(length, target, height=4):
    labels = torch.tensor(target, dtype=torch.int64)
    return Example(torch.full((height, length), 2.0), labels, str(target), f"{length}")


@given(st.lists(st.tuples(st.integers(1, 6), st.lists(st.integers(1, 9), max_size=4)), min_size=1))
def test_batches_hold_inputs_and_targets_with_exact_lengths(parts):
    batch = collate([example(length, target) for length, target in parts])
    assert len(batch) == len(parts)
    assert batch.inputs.shape == (len(parts), 4, max(length for length, _ in parts))
    assert batch.input_lengths.tolist() == [length for length, _ in parts]
    assert batch.target_lengths.tolist() == [len(target) for _, target in parts]
    for row, (length, target) in enumerate(parts):
        assert (batch.inputs[row, :, :length] == 2).all()
        assert (batch.inputs[row, :, length:] == 0).all()
        assert batch.targets[row, : len(target)].tolist() == target
        assert (batch.targets[row, len(target) :] == 0).all()


def test_a_batch_can_be_moved_to_a_device():
    batch = collate([example(3, [1])])
    moved = batch.to("meta")
    assert moved.inputs.device.type == "meta"
    assert moved.ids == batch.ids


def test_a_batch_needs_examples_of_one_height():
    with pytest.raises(ValueError, match="must have at least one example, but it has 0"):
        collate([])
    with pytest.raises(ValueError, match=r"must have the same height, but they have \[4, 5\]"):
        collate([example(3, [1]), example(3, [1], height=5)])


def test_an_example_depends_on_seed_epoch_and_index_only():
    first = noise()[Key(2, 5)]
    noise()[Key(2, 4)]
    again = noise()[Key(2, 5)]
    assert torch.equal(first.input, again.input)
    assert first.target.tolist() == TOKENS.encode(first.text)
    assert (first.id, first.length) == ("id-5", first.input.shape[1])
    others = [noise()[Key(3, 5)], noise(seed=1)[Key(2, 5)]]
    assert not any(torch.equal(first.input, other.input) for other in others)
    assert torch.equal(noise()[7].input, noise()[Key(0, 7)].input)


def test_an_index_out_of_range_ends_iteration():
    with pytest.raises(IndexError, match=r"must be in \[0, 20\), but it is 20"):
        noise()[20]
    with pytest.raises(IndexError, match="but it is -1"):
        noise()[-1]
    assert len(list(noise())) == 20


def test_unknown_letters_are_left_out_of_targets_except_in_training():
    texts = {"ids": ["x"], "texts": ["ac"], "lengths": [3], "tokenizer": TOKENS}
    assert Noise(**texts, split="test")[0].target.tolist() == TOKENS.encode("a")
    assert Noise(**texts, split="test")[0].text == "ac"
    with pytest.raises(ValueError, match="must spell the text, but 'ac' has 'c'"):
        Noise(**texts, split="train")[0]


def test_the_tokenizer_can_be_replaced():
    data = noise()
    pieces = WordPieces.train(data.texts, 6)
    splits = Splits(data, data, data).with_tokenizer(pieces)
    assert splits.train[0].target.tolist() == pieces.encode(data.texts[0])
    assert data.tokenizer is TOKENS


def test_a_data_set_must_be_consistent():
    with pytest.raises(ValueError, match="there are 1 ids, 2 texts and 1 lengths"):
        Noise(["x"], ["a", "b"], [1], TOKENS)
    with pytest.raises(ValueError, match="Noise: the seed must not be negative, but it is -1"):
        noise(seed=-1)


@pytest.mark.serial
def test_data_loader_workers_give_the_same_batches():
    data = letters.load("words", train=30, validation=5, test=5).train
    batches = []
    for workers in (0, 2):
        sampler = BucketSampler(data.lengths, 4, seed=3)
        loader = DataLoader(
            data,
            batch_sampler=sampler,
            collate_fn=collate,
            num_workers=workers,
            persistent_workers=workers > 0,
        )
        for epoch in range(2):
            sampler.set_epoch(epoch)
            batches.append(list(loader))
    for alone, by_workers in zip(batches[:2], batches[2:], strict=True):
        assert [batch.ids for batch in alone] == [batch.ids for batch in by_workers]
        for first, second in zip(alone, by_workers, strict=True):
            assert torch.equal(first.inputs, second.inputs)
    assert [batch.ids for batch in batches[0]] != [batch.ids for batch in batches[1]]


# The order of examples.
some_lengths = st.lists(st.integers(1, 1000), min_size=1, max_size=80)


def indices(sampler):
    return [[key.index for key in batch] for batch in sampler]


@given(some_lengths, st.integers(1, 9), st.booleans(), st.integers(0, 3))
def test_each_example_occurs_once_in_batches_of_nearly_equal_size(lengths, size, shuffle, epoch):
    sampler = BucketSampler(lengths, size, shuffle=shuffle, seed=1)
    sampler.set_epoch(epoch)
    batches = list(sampler)
    assert len(batches) == len(sampler) == -(-len(lengths) // size)
    assert sorted(key.index for batch in batches for key in batch) == list(range(len(lengths)))
    assert all(key.epoch == epoch for batch in batches for key in batch)
    sizes = {len(batch) for batch in batches}
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1


@given(some_lengths, st.integers(1, 4), st.integers(1, 3), st.booleans(), st.booleans())
def test_processes_split_the_batches_of_one(lengths, each, world, shuffle, drop_last):
    options = {"batch_size": each * world, "shuffle": shuffle, "drop_last": drop_last, "seed": 5}
    try:
        parts = [
            indices(BucketSampler(lengths, rank=rank, world_size=world, **options))
            for rank in range(world)
        ]
    except ValueError:
        assert len(lengths) < (world * each if drop_last else world)
        return
    assert len({len(part) for part in parts}) == 1
    used = [index for part in parts for batch in part for index in batch]
    assert len(used) == len(set(used))
    assert len(used) == len(parts[0]) * each * world if drop_last else len(lengths)
    whole = indices(BucketSampler(lengths, **options))
    if len(whole) != len(parts[0]):
        assert each == 1
        return
    for step, batch in enumerate(whole):
        shares = [part[step] for part in parts]
        assert sorted(index for share in shares for index in share) == sorted(batch)
        assert all(shares)
        assert max(map(len, shares)) <= max(each, 2)
        assert max(map(len, shares)) - min(map(len, shares)) <= (0 if drop_last else 1)


def test_batches_have_similar_lengths():
    lengths = np.random.default_rng(0).integers(10, 1000, 2000)
    batches = indices(BucketSampler(lengths, 20))
    padding = [1 - lengths[batch].mean() / lengths[batch].max() for batch in batches]
    assert np.mean(padding) < 0.1
    shuffled = np.random.default_rng(1).permutation(2000).reshape(-1, 20)
    assert np.mean([1 - lengths[b].mean() / lengths[b].max() for b in shuffled]) > 0.4


def test_without_shuffling_batches_come_from_long_to_short():
    lengths = [5, 90, 6, 80, 7]
    sampler = BucketSampler(lengths, 2, shuffle=False)
    assert indices(sampler) == [[1, 3], [4, 2], [0]]
    sampler.set_epoch(4)
    assert indices(sampler) == [[1, 3], [4, 2], [0]]


def test_the_order_derives_from_seed_and_epoch():
    lengths = list(range(1, 101))

    def order(seed, epoch):
        sampler = BucketSampler(lengths, 10, seed=seed)
        sampler.set_epoch(epoch)
        return indices(sampler)

    assert order(0, 1) == order(0, 1)
    assert order(0, 1) != order(0, 2)
    assert order(0, 1) != order(1, 1)
    # Both the order and the contents of batches change.
    assert {frozenset(b) for b in order(0, 1)} != {frozenset(b) for b in order(0, 2)}


def test_an_epoch_can_be_continued():
    sampler = BucketSampler(list(range(1, 50)), 5, seed=2)
    sampler.set_epoch(3)
    whole = indices(sampler)
    sampler.set_epoch(3, num_done=4)
    assert len(sampler) == len(whole) - 4
    assert indices(sampler) == whole[4:]
    sampler.set_epoch(3, num_done=len(whole))
    assert indices(sampler) == []


def test_examples_are_dropped_at_random():
    sampler = BucketSampler([1, 2, 3, 4, 500], 4, drop_last=True)
    dropped = Counter()
    for epoch in range(200):
        sampler.set_epoch(epoch)
        (batch,) = indices(sampler)
        dropped[(set(range(5)) - set(batch)).pop()] += 1
    assert min(dropped[index] for index in range(5)) > 20


@given(some_lengths, st.integers(1, 3), st.integers(0, 3))
def test_each_process_computes_the_whole_batches(lengths, world, done):
    samplers = [
        BucketSampler(lengths * 3, 2 * world, rank=rank, world_size=world) for rank in range(world)
    ]
    done = min(done, len(samplers[0]))
    for sampler in samplers:
        sampler.set_epoch(3, done)
    wholes = samplers[0].whole_batches()
    assert len(wholes) == len(samplers[0])
    for rank, sampler in enumerate(samplers):
        assert sampler.whole_batches() == wholes
        assert list(sampler) == [whole[rank::world] for whole in wholes]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lengths": [], "batch_size": 2}, "there are 0 examples for batches of 2"),
        ({"lengths": [1], "batch_size": 2, "drop_last": True}, "1 examples .* with drop_last"),
        ({"lengths": [1, 1], "batch_size": 3, "world_size": 3}, "2 examples .* and 3 processes"),
        ({"lengths": [1], "batch_size": 0}, "positive multiple of .* 1, but it is 0"),
        (
            {"lengths": [1], "batch_size": 3, "world_size": 2},
            "positive multiple of .* 2, but it is 3",
        ),
        (
            {"lengths": [1], "batch_size": 2, "rank": 2, "world_size": 2},
            r"in \[0, 2\), but it is 2",
        ),
        ({"lengths": [1], "batch_size": 2, "seed": -3}, "seed must not be negative, but it is -3"),
    ],
)
def test_invalid_sampler_arguments_are_errors(arguments, message):
    with pytest.raises(ValueError, match=f"BucketSampler: .*{message}"):
        BucketSampler(**arguments)


def test_invalid_epochs_are_errors():
    sampler = BucketSampler([1, 2, 3], 2)
    with pytest.raises(ValueError, match="at most 2 batches can be done, but they are -1 and 0"):
        sampler.set_epoch(-1)
    with pytest.raises(ValueError, match="but they are 0 and 3"):
        sampler.set_epoch(0, num_done=3)
