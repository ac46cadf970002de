"""What the coordinator promises while it crashes, its disk fills, its machine is busy, and files are asked for.

Short by default; `make chaos-coordinator` runs the long form (TUNDISH_KILLS, TUNDISH_SATURATE_SECONDS).
"""

import contextlib
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

import cluster as cluster_module
from cluster import check_stream, wait_until

KILLS = int(os.environ.get("TUNDISH_KILLS", "5"))
SATURATE_SECONDS = float(os.environ.get("TUNDISH_SATURATE_SECONDS", "8"))


def cancel(cluster, job):
    cluster.cli("cancel", job)
    wait_until(lambda: not cluster.rank_pids(), "the ranks are gone")


def test_a_crash_of_the_coordinator_is_a_non_event(cluster, job_file):
    steps = 150 * (KILLS + 1)
    job = cluster.submit(job_file({"training.steps": steps}))
    cluster.wait_for_step(job, 5)
    pids = cluster.rank_pids()
    assert len(pids) == 4
    generator = random.Random(5)
    kills = 0
    with cluster.watching(job) as updates:
        seen = []
        for update in updates:
            seen.append(update)
            # At a random place of the job, in step or between two, soon after it was up.
            due = update.get("metric", {}).get("step", -1) >= (kills + 1) * steps / (KILLS + 2)
            if kills < KILLS and due:
                time.sleep(generator.uniform(0, 0.05))
                cluster.coordinator.kill()
                cluster.coordinator.start()
                kills += 1
                assert cluster.rank_pids() == pids, "a rank restarted because the coordinator did"
    assert kills == KILLS
    described = cluster.describe(job)
    assert described["state"] == "SUCCEEDED", described
    assert described["incidents"] == [] and described["job_epoch"] == 1, described
    # The reader that was there all along saw everything, and so does one that comes now.
    assert len(check_stream(seen)) == steps
    _, again = cluster.wait_for_end(job)
    assert len(check_stream(again)) == steps
    assert [u["seq"] for u in seen if "seq" in u] == [u["seq"] for u in again if "seq" in u]


@contextlib.contextmanager
def busy_cores():
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
               for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def test_a_busy_machine_kills_nobody(cluster, job_file):
    job = cluster.submit(job_file({"training.steps": 1_000_000}))
    cluster.wait_for_step(job, 5)
    with busy_cores():
        end = time.monotonic() + SATURATE_SECONDS
        with cluster.watching(job) as updates:
            for update in updates:
                assert "event" not in update or update["event"]["type"] != "rank_lost", update
                if time.monotonic() > end:
                    break
    assert cluster.describe(job)["incidents"] == []
    log = cluster.coordinator.log.read_text()
    assert "event=node_unreachable" not in log and "event=agent_disconnected" not in log, log
    cancel(cluster, job)


@contextlib.contextmanager
def small_disk(folder, mebibytes):
    """A file system of its own, so that filling it hurts nobody else."""
    folder.mkdir(parents=True, exist_ok=True)
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tundish-test", folder],
        capture_output=True).returncode == 0
    if not mounted:
        pytest.skip("mounting a small file system needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def readiness(cluster):
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{cluster.http_port}/readyz", timeout=10).status
    except urllib.error.HTTPError as error:
        return error.code


def test_a_full_disk_refuses_new_work_and_keeps_jobs_going(tmp_path, job_file):
    running = cluster_module.Cluster(tmp_path)
    running.coordinator.argv += ["--artifact-root", str(tmp_path / "artifacts"), "--reserve-bytes", str(8 << 20)]
    with small_disk(running.state, 32):
        try:
            running.start()
            job = running.submit(job_file({"training.steps": 1500}))
            running.wait_for_step(job, 5)
            pids = running.rank_pids()
            filler = running.state / "filler"
            # First the reserve is touched: no new jobs, everything else goes on.
            free = os.statvfs(running.state).f_bavail * os.statvfs(running.state).f_frsize
            filler.write_bytes(b"x" * (free - (6 << 20)))
            other = job_file()
            refused = wait_until(lambda: (r := running.cli("submit", other, check=False)).returncode and r,
                                 "new work is refused")
            assert refused.returncode == 3 and "make room" in refused.stderr, refused
            step = running.describe(job)["step"]
            running.wait_for_step(job, step + 20)
            # Then nothing is left at all.
            with contextlib.suppress(OSError), open(filler, "ab", buffering=0) as file:
                while True:
                    file.write(b"x" * 4096)
            wait_until(lambda: readiness(running) == 503, "/readyz says that the disk is full")
            refused = running.cli("submit", other, check=False)
            assert refused.returncode == 3, refused
            assert running.rank_pids() == pids
            filler.unlink()
            wait_until(lambda: readiness(running) == 200, "it works again")
            described, updates = running.wait_for_end(job)
            assert described["state"] == "SUCCEEDED" and described["incidents"] == [], described
            assert len(check_stream(updates)) == 1500
            second, _ = running.wait_for_end(running.submit(other))
            assert second["state"] == "SUCCEEDED", second
        finally:
            running.agent.alive() and running.agent.kill(2)
            running.coordinator.alive() and running.coordinator.kill()


def test_artifacts_are_listed_fetched_and_the_database_backed_up(cluster, job_file, tmp_path):
    described, _ = cluster.wait_for_end(cluster.submit(job_file({"checkpoints.every_steps": 20})))
    job = described["job_id"]
    files = {f["path"]: f for f in cluster.json("artifacts", job)["files"]}
    assert {f["kind"] for f in files.values()} == {"model", "config", "checkpoint"}, files
    for number, (path, listed) in enumerate(files.items()):
        output = tmp_path / f"fetched-{number}"
        content = (cluster.artifact_root / path).read_bytes()
        # As if an earlier fetch had been cut off.
        pathlib.Path(f"{output}.partial").write_bytes(content[:len(content) // 3])
        digest = cluster.cli("fetch", job, path, "--output", output).stdout.split()[0]
        assert output.read_bytes() == content
        assert digest == hashlib.sha256(content).hexdigest()
        assert listed["sha256"] in ("", digest), listed
        assert listed["bytes"] in ("0", str(len(content)), 0), listed
    # What an earlier fetch of something else left is not taken for a beginning.
    output = tmp_path / "fetched-again"
    pathlib.Path(f"{output}.partial").write_bytes(b"rubbish")
    cluster.cli("fetch", job, path, "--output", output)
    assert output.read_bytes() == content
    refused = cluster.cli("fetch", job, "../tundish.db", "--output", tmp_path / "no", check=False)
    assert refused.returncode == 4, refused

    copy = tmp_path / "restored" / "tundish.db"
    copy.parent.mkdir()
    cluster.cli("backup", copy)
    cluster.coordinator.kill()
    port, http = cluster_module.free_ports(2)
    restored = cluster_module.Daemon(
        [cluster_module.BIN / "tundishd", "--listen", f"127.0.0.1:{port}", "--http", f"127.0.0.1:{http}",
         "--state-dir", copy.parent, "--artifact-root", cluster.artifact_root], tmp_path / "restored.log")
    restored.start()
    try:
        cluster.address = f"127.0.0.1:{port}"
        cluster.jobs()
        wait_until(lambda: cluster.cli("list", check=False).returncode == 0, "the copy is served")
        assert cluster.describe(job)["artifacts"] == described["artifacts"]
        with cluster.watching(job) as updates:
            assert len(check_stream(list(updates))) == 40
    finally:
        restored.kill()


def test_an_agent_serves_the_files_the_coordinator_does_not_see(tmp_path, job_file):
    running = cluster_module.Cluster(tmp_path)
    root = tmp_path / "artifacts"
    root.mkdir()
    hide = 'mount -t tmpfs none "$0" && exec "$@"'
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"]).returncode != 0:
        pytest.skip("a view of its own of the file system needs root")
    running.coordinator.argv = ["unshare", "-m", "sh", "-c", hide, str(root),
                                *running.coordinator.argv, "--artifact-root", str(root)]
    try:
        running.start()
        described, _ = running.wait_for_end(running.submit(job_file()))
        model = next(a for a in described["artifacts"] if a["kind"] == "model")
        output = tmp_path / "model"
        digest = running.cli("fetch", described["job_id"], model["path"], "--output", output).stdout.split()[0]
        assert digest == model["sha256"]
        assert output.read_bytes() == (root / model["path"]).read_bytes()
        running.agent.kill(2)
        refused = running.cli("fetch", described["job_id"], model["path"], "--output", tmp_path / "none",
                              check=False)
        assert refused.returncode == 4 and "any agent" in refused.stderr, refused
    finally:
        running.agent.alive() and running.agent.kill(2)
        running.coordinator.alive() and running.coordinator.kill()


def test_every_job_is_watched_at_once_across_a_restart(cluster, job_file):
    first = cluster.submit(job_file())
    process = subprocess.Popen(
        [str(cluster_module.BIN / "tundish"), "--coordinator", cluster.address, "watch", "--all", "-o", "json"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    seen = {}

    def read_until(job, state):
        for line in process.stdout:
            watched = json.loads(line)
            for update in watched["updates"]:
                seen.setdefault(watched["job_id"], []).append(update)
                if watched["job_id"] == job and update.get("event", {}).get("state") == state:
                    return

    try:
        read_until(first, "SUCCEEDED")
        cluster.coordinator.kill()
        cluster.coordinator.start()
        cluster.wait_for_nodes(1)
        second = cluster.submit(job_file())
        read_until(second, "SUCCEEDED")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    for job in (first, second):
        assert len(check_stream(seen[job])) == 40
