# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Lets the example 05_own_data train on files of each form that its page in docs/ names, made with h5py."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy

COUNT, SHAPE = 12, (9, 8, 8)


def mlperf(path, draw):
    """One file with a sample axis: the target is how bright the counts are."""
    target = draw.uniform(-1, 1, (COUNT, 1)).astype("f4")
    noise = draw.uniform(0.9, 1.1, (COUNT, *SHAPE, 2))
    with h5py.File(path / "universes.h5", "w") as file:
        file["x"] = (10 * numpy.exp(target).reshape(-1, 1, 1, 1, 1) * noise).astype("i2")
        file["y"] = target
    return path / "universes.h5"


def lbann(path, draw):
    """A file for each sample."""
    for i in range(COUNT):
        target = draw.uniform(-1, 1, 4).astype("f4")
        with h5py.File(path / f"universe{i:03}.hdf5", "w") as file:
            noise = draw.uniform(0.9, 1.1, (4, *SHAPE))
            file["full"] = (10 * (2 + target).reshape(4, 1, 1, 1) * noise).astype("i2")
            file["unitPar"] = target
    return path


def segmentation(path, draw):
    """A packed file with many volumes, and what is bright in each."""
    volume = draw.uniform(-1, 1, (COUNT, *SHAPE)).astype("f4")
    with h5py.File(path / "volumes.h5", "w") as file:
        file.create_dataset("volume", data=volume, chunks=(1, 4, 8, 8), compression="gzip", shuffle=True)
        file.create_dataset("segmentation", data=volume > 0, chunks=(2, 9, 8, 8), compression="gzip")
    return path


def scans(path, draw):
    """Groups, two channels and a transform for each."""
    for i in range(COUNT):
        density = draw.integers(-1000, 1000, (2, *SHAPE)).astype("i2")
        density[1] = abs(density[1])
        with h5py.File(path / f"scan{i:03}.h5", "w") as file:
            file["scan/density"] = density
            file["scan/organs"] = (density[0] > 0).astype("u1")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("launch", nargs="+", help="the program, and before it how its ranks are started")
    launch = parser.parse_args().launch
    faults = 0
    for form in (mlperf, lbann, segmentation, scans):
        with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
            path = form(Path(folder), numpy.random.default_rng(1))
            job = subprocess.run([*launch, form.__name__, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            print(f"{form.__name__}: {job.stdout.strip()}, ends with {job.returncode}", flush=True)
            faults += job.returncode != 0
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
