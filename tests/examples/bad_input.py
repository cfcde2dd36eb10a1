# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Gives the cosmoflow program what it cannot use, on 4 ranks: each job must end in time, everywhere, not with zero, and
with one line that says what is wrong, in which file and dataset."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy

MARK = "TESSERA_BAD_INPUT_JOB"
LIMIT = 10  # seconds
NETWORK = ["--split", "depth=4", "--epochs", "1", "--batch", "2"]


class Jobs:
    """Runs jobs one after the other, prints what they say, and counts those that end otherwise than they should."""

    def __init__(self, launch):
        self.launch, self.count, self.faults = launch, 0, 0

    def run(self, arguments, launch=None):
        """The exit code, the output, and what is wrong with how the job ended."""
        self.count += 1
        mark = f"{os.getpid()}.{self.count}"
        began = time.monotonic()
        try:
            job = subprocess.run((launch or self.launch) + [str(a) for a in arguments], stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True, timeout=6 * LIMIT, env={**os.environ, MARK: mark})
        except subprocess.TimeoutExpired as hung:
            return 1, str(hung.stdout), [f"hangs: still there after {6 * LIMIT} s"]
        faults = []
        seconds = time.monotonic() - began
        if seconds > LIMIT:
            faults.append(f"takes {seconds:.1f} s, more than {LIMIT} s")
        while alive(mark) and time.monotonic() < began + LIMIT:
            time.sleep(0.1)
        if alive(mark):
            faults.append("leaves processes behind")
        return job.returncode, job.stdout, faults

    def refused(self, name, arguments, message, launch=None):
        """The job must say `message`, in which ... stands for anything."""
        code, output, faults = self.run(arguments, launch)
        lines = [line for line in output.splitlines() if "error:" in line.lower()]
        pattern = re.escape("tessera: error: " + message).replace(r"\.\.\.", ".*")
        if code == 0:
            faults.append("ends with zero")
        if len(lines) != 1 or not re.fullmatch(pattern, lines[0]):
            faults.append(f"must say '{message}'")
        self.report(name, lines, faults, output)

    def helped(self, name, arguments, words):
        """The job must succeed and say each of `words`, the first of them once."""
        code, output, faults = self.run(arguments)
        if code != 0:
            faults.append(f"ends with {code}")
        if output.count(words[0]) != 1 or not all(word in output for word in words):
            faults.append(f"must say '{words[0]}' once, and {words[1:]}")
        self.report(name, [], faults, output)

    def report(self, name, lines, faults, output):
        print(f"{name}: " + ("\n  ".join(lines) or "as it should"), flush=True)
        if faults:
            self.faults += 1
            print(f"  FAILED: {'; '.join(faults)}\n{output}", flush=True)


def alive(mark):
    """Whether a process of a job is still there."""
    wanted = f"{MARK}={mark}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


def data(path, x=(4, 16, 16, 16, 1), y=(4, 4), x_type="i2", y_type="f4"):
    """A file of zeros."""
    with h5py.File(path, "w") as file:
        for name, shape, kind in (("x", x, x_type), ("y", y, y_type)):
            if shape is not None:
                file[name] = numpy.zeros(shape, kind)
    return path


def check_files(jobs, folder):
    def refused(name, path, message):
        jobs.refused(name, ["train", "--data", path] + NETWORK, "Hdf5Source: " + message)

    path = folder / "data.h5"
    refused("no file", path, f"the file '{path}' must be there and readable (No such file or directory)")
    refused("a folder", folder, f"the folder '{folder}' must hold files whose names end in .h5 or .hdf5 or .hdf, but it holds nothing")
    path.write_text("")
    refused("an empty file", path, f"the file '{path}' must be an HDF5 file, but it is empty")
    path.write_text("universe,omega_m\n" * 100)
    refused("not HDF5", path, f"the file '{path}' must be an HDF5 file, but it does not begin like one")
    size = data(path).stat().st_size
    for bytes_left in (size - 1, size // 2, 3000, 90):
        os.truncate(data(path), bytes_left)
        refused(f"cut to {bytes_left} of {size} bytes", path,
                f"the file '{path}' must be a whole HDF5 file, but HDF5 says: ...; make it or copy it again")
    refused("no x", data(path, x=None), f"the file '{path}' must hold a dataset 'x', but it holds 'y'")
    refused("no y", data(path, y=None), f"the file '{path}' must hold a dataset 'y', but it holds 'x'")
    refused("x of rank 3", data(path, x=(4, 16, 16)),
            f"dataset 'x' of '{path}' must have the axes (sample, depth, height, width, channel) or, for one sample, "
            "(depth, height, width, channel), but its shape is (4, 16, 16)")
    refused("y of rank 1", data(path, y=(16,)),
            f"dataset 'y' of '{path}' must have the axes (sample, value), but its shape is (16)")
    kinds = "must hold int8, uint8, int16, uint16, int32, float or double, but it holds"
    refused("x of texts", data(path, x_type="S8"), f"dataset 'x' of '{path}' {kinds} something else than numbers")
    refused("y of pairs", data(path, y_type=[("mean", "f4"), ("deviation", "f4")]),
            f"dataset 'y' of '{path}' {kinds} something else than numbers")
    refused("x of int64", data(path, x_type="i8"), f"dataset 'x' of '{path}' {kinds} numbers of another size or sign")
    refused("no samples", data(path, x=(0, 16, 16, 16, 1), y=(0, 4)),
            f"datasets 'x' and 'y' of '{path}' must hold samples, but their shapes are (0, 16, 16, 16, 1) and (0, 4)")
    refused("another number of samples in y", data(path, y=(5, 4)),
            f"datasets 'x' and 'y' of '{path}' must have the same number of samples, but their shapes are "
            "(4, 16, 16, 16, 1) and (5, 4)")
    data(path)
    other = data(folder / "validation.h5", x=(4, 32, 16, 16, 1))
    jobs.refused("validation of another shape", ["train", "--data", path, "--validation", other] + NETWORK,
                 f"train: '{other}' must hold samples like those of '{path}', 16 x 16 x 16 x 1 cells with 4 values, but its "
                 "samples have 32 x 16 x 16 x 1 cells with 4 values")
    jobs.refused("values that the network does not predict", ["train", "--data", data(folder / "three.h5", y=(4, 3))] + NETWORK,
                 f"train: dataset 'y' of '{folder / 'three.h5'}' must hold the 4 values that the network predicts, but it "
                 "holds 3")
    # What one rank alone cannot read.
    wrapper = ["sh", "-c", 'program=$1 path=$2; shift 2; [ "$OMPI_COMM_WORLD_RANK" != 2 ] || path=$path.absent; '
               'exec "$program" train --data "$path" "$@"', "sh"]
    jobs.refused("no file on rank 2 alone", [path] + NETWORK,
                 f"Hdf5Source: the file '{path}.absent' must be there and readable (No such file or directory)",
                 jobs.launch[:-1] + wrapper + jobs.launch[-1:])


def check_options(jobs, folder):
    path = data(folder / "data.h5")

    def refused(name, options, message, first=("train", "--data", path)):
        jobs.refused(name, [*first, *options], message)

    refused("a split for 8 ranks", ["--split", "sample=2,depth=4"],
            "cosmoflow: --split must make as many parts as there are ranks, but 'sample=2,depth=4' makes 8 and there are 4; "
            "change the split or the number of ranks")
    refused("a split for more ranks than a number can say", ["--split", "sample=9223372036854775807,depth=9223372036854775807"],
            "cosmoflow: --split must make as many parts as there are ranks, but ... makes ... and there are 4; change the "
            "split or the number of ranks")
    refused("a split along channels", ["--split", "channel=4"],
            "cosmoflow: --split must cut sample, depth, height or width, but 'channel=4' cuts channel")
    known = "must be one of sample, channel, depth, height, width, as in sample=2,depth=2"
    number = "must be an axis and a whole number of at least 1, as in depth=2"
    refused("a split along an unknown axis", ["--split", "depht=4"], f"split: 'depht' {known}")
    refused("a split into words", ["--split", "depth=four"], f"split: 'depth=four' {number}")
    refused("a split into nothing", ["--split", "depth=0"], f"split: 'depth=0' {number}")
    refused("an axis split twice", ["--split", "depth=2,depth=2"], "split: 'depth' must be given only once")
    refused("an unknown network", ["--network", "unet"], "cosmoflow: --network must be paper or mlperf, not 'unet'")
    small = data(folder / "small.h5", x=(4, 8, 8, 8, 1))
    refused("cubes too small", [], f"cosmoflow: a sample must have at least 16 cells along each side, but it has 8 x 8 x 8",
            ("train", "--data", small))
    refused("batch 0", ["--batch", "0"], "train: --batch must be at least 1, it is 0")
    refused("no epochs", ["--epochs", "0"], "train: --epochs must be at least 1, it is 0")
    refused("micro-batch -1", ["--micro-batch", "-1"], "train: --micro-batch must be at least 0, it is -1")
    refused("rate 0", ["--rate", "0"], "train: --rate must be positive and finite, it is 0")
    refused("batch of words", ["--batch", "two"], "cosmoflow: ...two...; run with --help to see what can be given")
    refused("an unknown option", ["--batches", "2"], "cosmoflow: ...--batches...; run with --help to see what can be given")
    refused("no data", ["train"], "cosmoflow: --data is required; run with --help to see what can be given", ())
    refused("--every without --checkpoint", ["--every", "5"],
            "cosmoflow: --every requires --checkpoint; run with --help to see what can be given")
    refused("--use-previous without --resume", ["--checkpoint", folder / "run", "--use-previous"],
            "cosmoflow: --use-previous requires --resume; run with --help to see what can be given")
    refused("a negative memory", ["--memory", "-2"], "train: --memory must be at least 0, or -1 for no limit, it is -2")
    refused("to read -1 ahead", ["--ahead", "-1"], "train: --ahead must be between 0 and 1000, it is -1")
    refused("every -1 steps", ["--checkpoint", folder / "run", "--every", "-1"], "train: --every must be at least 0, it is -1")
    refused("to keep none", ["--checkpoint", folder / "run", "--keep", "0"], "train: --keep must be at least 1, it is 0")
    refused("checkpoints in a file", ["--checkpoint", path],
            f"CheckpointFolder: the folder '{path}' must be there, or creatable (...); choose another")
    earlier = folder / "earlier" / "checkpoint-0000000003.h5"
    earlier.parent.mkdir()
    earlier.write_text("")
    refused("a folder with checkpoints", ["--checkpoint", earlier.parent],
            f"CheckpointFolder: the folder '{earlier.parent}' holds checkpoints of an earlier training, '{earlier}' is the "
            "newest; resume it, or choose another folder")
    refused("no subcommand", [], "cosmoflow: A subcommand is required; run with --help to see what can be given", ())
    for option in ("--metrics", "--weights"):
        absent = folder / "absent" / "file"
        refused(f"{option} in no folder", [option, absent],
                f"train: the folder '{absent.parent}' of '{absent}' must exist (No such file or directory); create it or "
                "choose another")
        refused(f"{option} is a folder", [option, folder],
                f"train: '{folder}' must be the name of a file, but it is a folder; add a file name")


def check_predict(jobs, folder):
    path = data(folder / "data.h5")
    weights, out = folder / "weights.h5", folder / "out.json"
    code, output, faults = jobs.run(["train", "--data", path, "--weights", weights, "--no-norm"] + NETWORK)
    if code != 0 or faults:
        jobs.report("train", [], faults + [f"ends with {code}"], output)
        return

    def refused(name, options, message):
        jobs.refused(name, ["predict", "--data", path, "--out", out, *options], message)

    refused("no weights", ["--weights", folder / "absent.h5"],
            f"load_weights: the file '{folder / 'absent.h5'}' must be there and readable (No such file or directory)")
    refused("data for weights", ["--weights", path],
            f"load_weights: the file '{path}' must hold a dataset 'conv1.weight', but it holds 'x', 'y'")
    refused("weights without batch norm", ["--weights", weights],
            f"load_weights: the file '{weights}' must hold a dataset 'batch_norm1.weight', but it holds 'conv1.weight', ...")
    large = data(folder / "large.h5", x=(1, 32, 32, 32, 1), y=(1, 4))
    jobs.refused("weights of another network",
            ["predict", "--data", large, "--out", out, "--weights", weights, "--no-norm", "--network", "mlperf"],
            f"load_weights: dataset 'conv1.weight' of '{weights}' must have the shape (32, 1, 3, 3, 3) of this network, but its "
            "shape is (16, 1, 3, 3, 3); give weights that were saved from the same network")
    absent = folder / "absent" / "out"
    jobs.refused("out in no folder", ["predict", "--data", path, "--weights", weights, "--no-norm", "--out", absent],
                 f"predict: the folder '{absent.parent}' of '{absent}' must exist (No such file or directory); create it or "
                 "choose another")
    jobs.refused("predict without weights", ["predict", "--data", path, "--out", out],
                 "cosmoflow: --weights is required; run with --help to see what can be given")


def check_help(jobs):
    jobs.helped("help", ["--help"], ["CosmoFlow: from simulated universes", "simulate", "train", "predict"])
    jobs.helped("help simulate", ["simulate", "--help"], ["Simulate universes", "--out", "--count"])
    jobs.helped("help train", ["train", "--help"], ["Train a network", "--data", "--split"])
    jobs.helped("help predict", ["predict", "--help"], ["Predict the parameters", "--weights", "--out"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("launch", nargs="+", help="the program, and before it how four ranks of it are started")
    jobs = Jobs(parser.parse_args().launch)
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        check_files(jobs, Path(folder))
        check_options(jobs, Path(folder))
        check_predict(jobs, Path(folder))
    check_help(jobs)
    print(f"bad_input: {jobs.count} jobs, {jobs.faults} end otherwise than they should")
    return 1 if jobs.faults else 0


if __name__ == "__main__":
    sys.exit(main())
