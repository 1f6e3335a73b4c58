"""Shards as tasks of Ray, on one machine or a cluster with a shared folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["run_on_ray"]

# How often Ray repeats a task whose node or process ended, and how often it is submitted again.
RETRIES, SUBMISSIONS = 3, 3
# Tasks that wait or run at the same time, per processor of the cluster.
TASKS_PER_PROCESSOR = 4

Shard = Sequence[Any]


def run_on_ray(
    op: str,
    work: Callable[[Shard], list[Any]],
    shards: Sequence[Shard],
    address: str | None,
    finished: Callable[[int], None],
) -> tuple[list[Any], list[tuple[Shard, str]]]:
    """Call ``work`` with each shard.

    Returns:
        The results of all calls, and the shards whose tasks all died, with the reason.
    """
    try:
        import ray
    except ImportError:
        raise ValueError(
            f"{op}: --engine ray needs Ray, but it is not installed; pip install 'arcgrad[ray]'"
        ) from None
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False)
    remote = ray.remote(num_cpus=1, max_retries=RETRIES)(lambda shard: work(shard))
    limit = max(1, int(ray.cluster_resources().get("CPU", 1))) * TASKS_PER_PROCESSOR
    waiting = [(shard, 1) for shard in reversed(shards)]
    running: dict[ray.ObjectRef, tuple[Shard, int]] = {}
    results: list[Any] = []
    lost: list[tuple[Shard, str]] = []
    while waiting or running:
        while waiting and len(running) < limit:
            shard, count = waiting.pop()
            running[remote.remote(shard)] = shard, count
        ready, _ = ray.wait(list(running), timeout=1.0)
        for reference in ready:
            shard, count = running.pop(reference)
            try:
                results += ray.get(reference)
            except ray.exceptions.RayError as error:
                if count < SUBMISSIONS:
                    waiting.append((shard, count + 1))
                    continue
                lost.append((shard, " ".join(str(error).split())))
            finished(len(shard))
    return results, lost
