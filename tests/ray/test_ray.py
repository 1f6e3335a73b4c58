"""A corpus on a cluster of two nodes, one of which is killed: `make test-ray`."""

import json
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from arcgrad.recipes.inference.corpus import CorpusTask, read_items, run_corpus

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("default")

LABELS = ["<blank>", "|", "a", "b"]
# Reads an array slowly, so that a node can be killed in the middle, and notes each item it begins.
ADAPTER = """
import os, time, uuid
import numpy as np
from pathlib import Path
from arcgrad.recipes.inference import FileEmissions

class Slow:
    labels = {labels}
    blank = 0
    def __call__(self, path):
        (Path({journal!r}) / f"{{path.stem}}.{{uuid.uuid4().hex}}").write_text(
            os.environ["RAY_NODE_ID"] if "RAY_NODE_ID" in os.environ else ""
        )
        time.sleep(0.2)
        return FileEmissions(np.load(path), 0.02)

model = Slow()
"""


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "items").mkdir()
    (tmp_path / "journal").mkdir()
    lines = []
    for i in range(48):
        frames = torch.eye(4)[[0, 2, 0, 3, 0]].mul(8).log_softmax(-1).numpy()
        np.save(tmp_path / f"items/{i}.npy", frames)
        lines.append(json.dumps({"id": f"item-{i}", "path": f"items/{i}.npy", "text": "ab"}))
    np.save(tmp_path / "items/bad.npy", np.zeros((1, 4), np.float32))
    lines.append(json.dumps({"id": "bad", "path": "items/bad.npy", "text": "ab"}))
    (tmp_path / "list.jsonl").write_text("\n".join(lines))
    code = ADAPTER.format(labels=LABELS, journal=str(tmp_path / "journal"))
    (tmp_path / "slow.py").write_text(code)
    return tmp_path


def test_a_killed_node_loses_nothing(corpus):
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        second = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False)
        cluster.wait_for_nodes()
        nodes = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        assert len(nodes) == 2
        task = CorpusTask("align", f"{corpus / 'slow.py'}:model")
        items = read_items("align", corpus / "list.jsonl", True)
        killed = []

        def show(done, total):
            if done >= 8 and not killed:
                killed.append(second.node_id)
                cluster.remove_node(second, allow_graceful=False)

        failures = run_corpus(
            task,
            items,
            corpus / "out",
            engine="ray",
            shard_size=4,
            address=cluster.address,
            show=show,
        )
        assert killed
        assert [failure.name for failure in failures] == ["bad"]
        assert "the words must fit into the frames" in failures[0].error
        found = sorted(path.name for path in (corpus / "out").iterdir())
        assert found == sorted([*(f"item-{i}.json" for i in range(48)), "failures.jsonl"])
        for i in range(48):
            content = json.loads((corpus / f"out/item-{i}.json").read_text())
            assert [segment["label"] for segment in content["segments"]] == ["ab"]
        begun = Counter(path.name.split(".")[0] for path in (corpus / "journal").iterdir())
        assert set(begun) == {*map(str, range(48)), "bad"}
        # Only what the killed node was doing is done again.
        again = sum(begun.values()) - len(begun)
        assert again <= 8
        deadline = time.monotonic() + 30
        while len([n for n in ray.nodes() if n["Alive"]]) > 1 and time.monotonic() < deadline:
            time.sleep(0.5)
        assert {n["NodeID"] for n in ray.nodes() if n["Alive"]} == nodes - set(killed)
        # A second run has nothing to do but the failure.
        before = {path.name: path.stat().st_mtime_ns for path in (corpus / "out").glob("item-*")}
        run_corpus(task, items, corpus / "out", engine="ray", address=cluster.address)
        after = {path.name: path.stat().st_mtime_ns for path in (corpus / "out").glob("item-*")}
        assert after == before
        assert not list(Path(corpus / "out").rglob("*.tmp"))
    finally:
        ray.shutdown()
        cluster.shutdown()
