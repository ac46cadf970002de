#!/usr/bin/env python3
"""Writes data/elpv/manifest.csv for the ELPV photographs that the elpv-dataset wheel holds.

Run it with the Python of the environment that deploy/dev/setup.sh makes:

    .venv/bin/python examples/elpv/prepare.py

The data set: 2,624 electroluminescence photographs of solar cells, 300 x 300 pixels, 8-bit grey,
labelled with the probability of a defect: 0, 1/3, 2/3 or 1 (Buerhop-Lutz et al. 2018; Deitsch et al.
2019, 2021; CC BY-NC-SA 4.0). As in Deitsch et al. 2019 a cell counts as defective from 0.5 on. Every
photograph shows another cell; `group` is the cell, so a cell is held out whole or not at all.

Uses the standard library only; reads the wheel's files where they are and copies nothing.
"""

import argparse
import csv
import os
import sys
import sysconfig
from pathlib import Path

DEFECTIVE_FROM = 0.5
IMAGES = 2624


def read_labels(labels_file):
    """Yields (image name, defect probability); columns are separated by blanks."""
    with open(labels_file, encoding="ascii") as lines:
        for number, line in enumerate(lines, start=1):
            columns = line.split()
            if not columns:
                continue
            if len(columns) != 3:
                sys.exit(f"{labels_file} line {number}: expected 'image probability type', "
                         f"found {line.strip()!r}")
            yield columns[0], float(columns[1])


def main():
    repository = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--source", type=Path,
                        default=Path(sysconfig.get_paths()["purelib"]) / "elpv_dataset" / "data",
                        help="folder with labels.csv and images/ (default: the installed wheel's)")
    parser.add_argument("--output", type=Path, default=repository / "data" / "elpv" / "manifest.csv")
    arguments = parser.parse_args()

    labels_file = arguments.source / "labels.csv"
    if not labels_file.is_file():
        sys.exit(f"{labels_file} does not exist; run deploy/dev/setup.sh, then this script with "
                 ".venv/bin/python")
    rows = []
    for image, probability in read_labels(labels_file):
        file = arguments.source / image
        if not file.is_file():
            sys.exit(f"{file} is named in {labels_file} and does not exist")
        # Relative, so that the manifest (and its hash) is the same wherever the repository lies.
        path = os.path.relpath(file, arguments.output.parent)
        label = "defective" if probability >= DEFECTIVE_FROM else "functional"
        rows.append((path, label, Path(image).stem))
    if len(rows) != IMAGES:
        sys.exit(f"{labels_file} names {len(rows)} images; expected {IMAGES}")

    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = arguments.output.with_suffix(".tmp")
    with open(unfinished, "w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("path", "label", "group"))
        writer.writerows(rows)
    unfinished.replace(arguments.output)
    defective = sum(label == "defective" for _, label, _ in rows)
    print(f"{arguments.output}: {len(rows)} images, {defective} defective, "
          f"{len(rows) - defective} functional")


if __name__ == "__main__":
    main()
