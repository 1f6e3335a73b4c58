"""Losses in other processes: workers that load data, and distributed training."""

import faulthandler
import socket
from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import arcgrad as ag
import arcgrad.torch as agt
from arcgrad.tokens import Tokens

pytestmark = pytest.mark.serial


class Scores(Dataset):
    """Items that are computed with graphs."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        x = torch.arange(12.0).reshape(4, 3) * (index + 1) / 10
        loss = agt.ctc_loss(x[:, None], torch.tensor([[1, 2]]), [4], [2], from_logits=True)
        return loss.item(), ag.get_num_threads()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_compute_losses(method):
    agt.ctc_loss(torch.zeros(4, 1, 3), torch.tensor([[1]]), [4], [1])  # the pool is in use
    here = [Scores()[i][0] for i in range(8)]
    loader = DataLoader(Scores(), batch_size=None, num_workers=2, multiprocessing_context=method)
    there = list(loader)
    assert [loss for loss, _ in there] == here
    assert {threads for _, threads in there} == {1}


class Model(torch.nn.Module):
    """A layer with its loss, whose transitions are learned with it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(5, 4)
        self.loss = agt.TransducerLoss(Tokens.ctc(4), transitions=2)

    def forward(self, x, targets, lengths):
        return self.loss(self.layer(x), targets, lengths)


def batch():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4, 6, 5, generator=generator)
    return x, torch.tensor([[1, 2], [3, 1], [2, 2], [1, 3]]), torch.tensor([6, 5, 6, 4])


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def train(rank, world_size, folder, port):
    faulthandler.dump_traceback_later(100, exit=True)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=60),
    )
    model = DistributedDataParallel(Model())
    part = slice(rank * 2, rank * 2 + 2)
    model(*(values[part] for values in batch())).backward()
    if rank == 0:
        grads = {name: p.grad for name, p in model.module.named_parameters()}
        torch.save(grads, f"{folder}/grads.pt")
    dist.barrier()
    # The group must not end with the model: that waits for gloo's threads under the lock of the
    # interpreter, for which they may wait.
    del model
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
def test_two_processes_give_the_gradients_of_one_with_the_joint_batch(tmp_path):
    mp.spawn(train, (2, str(tmp_path), free_port()), nprocs=2)
    found = torch.load(tmp_path / "grads.pt")
    model = Model()
    model(*batch()).backward()
    expected = {name: p.grad for name, p in model.named_parameters()}
    assert found.keys() == expected.keys() == {"layer.weight", "layer.bias", "loss.transitions"}
    for name, grad in expected.items():
        np.testing.assert_allclose(found[name], grad, atol=1e-6, err_msg=name)
