"""Tundish's step beside timm's, eager and compiled, in turn in one run: `run.py BUILD [ROUNDS]`.

Three processes hold their models; in each round each of them takes a few steps while the others wait. A
ratio compares two of the same round, so a machine that is slower for a minute is slower for both. Prints
the median ratio and the range of the middle 80 % of rounds; above 1, Tundish is faster.
"""

import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
PYTHON = HERE.parent.parent / ".venv-parity/bin/python"
SHAPE = ["192", "3", "12", "224", "16", "2"]  # ViT-T/16 at 224, batch 16, two threads.
STEPS = 3
GFLOP = 7.5 * 16


class Peer:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seconds(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def spread(values):
    values = sorted(values)
    cut = len(values) // 10
    middle = values[cut:len(values) - cut]
    return f"{statistics.median(values):.3f} ({middle[0]:.3f} to {middle[-1]:.3f})"


def main():
    build, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 12
    twin = [PYTHON, HERE / "timm_twin.py"]
    peers = {"tundish": Peer([f"{build}/bin/step_bench", *SHAPE]),
             "eager": Peer([*twin, "eager", *SHAPE]),
             "compiled": Peer([*twin, "compiled", *SHAPE])}
    for peer in peers.values():
        peer.seconds(2)  # Compilation, first touch of memory.
    runs = [{name: peer.seconds(STEPS) for name, peer in peers.items()} for _ in range(rounds)]
    for name in peers:
        print(f"{name}: {spread([run[name] for run in runs])} s per step, "
              f"{spread([GFLOP / run[name] for run in runs])} GFLOP/s")
    for name in ("eager", "compiled"):
        print(f"tundish against {name}: {spread([run[name] / run['tundish'] for run in runs])}")
    better = [min(run["eager"], run["compiled"]) / run["tundish"] for run in runs]
    print(f"tundish against the better of each round: {spread(better)}")
    for peer in peers.values():
        peer.process.stdin.close()
        peer.process.wait()


if __name__ == "__main__":
    main()
