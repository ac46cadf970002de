"""Compares the loader with torchvision and with bare decoding: same files, same core, one run.

Usage: run.py DATA_BENCH PHOTOGRAPHS [--rounds N] [--seconds S]; PHOTOGRAPHS is the folder of the ELPV PNGs.

Files are made from the ELPV photographs at each run: grey JPEGs of 330 x 330 (109 kilopixels), the
photographs' own 300 x 300 PNGs, and colour JPEGs of 4000 x 3000 that tile and tint them. Every
contender does the same work: read, decode, random resized crop to 224 (0.08 to 1 of the area, 3/4 to
4/3), flip, normalise, one image at a time, one thread, no cache. Contenders take turns, so that a
disturbance hits all of them; numbers are medians over the rounds with the range beside them.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torchvision
from PIL import Image
from torchvision import transforms as v1
from torchvision.io import ImageReadMode, decode_image, read_file
from torchvision.transforms import v2

SIZE = 224


def photographs(folder):
    return sorted(folder.resolve().glob("*.png"))[:256]


def write_manifest(folder, files):
    rows = [f"{file},{'even' if i % 2 else 'odd'}" for i, file in enumerate(files)]
    manifest = folder / "manifest.csv"
    manifest.write_text("path,label\n" + "\n".join(rows) + "\n")
    return manifest


def make_small(folder, photographs):
    files = []
    for i, source in enumerate(photographs):
        with Image.open(source) as image:
            image.convert("L").resize((330, 330), Image.LANCZOS).save(
                folder / f"{i}.jpg", quality=90)
        files.append(folder / f"{i}.jpg")
    return files


def make_large(folder, sources):
    files = []
    for i in range(4):
        wall = np.zeros((3000, 4000), np.uint8)
        for tile in range(10 * 14):
            with Image.open(sources[(tile + 37 * i) % len(sources)]) as image:
                pixels = np.asarray(image.convert("L"))
            y, x = tile // 14 * 300, tile % 14 * 300
            part = wall[y:y + 300, x:x + 300]
            part[...] = pixels[:part.shape[0], :part.shape[1]]
        tint = np.stack([wall, wall * (0.7 + 0.05 * i), 255 - wall * 0.8], -1).astype(np.uint8)
        Image.fromarray(tint).save(folder / f"{i}.jpg", quality=90)
        files.append(folder / f"{i}.jpg")
    return files


def normalise(grey):
    channels = 1 if grey else 3
    return {"mean": [0.5] * channels, "std": [0.5] * channels}


def pil_path(grey):
    transform = v1.Compose([v1.RandomResizedCrop(SIZE), v1.RandomHorizontalFlip(), v1.ToTensor(),
                            v1.Normalize(**normalise(grey))])

    def load(file):
        with Image.open(file) as image:
            return transform(image.convert("L" if grey else "RGB"))
    return load


def v2_path(grey):
    transform = v2.Compose([v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip(),
                            v2.ToDtype(torch.float32, scale=True), v2.Normalize(**normalise(grey))])
    mode = ImageReadMode.GRAY if grey else ImageReadMode.RGB
    return lambda file: transform(decode_image(read_file(str(file)), mode))


def rate(load, files, seconds):
    load(files[0])
    images, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        load(files[images % len(files)])
        images += 1
    return images / (time.perf_counter() - start)


def bench(binary, *arguments):
    output = subprocess.run([binary, *map(str, arguments)], check=True, stdout=subprocess.PIPE)
    return json.loads(output.stdout)


def compare(name, binary, files, folder, grey, options):
    manifest = write_manifest(folder, files)
    channels = 1 if grey else 3
    stages = {}

    def ours():
        result = bench(binary, "load", manifest, options.seconds, channels, SIZE, 0)
        stages.update(result)
        return result["images_per_second"]

    pil, tensor = pil_path(grey), v2_path(grey)
    contenders = {
        "tundish": ours,
        "bare decoding": lambda: bench(binary, "decode", manifest, options.seconds)[
            "images_per_second"],
        "torchvision PIL path": lambda: rate(pil, files, options.seconds),
        "torchvision v2 path": lambda: rate(tensor, files, options.seconds),
    }
    rounds = {contender: [] for contender in contenders}
    for _ in range(options.rounds):
        for contender, run in contenders.items():
            rounds[contender].append(run())
    print(f"{name}")
    mine = rounds["tundish"]
    for contender, rates in rounds.items():
        ratios = [a / b for a, b in zip(mine, rates)]
        print(f"  {contender:<22} {statistics.median(rates):8.1f} images/s "
              f"({min(rates):.1f} to {max(rates):.1f})   tundish / this: "
              f"{statistics.median(ratios):5.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    print(f"  tundish's time per image, microseconds: read {stages['read_us']}, decode "
          f"{stages['decode_us']}, resize and normalise {stages['transform_us']}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data_bench")
    parser.add_argument("photographs", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    options = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, torchvision {torchvision.__version__}, "
          f"Pillow {Image.__version__}, one core, {options.rounds} rounds of {options.seconds} s")
    sources = photographs(options.photographs)
    with tempfile.TemporaryDirectory() as root:
        for name, make, grey in (("grey JPEG, 330 x 330", make_small, True),
                                 ("grey PNG, 300 x 300", lambda _, photographs: photographs, True),
                                 ("colour JPEG, 4000 x 3000", make_large, False)):
            folder = Path(root) / name.split(",")[0].replace(" ", "-")
            folder.mkdir()
            compare(name, options.data_bench, make(folder, sources), folder, grey, options)


if __name__ == "__main__":
    sys.exit(main())
