"""The mission's shapes on one machine: the placement, the memory and the losses of large TP x DP jobs.

The short form is part of every test run. `make shapes` (TUNDISH_SHAPES=full) runs the whole thing: 32 rank
processes as TP 4 x DP 8 within 8 GiB, and real ViT-L/16@224 as TP 4 x DP 2 within 20 GiB against TP 1.
"""

import json
import os
import pathlib
import threading
import time

import pytest

import cluster as cluster_module
from cluster import check_stream
from conftest import make_images

FULL = os.environ.get("TUNDISH_SHAPES") == "full"
TOPOLOGY = pathlib.Path(__file__).parents[2] / "deploy/topologies/trn1.32xlarge-cpu.json"
GIB = 1 << 30


@pytest.fixture
def trn1(tmp_path):
    """A host whose 32 CPU devices are linked like a trn1.32xlarge's cores."""
    running = cluster_module.Cluster(tmp_path, devices=32)
    running.agent.argv += ["--topology", TOPOLOGY]
    running.start()
    try:
        yield running
        running.stop()
    except BaseException:
        for log in sorted(tmp_path.glob("*.log")) + sorted(tmp_path.glob("agent/workers/*/*log*"))[:4]:
            print(f"--- {log}\n{log.read_text(errors='replace')[-4000:]}")
        running.agent.process and running.agent.process.kill()
        running.coordinator.process and running.coordinator.process.kill()
        for pid in running.rank_pids():
            os.kill(pid, 9)
        raise


class MemoryMeter:
    """Peak of what a cluster's ranks hold together (proportional set size), and each rank's own peak."""

    def __init__(self, cluster):
        self.cluster, self.total_peak, self.peaks = cluster, 0, {}
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.done.set()
        self.thread.join()

    @property
    def rank_peak(self):
        return max(self.peaks.values())

    @property
    def median_peak(self):
        return sorted(self.peaks.values())[len(self.peaks) // 2]

    def watch(self):
        while not self.done.wait(0.2):
            total = 0
            for pid in self.cluster.rank_pids():
                try:
                    rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
                    status = pathlib.Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue  # ended meanwhile
                total += 1024 * sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
                peak = [int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")]
                self.peaks[pid] = max([self.peaks.get(pid, 0), *peak])
            self.total_peak = max(self.total_peak, total)


def wait_for_placement(cluster, job):
    """The ranks' places, as described while they start: no rank is left to describe at the end."""
    with cluster.watching(job) as updates:
        for update in updates:
            if update.get("event", {}).get("state") == "STARTING":
                return cluster.describe(job)["ranks"]
    raise AssertionError(f"job {job} never started: {cluster.describe(job)}")


def check_traces(cluster, described, ranks):
    """Every rank's profile is named by `describe` and holds phases, operators and collectives."""
    traces = [a for a in described["artifacts"] if a["kind"] == "trace"]
    assert len(traces) == ranks, described["artifacts"]
    for trace in traces:
        events = json.loads((cluster.artifact_root / trace["path"]).read_text())["traceEvents"]
        kinds = {event.get("cat") for event in events}
        assert {"steps", "operators", "collectives", "gradient buckets"} <= kinds, (trace, kinds)


def run(cluster, folder, name, model, tensor, data, steps, global_batch, learning_rate=1e-4, trace=None):
    job = {"name": name, "data": {"folder": str(folder), "cache_bytes": 1 << 20}, "model": model,
           "parallel": {"tensor": tensor, "data": data},
           "training": {"steps": steps, "global_batch": global_batch, "micro_batch": 1, "seed": 3,
                        "optimizer": {"learning_rate": learning_rate}},
           "evaluation": {"every_epochs": 0}, "checkpoints": {"every_steps": 100000}}
    if trace:
        job["trace"] = {"steps": trace}
    path = cluster.folder / f"{name}.json"
    path.write_text(json.dumps(job))
    began = time.monotonic()
    with MemoryMeter(cluster) as meter:
        job_id = cluster.submit(path)
        placed = wait_for_placement(cluster, job_id)
        described, updates = cluster.wait_for_end(job_id)
    assert described["state"] == "SUCCEEDED", described
    check_stream(updates)
    check_traces(cluster, described, tensor * data if trace else 0)
    points = [u["metric"] for u in updates if "metric" in u]
    print(f"{name}: TP {tensor} x DP {data}, {steps} steps, {time.monotonic() - began:.0f} s in all, "
          f"{max(p['step_seconds'] for p in points):.1f} s the slowest step, "
          f"{meter.total_peak / GIB:.2f} GiB all ranks together, {meter.median_peak / GIB:.2f} GiB the median "
          f"rank, {meter.rank_peak / GIB:.2f} GiB the largest")
    return placed, [p["loss"] for p in points], meter


def check_groups(ranks):
    """A TP group lies inside one torus row, and its pairs on one chip each."""
    rows = {}
    for rank in ranks:
        rows.setdefault(rank.get("dp", 0), []).append(int(rank["devices"][0].split(":")[1]))
    taken = [device for devices in rows.values() for device in devices]
    assert len(set(taken)) == len(taken), rows
    for devices in rows.values():
        assert len({device // 8 for device in devices}) == 1, rows
        assert len({device // 2 for device in devices}) * 2 == len(devices), rows


TINY = {"image_size": 16, "patch_size": 8, "hidden": 32, "depth": 2, "heads": 4, "channels": 1}


def test_tp4_groups_lie_where_links_are_short(trn1, tmp_path):
    make_images(tmp_path / "images")
    data = 8 if FULL else 2
    ranks, losses, meter = run(trn1, tmp_path / "images", "tiny", TINY, 4, data, 5, 32, trace=[1, 2])
    assert len(ranks) == 4 * data
    check_groups(ranks)
    _, whole, _ = run(trn1, tmp_path / "images", "tiny-whole", TINY, 1, 1, 5, 32)
    assert losses == pytest.approx(whole, rel=2e-5)
    assert meter.total_peak < 8 * GIB


def test_memory_of_a_rank_falls_with_tp(trn1, tmp_path):
    make_images(tmp_path / "images")
    # 25 million parameters: 400 MB of weights, gradients and moments on one rank.
    model = {"image_size": 16, "patch_size": 8, "hidden": 512, "depth": 8, "heads": 8, "channels": 1}
    _, whole_losses, whole = run(trn1, tmp_path / "images", "wide-tp1", model, 1, 1, 2, 2)
    _, cut_losses, cut = run(trn1, tmp_path / "images", "wide-tp4", model, 4, 1, 2, 2)
    assert cut_losses == pytest.approx(whole_losses, rel=1e-4)
    # Three quarters of the 400 MB are elsewhere; rank (0, 0) puts the whole model together at the end.
    assert cut.median_peak < whole.median_peak - 0.2 * GIB


@pytest.mark.skipif(not FULL, reason="minutes of two cores; `make shapes` runs it")
def test_real_vit_large(trn1, tmp_path):
    make_images(tmp_path / "images", per_class=16, size=224)
    model = {"preset": "vit_large_patch16"}
    ranks, losses, meter = run(trn1, tmp_path / "images", "vit-large", model, 4, 2, 3, 4, 3e-6)
    check_groups(ranks)
    assert meter.total_peak < 20 * GIB
    _, whole, whole_meter = run(trn1, tmp_path / "images", "vit-large-whole", model, 1, 1, 3, 4, 3e-6)
    print(f"losses TP 4 x DP 2 {losses}, TP 1 {whole}")
    assert losses == pytest.approx(whole, rel=1e-4)
    assert meter.median_peak < 0.5 * whole_meter.median_peak
