"""Killing processes one by one while a job runs."""

import os
import signal

import pytest

from cluster import check_stream, wait_until

STEPS = 150


def model_hash(described):
    return next(a["sha256"] for a in described["artifacts"] if a["kind"] == "model")


@pytest.fixture
def long_job(job_file):
    return job_file({"training.steps": STEPS})


@pytest.fixture
def undisturbed(cluster, long_job):
    """Hash of the model and the losses of the same job without any failure."""
    described, updates = cluster.wait_for_end(cluster.submit(long_job))
    assert described["state"] == "SUCCEEDED", described
    return model_hash(described), [u["metric"]["loss"] for u in updates if "metric" in u]


def finish_and_compare(cluster, job, undisturbed):
    described, updates = cluster.wait_for_end(job)
    assert described["state"] == "SUCCEEDED", described
    steps = check_stream(updates)
    assert len(steps) == STEPS
    losses = [u["metric"]["loss"] for u in updates if "metric" in u]
    assert losses == undisturbed[1], "the loss curve shows the failure"
    assert model_hash(described) == undisturbed[0], "the failure changed the result"
    return described


def test_a_killed_rank_loses_no_step_and_changes_no_bit(cluster, long_job, undisturbed):
    for dp, tp, sig in ((0, 0, signal.SIGKILL), (1, 1, signal.SIGKILL), (0, 1, signal.SIGSEGV)):
        job = cluster.submit(long_job)
        cluster.wait_for_step(job, 20)
        os.kill(cluster.rank_pid(job, dp, tp), sig)
        described = finish_and_compare(cluster, job, undisturbed)
        (incident,) = described["incidents"]
        assert (incident["dp"], incident["tp"]) == (dp, tp), incident
        assert incident["cause"] == f"killed_by_signal_{int(sig)}"
        assert incident["steps_lost"] == 0 and incident["closed"]
        assert incident["restored_from"] == "survivor"
        print("incident", incident)


def test_two_kills_in_a_row(cluster, long_job, undisturbed):
    job = cluster.submit(long_job)
    for step, dp, tp in ((20, 0, 0), (60, 1, 0)):
        cluster.wait_for_step(job, step)
        os.kill(cluster.rank_pid(job, dp, tp), signal.SIGKILL)
        wait_until(lambda: cluster.describe(job)["incidents"], "the incident is recorded")
    described = finish_and_compare(cluster, job, undisturbed)
    assert len(described["incidents"]) == 2


def test_without_a_replica_the_last_checkpoint_is_used(cluster, job_file):
    changes = {"training.steps": STEPS, "parallel.data": 1, "checkpoints.every_steps": 10}
    calm, calm_updates = cluster.wait_for_end(cluster.submit(job_file(changes)))
    job = cluster.submit(job_file(changes))
    cluster.wait_for_step(job, 30)
    os.kill(cluster.rank_pid(job, 0, 1), signal.SIGKILL)
    described, updates = cluster.wait_for_end(job)
    assert described["state"] == "SUCCEEDED", described
    (incident,) = described["incidents"]
    assert incident["restored_from"] == "checkpoint" and incident["cut_step"] % 10 == 0, incident
    assert model_hash(described) == model_hash(calm)
    # Steps after the checkpoint come again under the higher job_epoch, with the same losses.
    first_loss = {}
    for metric in (u["metric"] for u in updates if "metric" in u):
        assert first_loss.setdefault(metric["step"], metric["loss"]) == metric["loss"]
    assert sorted(first_loss) == list(range(STEPS))


def test_a_killed_coordinator_disturbs_nobody(cluster, long_job, undisturbed):
    job = cluster.submit(long_job)
    cluster.wait_for_step(job, 10)
    pids = cluster.job_pids(job)
    for _ in range(2):
        cluster.coordinator.kill()
        cluster.coordinator.start()
        cluster.wait_for_nodes(1)
        assert set(pids) <= set(cluster.rank_pids()), "a rank restarted because the coordinator did"
    described = finish_and_compare(cluster, job, undisturbed)
    assert described["incidents"] == [] and described["job_epoch"] == 1


def test_a_watcher_sees_every_update_across_a_coordinator_restart(cluster, long_job):
    job = cluster.submit(long_job)
    seen = []
    with cluster.watching(job) as updates:
        for update in updates:
            seen.append(update)
            if update.get("metric", {}).get("step") == 15:
                cluster.coordinator.kill()
                cluster.coordinator.start()
    assert len(check_stream(seen)) == STEPS


def test_a_killed_agent_leaves_its_ranks_alone(cluster, long_job, undisturbed):
    job = cluster.submit(long_job)
    cluster.wait_for_step(job, 10)
    pids = cluster.job_pids(job)
    cluster.agent.kill()
    cluster.agent.start()
    cluster.wait_for_nodes(1)
    assert set(pids) <= set(cluster.rank_pids())
    described = finish_and_compare(cluster, job, undisturbed)
    assert described["incidents"] == []


def test_jobs_and_events_survive_kill_9(cluster, job_file):
    done = cluster.submit(job_file({"training.steps": 5}))
    before, updates = cluster.wait_for_end(done)
    cluster.coordinator.kill()
    cluster.coordinator.start()
    cluster.wait_for_nodes(1)
    assert cluster.describe(done)["state"] == "SUCCEEDED"
    again, updates_again = cluster.wait_for_end(done)
    assert updates_again == updates and again["artifacts"] == before["artifacts"]


def test_a_failure_while_the_coordinator_is_down(cluster, long_job, undisturbed):
    job = cluster.submit(long_job)
    cluster.wait_for_step(job, 20)
    victim = cluster.rank_pid(job, 1, 0)
    cluster.coordinator.kill()
    os.kill(victim, signal.SIGKILL)
    cluster.coordinator.start()
    cluster.wait_for_nodes(1)
    described = finish_and_compare(cluster, job, undisturbed)
    assert len(described["incidents"]) == 1


def test_cancel_frees_the_devices(cluster, long_job):
    job = cluster.submit(long_job)
    cluster.wait_for_step(job, 5)
    cluster.cli("cancel", job)
    described, _ = cluster.wait_for_end(job)
    assert described["state"] == "CANCELLED"
    wait_until(lambda: not cluster.rank_pids(), "cancelled ranks are gone")
    follow = cluster.submit(long_job)
    cluster.wait_for_step(follow, 1)
    cluster.cli("cancel", follow)


def test_a_rank_that_dies_at_every_start_fails_the_job_with_the_first_cause(cluster, job_file):
    job = cluster.submit(job_file({"training.steps": 100000, "recovery.max_failures": 2}))
    cluster.wait_for_step(job, 3)
    killed = set()
    for _ in range(3):
        pid = wait_until(lambda: next((r["pid"] for r in cluster.describe(job)["ranks"]
                                       if (r["dp"], r["tp"]) == (1, 1) and r["pid"] and r["pid"] not in killed),
                                      None), "a new process for rank (1, 1)")
        killed.add(pid)
        os.kill(pid, signal.SIGKILL)
    described, _ = cluster.wait_for_end(job)
    assert described["state"] == "FAILED" and "signal" in described["message"], described
