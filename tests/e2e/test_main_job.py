"""The main job at small size: submit, watch, describe, export, over the command line and over gRPC."""

import hashlib
import json
import subprocess

import safetensors.numpy

from cluster import BIN, check_stream, job_pb2, job_service_pb2


def test_trains_streams_and_exports(cluster, job_file, tmp_path):
    result = cluster.cli("submit", job_file(), "--follow")
    for word in ("recall", "confusion", "model.safetensors"):
        assert word in result.stdout.lower(), result.stdout

    job = cluster.json("list")["jobs"][0]["job_id"]
    described, updates = cluster.wait_for_end(job)
    assert described["state"] == "SUCCEEDED"
    assert described["incidents"] == []
    steps = check_stream(updates)
    assert len(steps) == 40 == described["total_steps"] == described["step"]

    metrics = [u["metric"] for u in updates if "metric" in u]
    assert all(m["images_per_second"] > 0 and m["step_seconds"] > 0 for m in metrics)
    assert [(r["dp"], r["tp"]) for r in metrics[0]["ranks"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert metrics[-1]["loss"] < metrics[0]["loss"]

    evaluation = described["evaluation"]
    assert sum(evaluation["confusion"]) == evaluation["images"] == described["data_report"]["validation_images"]
    assert evaluation["accuracy"] > 0.9, evaluation  # The classes differ by three standard deviations.

    model = next(a for a in described["artifacts"] if a["kind"] == "model")
    path = cluster.artifact_root / model["path"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == model["sha256"]
    weights = safetensors.numpy.load_file(path)
    assert weights["blocks.1.attn.qkv.weight"].shape == (48, 16)
    assert weights["head.weight"].shape == (2, 16)

    for layout, key in (("timm", "blocks.0.attn.qkv.weight"),
                        ("hf", "vit.encoder.layer.0.attention.attention.query.weight")):
        output = tmp_path / f"{layout}.safetensors"
        cluster.cli("export", job, "--format", layout, "--output", output)
        exported = safetensors.numpy.load_file(output)
        assert key in exported, sorted(exported)[:8]
    assert (exported[key] == weights["blocks.0.attn.qkv.weight"][:16]).all()


def test_watch_resumes_after_any_seq(cluster, job_file):
    job = cluster.submit(job_file())
    _, updates = cluster.wait_for_end(job)
    for after in (0, 1, len(updates) // 2, len(updates) - 1):
        with cluster.watching(job, after) as again:
            assert list(again) == updates[after:]


def test_a_pipeline_submits_twice_and_gets_one_job(cluster, job_file):
    job_path = job_file({"training.steps": 5})
    first = cluster.json("submit", job_path, "--request-id", "week-49")
    second = cluster.json("submit", job_path, "--request-id", "week-49")
    assert first["job_id"] == second["job_id"] and second["existing"]
    other = cluster.cli("submit", job_file({"training.steps": 6}), "--request-id", "week-49", check=False)
    assert other.returncode == 4 and "training.steps" in other.stderr, other.stderr

    stub = cluster.jobs()
    updates = [u for r in stub.WatchJob(job_service_pb2.WatchJobRequest(job_id=first["job_id"]), timeout=60)
               for u in r.updates]
    assert [u.seq for u in updates] == list(range(1, len(updates) + 1))
    assert stub.GetJob(job_service_pb2.GetJobRequest(job_id=first["job_id"]),
                       timeout=5).state == job_pb2.SUCCEEDED


def test_repeat_runs_give_the_same_bits_and_tp_does_not_change_the_result(cluster, job_file):
    hashes, losses = [], []
    for tensor, data in ((2, 2), (2, 2), (1, 1), (4, 1)):
        job = cluster.submit(job_file({"parallel.tensor": tensor, "parallel.data": data}))
        described, updates = cluster.wait_for_end(job)
        assert described["state"] == "SUCCEEDED", described
        hashes.append(next(a["sha256"] for a in described["artifacts"] if a["kind"] == "model"))
        losses.append([u["metric"]["loss"] for u in updates if "metric" in u])
    assert hashes[0] == hashes[1] and losses[0] == losses[1]
    for other in losses[2:]:  # fp32 reduction order differs, nothing else.
        assert max(abs(a - b) for a, b in zip(losses[0], other)) < 1e-4, (losses[0], other)


def test_daemons_do_not_link_libtorch():
    for program, wanted in (("tundishd", False), ("tundish-agent", False), ("tundish", False),
                            ("tundish-rank", True)):
        libraries = subprocess.run(["ldd", BIN / program], capture_output=True, text=True, check=True).stdout
        assert ("libtorch" in libraries) == wanted, (program, libraries)


def test_reading_commands_answer_in_json(cluster, job_file):
    job = cluster.submit(job_file({"training.steps": 5}))
    cluster.wait_for_end(job)
    for command in (["list"], ["describe", job], ["explain", job], ["nodes"], ["checkpoints", job],
                    ["plan", job_file()]):
        assert isinstance(cluster.json(*command), dict), command
    for line in cluster.cli("logs", job, "-o", "json").stdout.splitlines():
        assert "log" in json.loads(line)
