"""Each mistake gives one clear error that names the value and what would be right."""

import subprocess

import pytest

from cluster import BIN, LIMIT, Cluster, free_ports


def refused(cluster, job_path, *words, code=4):
    result = cluster.cli("submit", job_path, check=False)
    assert result.returncode == code, (result.returncode, result.stdout, result.stderr)
    for word in words:
        assert word in result.stderr, (word, result.stderr)
    assert cluster.json("list")["jobs"] == [], "a refused job left something behind"


def fails(cluster, job_path, *words):
    """Only an agent can see this mistake: the job is accepted, then fails; --follow shows the error."""
    result = cluster.cli("submit", job_path, "--follow", check=False)
    assert result.returncode == 1, (result.returncode, result.stdout, result.stderr)
    for word in words:
        assert word in result.stdout + result.stderr, (word, result.stdout, result.stderr)
    (job,) = cluster.json("list")["jobs"]
    assert job["state"] == "FAILED" and job["reason"] == "data_check_failed", job
    assert cluster.rank_pids() == []


def test_unknown_key_names_the_nearest_known_one(cluster, job_file):
    refused(cluster, job_file({"training.global_bach": 8}), "global_bach", "global_batch")


def test_heads_that_do_not_divide(cluster, job_file):
    refused(cluster, job_file({"parallel.tensor": 3}), "heads", "4", "3")


def test_missing_required_value(cluster, job_file):
    refused(cluster, job_file({"training.global_batch": None}), "training.global_batch")


def test_missing_job_file(cluster):
    result = cluster.cli("submit", "no-such-job.yaml", check=False)
    assert result.returncode == 4 and "no-such-job.yaml" in result.stderr


def test_usage(cluster):
    assert cluster.cli("submit", check=False).returncode == 2
    assert cluster.cli("no-such-command", check=False).returncode == 2


def test_unknown_job(cluster):
    for command in ("describe", "watch", "cancel", "explain", "logs", "checkpoints"):
        result = cluster.cli(command, "01ARZ3NDEKTSV4RRFFQ69G5FAV", check=False)
        assert result.returncode == 4 and "01ARZ3NDEKTSV4RRFFQ69G5FAV" in result.stderr, (command, result)


def test_missing_folder(cluster, job_file):
    fails(cluster, job_file({"data.folder": "no-such-folder"}), "no-such-folder")


def test_unreadable_image(cluster, job_file, tmp_path):
    path = job_file()
    (tmp_path / "images" / "dark" / "005.png").write_bytes(b"not a picture")
    fails(cluster, path, "005.png")


def test_unreadable_image_is_skipped_by_policy(cluster, job_file, tmp_path):
    path = job_file({"data.bad_files": "SKIP", "training.steps": 5})
    (tmp_path / "images" / "dark" / "005.png").write_bytes(b"not a picture")
    described, _ = cluster.wait_for_end(cluster.submit(path))
    assert described["state"] == "SUCCEEDED", described
    assert described["data_report"]["bad_file_count"] == 1
    assert "005.png" in described["data_report"]["bad_files"][0]["path"]


def test_more_shards_than_devices(cluster, job_file):
    refused(cluster, job_file({"parallel.data": 4}), "8", "4")


def test_port_in_use(cluster):
    for argv in ([BIN / "tundishd", "--listen", cluster.address, "--http", f"127.0.0.1:{free_ports(1)[0]}",
                  "--state-dir", cluster.folder / "second"],
                 [BIN / "tundish-agent", "--coordinator", cluster.address, "--node", "host-b", "--devices", "cpu:1",
                  "--state-dir", cluster.folder / "second-agent", "--http", f"127.0.0.1:{cluster.http_port}"]):
        result = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT)
        assert result.returncode == 4, result
        port = cluster.address if "tundishd" in str(argv[0]) else f"127.0.0.1:{cluster.http_port}"
        assert port in result.stderr, result.stderr


def test_coordinator_unreachable(tmp_path):
    result = Cluster(tmp_path).cli("list", check=False)
    assert result.returncode == 3 and "127.0.0.1" in result.stderr, result


@pytest.mark.parametrize("flag", [["--listen", "nonsense"], ["--no-such-flag"]])
def test_daemon_usage(flag, tmp_path):
    result = subprocess.run([BIN / "tundishd", *flag, "--state-dir", tmp_path], capture_output=True, text=True,
                            timeout=LIMIT)
    assert result.returncode == 2, result
