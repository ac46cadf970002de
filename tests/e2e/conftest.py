import copy
import json
import pathlib

import numpy
import PIL.Image
import pytest

import cluster as cluster_module

TINY_JOB = {
    "name": "tiny",
    "data": {"folder": "images", "classes": ["dark", "bright"]},
    "model": {"image_size": 16, "patch_size": 8, "hidden": 16, "depth": 2, "heads": 4, "channels": 1},
    "parallel": {"tensor": 2, "data": 2},
    "training": {"steps": 40, "global_batch": 8, "seed": 7,
                 "optimizer": {"learning_rate": 1e-3}, "class_weights": "INVERSE"},
    "evaluation": {"every_epochs": 0},
    "recovery": {"warm_spares": 0},
}


def make_images(folder, per_class=24, size=16):
    """Two classes that differ in mean brightness, as small grey PNG files."""
    generator = numpy.random.default_rng(1)
    for name, centre in (("dark", 80), ("bright", 170)):
        (folder / name).mkdir(parents=True)
        for index in range(per_class):
            pixels = generator.normal(centre, 30, (size, size)).clip(0, 255).astype(numpy.uint8)
            PIL.Image.fromarray(pixels).save(folder / name / f"{index:03}.png")


@pytest.fixture
def cluster(tmp_path):
    running = cluster_module.Cluster(tmp_path).start()
    try:
        yield running
        running.stop()
    except BaseException:
        for log in sorted(tmp_path.glob("*.log")) + sorted(tmp_path.glob("agent/workers/*/*log*")):
            print(f"--- {log}\n{log.read_text(errors='replace')[-6000:]}")
        running.agent.process and running.agent.process.kill()
        running.coordinator.process and running.coordinator.process.kill()
        for pid in running.rank_pids():
            cluster_module.os.kill(pid, 9)
        raise


@pytest.fixture
def job_file(tmp_path):
    """Writes a job file (JSON is YAML) with changes given as {"dotted.key": value}; None removes."""
    make_images(tmp_path / "images")
    count = 0

    def write(changes=None):
        nonlocal count
        count += 1
        spec = copy.deepcopy(TINY_JOB)
        for key, value in (changes or {}).items():
            target = spec
            *parents, last = key.split(".")
            for parent in parents:
                target = target.setdefault(parent, {})
            if value is None:
                target.pop(last, None)
            else:
                target[last] = value
        path = tmp_path / f"job-{count}.yaml"
        path.write_text(json.dumps(spec, indent=1))
        return pathlib.Path(path)

    return write
