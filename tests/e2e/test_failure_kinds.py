"""Every way a rank, an agent, a coordinator or a host can fail, with a warm spare standing by."""

import os
import pathlib
import signal
import time
import uuid

import pytest

from cluster import check_stream, wait_until

STEPS = 300
CGROUPS = pathlib.Path("/sys/fs/cgroup")


@pytest.fixture
def job(cluster, job_file):
    """A job of 2 x 2 ranks with a spare."""
    return job_file({"training.steps": STEPS, "recovery.warm_spares": 1, "checkpoints.every_steps": 1000})


UNDISTURBED = []


@pytest.fixture
def calm(cluster, job):
    """Once for all tests: images, order and weights depend on seeds only."""
    if not UNDISTURBED:
        UNDISTURBED.append(cluster.wait_for_end(cluster.submit(job)))
        assert UNDISTURBED[0][0]["state"] == "SUCCEEDED", UNDISTURBED[0][0]
    return UNDISTURBED[0]


def model(described):
    return next(a["sha256"] for a in described["artifacts"] if a["kind"] == "model")


def losses(updates):
    return {u["metric"]["step"]: u["metric"]["loss"] for u in updates if "metric" in u}


def submit(cluster, job, step=20):
    job_id = cluster.submit(job)
    cluster.wait_for_step(job_id, step)
    return job_id


def finish(cluster, job_id, calm):
    """The job ends as if nothing had been; returns what it says of itself."""
    described, updates = cluster.wait_for_end(job_id)
    assert described["state"] == "SUCCEEDED", described
    check_stream(updates)
    assert losses(updates) == losses(calm[1]), "the loss curve shows the failure"
    assert model(described) == model(calm[0]), "the failure changed the result"
    for incident in described["incidents"]:
        print("incident", {k: incident[k] for k in ("cause", "detect_ms", "quiesce_ms", "restore_ms", "total_ms")})
        assert incident["steps_lost"] == 0, incident
    return described


def test_each_signal(cluster, job, calm):
    for sig in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT):
        job_id = submit(cluster, job)
        cluster.wait_for_spare()
        standing_by = set(cluster.rank_pids()) - set(cluster.job_pids(job_id))
        os.kill(cluster.rank_pid(job_id, 1, 0), sig)
        wait_until(lambda: any(i["closed"] for i in cluster.describe(job_id)["incidents"]), "the recovery is over")
        assert set(cluster.job_pids(job_id)) & standing_by, "the spare was not used"
        described = finish(cluster, job_id, calm)
        assert [i["cause"] for i in described["incidents"]] == [f"killed_by_signal_{int(sig)}"]


def test_a_stopped_rank_is_found_by_the_time_of_steps(cluster, job, calm):
    job_id = submit(cluster, job, 40)
    stopped = cluster.rank_pid(job_id, 0, 1)
    os.kill(stopped, signal.SIGSTOP)
    wait_until(lambda: cluster.describe(job_id)["incidents"], "the hang is found")
    (incident,) = finish(cluster, job_id, calm)["incidents"]
    assert (incident["dp"], incident["tp"], incident["cause"]) == (0, 1, "hung"), incident
    assert 900 < incident["detect_ms"] < 20_000, "steps take milliseconds: a second, or three loaded steps"
    assert not pathlib.Path(f"/proc/{stopped}").exists(), "it could come back"


def memory_group(limit):
    """A control group that may use `limit` bytes; None where this machine lets nobody make one."""
    for root, file in ((CGROUPS / "memory", "memory.limit_in_bytes"), (CGROUPS, "memory.max")):
        group = root / f"tundish-{uuid.uuid4().hex[:8]}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / file).write_text(str(limit))
            return group
        except OSError:
            group.rmdir()
    return None


def test_out_of_memory(cluster, job, calm):
    job_id = submit(cluster, job)
    victim = cluster.rank_pid(job_id, 1, 1)
    group = memory_group(1 << 20)
    if group is None:
        cluster.cli("cancel", job_id)
        pytest.skip("no control group can be made here")
    try:
        (group / "cgroup.procs").write_text(str(victim))
        wait_until(lambda: cluster.describe(job_id)["incidents"], "the kernel kills it")
        (incident,) = finish(cluster, job_id, calm)["incidents"]
        assert incident["cause"] == "killed_by_signal_9", incident
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "the group is empty")
        group.rmdir()


def test_two_ranks_at_once(cluster, job, calm):
    for first, second in (((0, 0), (1, 1)), ((0, 0), (0, 1))):
        job_id = submit(cluster, job)
        pids = [cluster.rank_pid(job_id, *first), cluster.rank_pid(job_id, *second)]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: any(i["closed"] for i in cluster.describe(job_id)["incidents"]), "the recovery is over")
        finish(cluster, job_id, calm)


def test_a_failure_during_the_recovery(cluster, job, calm):
    """The next ranks die while the first loss is being repaired, at ten moments of it."""
    for attempt in range(10):
        job_id = submit(cluster, job, 5)
        pids = cluster.job_pids(job_id)
        os.kill(pids[attempt % 4], signal.SIGKILL)
        time.sleep(0.015 * attempt)  # The moment is the test's subject; nothing is waited for.
        os.kill(pids[(attempt + 1) % 4], signal.SIGKILL)  # Of the other column: weights are left of both.
        finish(cluster, job_id, calm)


def test_the_coordinator_dies_at_every_point_of_a_recovery(cluster, job, calm):
    for attempt in range(8):
        job_id = submit(cluster, job, 5)
        os.kill(cluster.rank_pid(job_id, attempt // 2 % 2, attempt % 2), signal.SIGKILL)
        time.sleep(0.012 * attempt)  # As above.
        cluster.coordinator.kill()
        cluster.coordinator.start()
        cluster.wait_for_nodes(1)
        described = finish(cluster, job_id, calm)
        assert len(described["incidents"]) == 1, described["incidents"]


def test_the_agent_dies_with_a_rank(cluster, job, calm):
    job_id = submit(cluster, job)
    victim = cluster.rank_pid(job_id, 0, 0)
    cluster.agent.kill()
    os.kill(victim, signal.SIGKILL)
    cluster.agent.start()
    cluster.wait_for_nodes(1)
    (incident,) = finish(cluster, job_id, calm)["incidents"]
    assert incident["cause"] == "gone", "only a parent is told how a process ended"


def test_spares_end_with_their_job(cluster, job):
    job_id = submit(cluster, job)
    cluster.wait_for_spare()
    cluster.cli("cancel", job_id)
    wait_until(lambda: not cluster.rank_pids(), "ranks and spares are gone")


def test_no_process_can_be_started(cluster, job_file, tmp_path):
    """A rank that cannot start is a failure each time; the job fails with the first cause."""
    broken = tmp_path / "broken-rank"
    broken.write_text("#!/bin/sh\nexit 9\n")
    broken.chmod(0o755)
    cluster.agent.kill()
    cluster.agent.argv += ["--rank-binary", str(broken)]
    cluster.agent.start()
    cluster.wait_for_nodes(1)
    described, _ = cluster.wait_for_end(cluster.submit(job_file({"recovery.max_failures": 5})))
    assert described["state"] == "FAILED" and described["reason"] == "rank_exited_9", described
