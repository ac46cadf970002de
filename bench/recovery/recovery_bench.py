"""What a killed rank costs: kills ranks at random under training and says where the time goes.

    TUNDISH_BUILD=build .venv/bin/python bench/recovery/recovery_bench.py [--kills N] [--peer PYTHON]

Four ranks (2 tensor x 2 data, one thread each) of a six-block ViT train on this machine. A random rank
gets SIGKILL at a random moment, again and again: first with a warm spare on the host, then with none, so
that every replacement is started cold. `--peer` names a Python with PyTorch; the same model then trains
data-parallel under torchrun in the same run and is killed likewise.

`running` is from the kill to the groups formed and the state copied: training runs. `total` adds the
first step, which is the interrupted one's repetition. Milliseconds; minimum / median / p95 / maximum.
"""

import argparse
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from cluster import Cluster  # noqa: E402
from conftest import make_images  # noqa: E402

PHASES = ("news", "quiesce", "re-form", "running", "first step", "total")


def spread(values):
    if not values:
        return "-"
    ordered = sorted(values)
    at = lambda q: ordered[min(len(ordered) - 1, int(q * len(ordered)))]  # noqa: E731
    return f"{ordered[0]:.0f} / {statistics.median(ordered):.0f} / {at(0.95):.0f} / {ordered[-1]:.0f}"


def seconds(timestamp):
    """RFC 3339 as protobuf's JSON writes it -> seconds since the epoch."""
    whole, _, fraction = timestamp.rstrip("Z").partition(".")
    return time.mktime(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) - time.timezone + float("0." + (fraction or "0"))


def job(folder, spares, steps):
    (folder / "job.yaml").write_text(f"""
name: bench
data: {{folder: images, classes: [dark, bright], cache_bytes: 268435456}}
model: {{preset: vit_cell}}
parallel: {{tensor: 2, data: 2}}
training: {{steps: {steps}, global_batch: 16, seed: 7, optimizer: {{learning_rate: 0.001}}}}
evaluation: {{every_epochs: 0}}
checkpoints: {{every_steps: 100000}}
recovery: {{warm_spares: {spares}, max_failures: 100000}}
""")
    return folder / "job.yaml"


class Watch:
    """Committed steps of a job as they are published, with the time they were seen."""

    def __init__(self, cluster, job_id):
        self.updates, self.steps, self.recovered = cluster.watching(job_id), [], []
        self.lines = self.updates.__enter__()

    def until(self, condition):
        for update in self.lines:
            now = time.time()
            if "metric" in update:
                self.steps.append((update["metric"]["step"], now, update["metric"]["step_seconds"]))
            elif update.get("event", {}).get("type") == "recovered":
                self.recovered.append(update["event"]["incident"])
            if condition(update):
                return
        raise AssertionError("the stream ended")


def tundish(spares, kills, dice):
    rows = {phase: [] for phase in PHASES}
    lost, undisturbed = 0, []
    with tempfile.TemporaryDirectory(prefix="tundish-bench-") as name:
        folder = pathlib.Path(name)
        make_images(folder / "images", per_class=64, size=128)
        cluster = Cluster(folder).start()
        try:
            job_id = cluster.submit(job(folder, spares, 1_000_000))
            watch = Watch(cluster, job_id)
            watch.until(lambda u: u.get("metric", {}).get("step") == 8)
            for _ in range(kills):
                if spares:
                    cluster.wait_for_spare()
                pause = time.time() + 2.5 + dice.random()
                watch.until(lambda u: time.time() > pause and "metric" in u)
                undisturbed += [s[2] for s in watch.steps[-3:]]
                time.sleep(dice.random() * undisturbed[-1])
                victim = dice.choice(cluster.describe(job_id)["ranks"])
                killed = time.time()
                os.kill(victim["pid"], signal.SIGKILL)
                watch.until(lambda u: u.get("event", {}).get("type") == "recovered")
                incident = watch.recovered[-1]
                news = (seconds(incident["time"]) - killed) * 1e3
                rows["news"].append(news)
                rows["quiesce"].append(incident["quiesce_ms"])
                rows["re-form"].append(incident["restore_ms"] - incident["quiesce_ms"])
                rows["running"].append(news + incident["restore_ms"])
                rows["first step"].append(incident["first_step_ms"] - incident["restore_ms"])
                rows["total"].append(news + incident["first_step_ms"])
                lost += incident["steps_lost"]
            cluster.cli("cancel", job_id)
        finally:
            cluster.stop()
    return rows, lost, statistics.median(undisturbed)


def peer(python, kills, dice):
    """torchrun as shipped: kill -> next step nobody had committed, and steps done again."""
    totals, again, stopped = [], 0, None
    with tempfile.TemporaryDirectory(prefix="tundish-bench-") as name:
        folder = pathlib.Path(name)
        run = subprocess.Popen(
            [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", "--max-restarts",
             str(kills + 3), str(ROOT / "bench" / "recovery" / "peer.py"), name, "1000000"],
            stdout=subprocess.DEVNULL, stderr=open(folder / "torchrun.log", "wb"), start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"})

        def steps():
            lines = (folder / "steps.0").read_text().splitlines() if (folder / "steps.0").exists() else []
            return [(int(a), float(b), int(c)) for a, b, c in (line.split() for line in lines if line.count(" ") == 2)]

        def wait(condition, limit):
            end = time.time() + limit
            while time.time() < end and run.poll() is None:
                if condition():
                    return True
                time.sleep(0.02)  # Another program's files announce nothing.
            return False
        try:
            for _ in range(kills):
                seen = len(steps())
                if not wait(lambda: len(steps()) > seen + 12, 120):
                    stopped = "it did not train"
                    break
                time.sleep(dice.random())
                victim = dice.randrange(4)
                pids = [(folder / f"steps.{r}").read_text().splitlines()[-1].split()[2] for r in range(4)]
                top, killed = steps()[-1][0], time.time()
                os.kill(int(pids[victim]), signal.SIGKILL)
                if not wait(lambda: any(t > killed and s > top for s, t, _ in steps()) or False, 180):
                    stopped = "the job was lost"
                    break
                restarted = [(s, t) for s, t, pid in steps() if t > killed and str(pid) != pids[0]]
                first = restarted[0] if restarted else next((s, t) for s, t, _ in steps() if t > killed and s > top)
                totals.append((first[1] - killed) * 1e3)
                again += max(0, top + 1 - first[0])
        finally:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    return totals, again, stopped


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--peer-kills", type=int, default=3)
    parser.add_argument("--peer", help="Python with PyTorch, for torchrun beside it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("warm", "cold", "peer"))
    args = parser.parse_args()
    dice = random.Random(args.seed)
    results = {}
    for label, spares in (("warm", 1), ("cold", 0)):
        if args.only in (None, label):
            results[label] = tundish(spares, args.kills, dice)
    print(f"four ranks, 2 x 2, {os.cpu_count()} processors; ms: minimum / median / p95 / maximum")
    for label, (rows, lost, step) in results.items():
        print(f"\n{label}: {len(rows['total'])} kills, {lost} steps lost, undisturbed step {step * 1e3:.0f} ms")
        for phase in PHASES:
            print(f"  {phase:<11}{spread(rows[phase])}")
        # A kill costs what passes before the step that repeats the interrupted one has done as much again;
        # on average half a step was done when the kill came.
        cost = statistics.mean(rows["total"]) / 1e3 - step + step / 2
        print(f"  goodput at one kill a minute {100 * (1 - max(0.0, cost) / 60):.2f} %")
    if args.peer and args.only in (None, "peer"):
        totals, again, stopped = peer(args.peer, args.peer_kills, dice)
        print(f"\ntorchrun: {len(totals)} kills, {again} steps done again{'; ' + stopped if stopped else ''}")
        print(f"  total      {spread(totals)}")
        if totals and "warm" in results:
            ratio = statistics.median(totals) / statistics.median(results["warm"][0]["total"])
            print(f"  {ratio:.1f} times Tundish's with a warm spare")


if __name__ == "__main__":
    main()
