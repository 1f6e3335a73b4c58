"""The networks of the recipes, and the same networks by torch's layers in torch's usual layout.

Times are for a forward and a backward pass of a batch in training.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from arcgrad.recipes.models import PlainConv2d, TDS2d

from .harness import Report, Row, Settings, Task, faster_by, interleave


def masked(x: Tensor, lengths: Tensor) -> Tensor:
    inside = torch.arange(x.shape[-1]) < lengths[:, None]
    return torch.where(inside.view(len(x), *[1] * (x.dim() - 2), -1), x, 0.0)


def normal(norm: nn.Module, x: Tensor, lengths: Tensor) -> Tensor:
    """Instance normalization over valid frames, by operations with derivatives of their own."""
    x, dims = masked(x, lengths), tuple(range(2, x.dim()))
    count = (lengths * x[0, 0, ..., 0].numel()).view(-1, *[1] * (x.dim() - 1))
    centered = masked(x - x.sum(dims, keepdim=True) / count, lengths)
    variance = centered.square().sum(dims, keepdim=True) / count
    shape = (1, -1, *[1] * len(dims))
    weight, bias = norm.weight.view(shape), norm.bias.view(shape)  # type: ignore[operator,union-attr]
    return masked(centered * (variance + 1e-5).rsqrt() * weight + bias, lengths)


def usual_plain(network: PlainConv2d, x: Tensor, lengths: Tensor) -> Tensor:
    x = x[:, None]
    for i, (conv, pool) in enumerate(zip(network.image, network.pools, strict=True)):
        x = pool(conv(masked(x, lengths))).relu()
        lengths = lengths // 2 if i == 0 else lengths
    x = masked(x.flatten(1, 2), lengths)
    for conv, norm in zip(network.columns, network.norms, strict=True):
        x = masked(network.dropout(normal(norm, conv(x), lengths).relu()), lengths)
    return network.output(x).transpose(1, 2)


def usual_tds(network: TDS2d, x: Tensor, lengths: Tensor) -> Tensor:
    groups = network.groups
    dropout = nn.functional.dropout
    x, p = masked(x[:, None], lengths), groups.dropout.p
    for conv, norm, blocks, stride in zip(
        groups.convs, groups.norms, groups.blocks, groups.strides, strict=True
    ):
        lengths = (lengths - 1) // stride[1] + 1
        x = normal(norm, dropout(conv(x).relu(), p, network.training), lengths)
        for block in blocks:  # type: ignore[attr-defined]
            mixed = block.conv(x.reshape(-1, block.channels, *x.shape[2:])).relu().view(x.shape)
            x = normal(block.norms[0], x + dropout(mixed, p, network.training), lengths)
            first, _, _, second, _ = block.mix
            mixed = dropout(first(x).relu(), p, network.training)
            mixed = dropout(second(mixed), p, network.training)
            x = normal(block.norms[1], x + mixed, lengths)
    return network.output(x.flatten(1, 2).transpose(1, 2))


def training_step(network: nn.Module, forward: Callable[[], Tensor]) -> Task:
    return Task(lambda _: forward().sum().backward(), lambda: network.zero_grad())


def run(settings: Settings) -> Report:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    width = settings.size(320, 40)
    cases = {
        "demo, 16 px, batch 16": (PlainConv2d(16, 28, dropout=0.0), 16, 16, width),
        "TDS2d small, 16 px, batch 16": (
            TDS2d.preset("small", 16, 28, subsampling=4),
            *(16, 16, width),
        ),
        "TDS2d paper, 16 px, batch 16": (
            TDS2d.preset("paper", 16, 28, subsampling=4),
            *(16, 16, width),
        ),
        "TDS2d paper, 64 px, batch 8": (
            TDS2d.preset("paper", 64, 80, subsampling=4),
            *(8, 64, 5 * width // 2),
        ),
    }
    rows = []
    try:
        for name, (network, batch, height, columns) in cases.items():
            x = torch.randn(batch, height, columns)
            lengths = torch.linspace(0.8 * columns, columns, batch).long()
            usual = usual_plain if isinstance(network, PlainConv2d) else usual_tds
            network.eval()
            with torch.no_grad():
                found, sizes = network(x, lengths)
                expected = usual(network, x, lengths)  # type: ignore[operator]
            difference = max(
                (one[:size] - other[:size]).abs().max().item()
                for one, other, size in zip(found, expected, sizes, strict=True)
            )
            assert difference < 1e-3, f"{name}: results differ by {difference}"
            network.train()
            tasks = {
                "ours": training_step(network, lambda n=network, x=x, s=lengths: n(x, s)[0]),
                "usual": training_step(
                    network, lambda n=network, x=x, s=lengths, f=usual: f(n, x, s)
                ),
            }
            times = interleave(name, tasks, settings)
            rows.append(Row(name, times["ours"], "torch's layers", times["usual"], faster_by(1.5)))
    finally:
        torch.set_num_threads(threads)
    return Report(rows, notes=["dropout 0.1 in TDS2d, none in the demo"])
