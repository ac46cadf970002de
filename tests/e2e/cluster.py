"""A real cluster on this machine for one test: tundishd, agents and ranks as processes on free ports.

Everything a test does to it is what an operator would do: start and signal processes, run the command
line, read the stream. Waiting is always for a condition, on a stream or a process, with a limit.
"""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import grpc

BUILD = pathlib.Path(os.environ["TUNDISH_BUILD"])
BIN = BUILD / "bin"
sys.path.insert(0, str(BUILD / "generated_py"))

from tundish.v1 import job_pb2, job_service_pb2, job_service_pb2_grpc, node_pb2, node_pb2_grpc  # noqa: E402

LIMIT = 120.0  # Seconds any single wait may take; a loaded two-core machine stays far below.


def free_ports(count):
    """Ports that were free a moment ago, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


class Daemon:
    """One daemon process with its log file."""

    def __init__(self, argv, log):
        self.argv, self.log = [str(a) for a in argv], pathlib.Path(log)
        self.process = None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                            start_new_session=True)

    def kill(self, sig=signal.SIGKILL):
        self.process.send_signal(sig)
        self.process.wait(LIMIT)

    def alive(self):
        return self.process is not None and self.process.poll() is None


class Cluster:
    def __init__(self, folder, devices=4):
        self.folder = pathlib.Path(folder)
        self.port, self.http_port, self.agent_http_port = free_ports(3)
        self.address = f"127.0.0.1:{self.port}"
        self.state = self.folder / "coordinator"
        self.artifact_root = self.state / "artifacts"
        self.coordinator = Daemon(
            [BIN / "tundishd", "--listen", self.address, "--http", f"127.0.0.1:{self.http_port}",
             "--state-dir", self.state], self.folder / "tundishd.log")
        self.agent = Daemon(
            [BIN / "tundish-agent", "--coordinator", self.address, "--node", "host-a",
             "--devices", f"cpu:{devices}", "--state-dir", self.folder / "agent",
             "--http", f"127.0.0.1:{self.agent_http_port}"], self.folder / "agent.log")

    def start(self):
        self.coordinator.start()
        self.agent.start()
        self.wait_for_nodes(1)
        return self

    def stop(self):
        """Stops everything, ranks included, and fails if a process of the cluster is left."""
        pids = self.rank_pids()
        for daemon, sig in ((self.agent, signal.SIGINT), (self.coordinator, signal.SIGTERM)):
            if daemon.alive():
                daemon.process.send_signal(sig)
                try:
                    daemon.process.wait(30)
                except subprocess.TimeoutExpired:
                    daemon.process.kill()
                    raise AssertionError(f"{daemon.argv[0]} did not stop on signal {sig}")
        left = sorted(set(pids) & set(self.rank_pids()))
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, f"ranks {left} outlived an agent that was told to stop them"

    # The command line.

    def cli(self, *args, check=True, timeout=LIMIT):
        result = subprocess.run([str(BIN / "tundish"), "--coordinator", self.address, *map(str, args)],
                                capture_output=True, text=True, timeout=timeout)
        if check:
            assert result.returncode == 0, (args, result.returncode, result.stdout, result.stderr)
        return result

    def json(self, *args):
        return json.loads(self.cli(*args, "-o", "json").stdout)

    def submit(self, job_file, *args):
        return self.json("submit", job_file, *args)["job_id"]

    def describe(self, job):
        return self.json("describe", job)

    @contextlib.contextmanager
    def watching(self, job, after_seq=0):
        """Lines of `tundish watch -o json` as dicts, as they come."""
        process = subprocess.Popen(
            [str(BIN / "tundish"), "--coordinator", self.address, "watch", job, "--after-seq", str(after_seq),
             "-o", "json"], stdout=subprocess.PIPE, stderr=open(self.folder / "watch.err", "ab"), text=True)
        try:
            yield (json.loads(line) for line in process.stdout)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    def wait_for_step(self, job, step):
        """Returns the first metric point at or past `step`."""
        with self.watching(job) as updates:
            for update in updates:
                if "metric" in update and update["metric"]["step"] >= step:
                    return update["metric"]
                event = update.get("event", {})
                assert event.get("state") not in ("FAILED", "CANCELLED"), update
        raise AssertionError(f"job {job} ended before step {step}: {self.describe(job)}")

    def wait_for_end(self, job):
        """Follows the job to its terminal event; returns (describe, all updates)."""
        with self.watching(job) as updates:
            seen = list(updates)
        return self.describe(job), seen

    # gRPC, as a pipeline would use it.

    def jobs(self):
        return job_service_pb2_grpc.JobServiceStub(grpc.insecure_channel(self.address))

    def wait_for_nodes(self, count, state="ready"):
        channel = grpc.insecure_channel(self.address)
        grpc.channel_ready_future(channel).result(timeout=LIMIT)
        stub = node_pb2_grpc.ClusterServiceStub(channel)
        return wait_until(lambda: sum(n.state == state for n in stub.ListNodes(
            node_pb2.ListNodesRequest(), timeout=10).nodes) >= count, f"{count} nodes {state}")

    # Processes.

    def rank_pids(self):
        """Pids of living tundish-rank processes of this cluster's agent, spares included."""
        pids = []
        socket_path = str(self.folder / "agent")
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            if command[0].endswith(b"tundish-rank") and state != "Z" and any(
                    socket_path.encode() in part for part in command):
                pids.append(int(entry.name))
        return sorted(pids)

    def job_pids(self, job):
        """Pids of the job's ranks, ordered by (dp, tp)."""
        return [rank["pid"] for rank in self.describe(job)["ranks"]]

    def wait_for_spare(self, count=1):
        """Waits until the agent keeps this many spares, prepared or about to be."""
        def standing_by():
            with urllib.request.urlopen(f"http://127.0.0.1:{self.agent_http_port}/metrics", timeout=10) as page:
                lines = page.read().decode().splitlines()
            return any(line.startswith("tundish_agent_spares ") and float(line.split()[1]) >= count for line in lines)
        wait_until(standing_by, f"{count} spares")

    def rank_pid(self, job, dp, tp):
        for rank in self.describe(job)["ranks"]:
            if (rank["dp"], rank["tp"]) == (dp, tp):
                return rank["pid"]
        raise AssertionError(f"job {job} has no rank ({dp}, {tp})")


def wait_until(condition, what):
    """For states that nothing announces (another program's files and pages): asks again until true."""
    deadline = time.monotonic() + LIMIT
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {LIMIT} s: {what}")
        time.sleep(0.05)


def check_stream(updates):
    """The promises of a job's stream: seq without gap or duplicate, each step at most once."""
    expected = 1
    for update in updates:
        if "dropped" in update:
            assert update["dropped"]["first"] == expected, update
            expected = update["dropped"]["last"] + 1
            continue
        assert update["seq"] == expected, f"expected seq {expected}, got {update}"
        expected += 1
    steps = [u["metric"]["step"] for u in updates if "metric" in u]
    assert steps == list(range(len(steps))), f"steps are not 0..n-1: {steps}"
    terminal = [u for u in updates if u.get("event", {}).get("type") == "state_changed"
                and u["event"]["state"] in ("SUCCEEDED", "FAILED", "CANCELLED")]
    assert len(terminal) == 1, terminal
    return steps
