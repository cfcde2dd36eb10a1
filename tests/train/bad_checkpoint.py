# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Lets a training on 4 ranks go on from checkpoints that it cannot use: each job must end in time, everywhere, not with
zero, and with one line that says what is wrong with which file."""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

import h5py
import numpy

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "examples"), str(HERE.parents[1] / "scripts")]
from bad_input import Jobs  # noqa: E402
from convert_weights import seal  # noqa: E402

EPOCHS = "2"
NEWEST, BEFORE = "checkpoint-0000000014.h5", "checkpoint-0000000012.h5"


class Folder:
    """A folder with one checkpoint to spoil, and perhaps a good one before it."""

    def __init__(self, jobs, good, scratch):
        self.jobs, self.good, self.path = jobs, good, scratch / "run"
        self.newest, self.before = self.path / NEWEST, self.path / BEFORE

    def fresh(self, with_previous=False):
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir()
        shutil.copy(self.good / NEWEST, self.newest)
        if with_previous:
            shutil.copy(self.good / BEFORE, self.before)

    def refused(self, name, message, spoil, launch=None, with_previous=False, arguments=None):
        self.fresh(with_previous)
        spoil(self.newest)
        self.jobs.refused(name, arguments or [self.path, EPOCHS], message, launch)


def cut(size):
    return lambda path: os.truncate(path, size)


def flip(at):
    def spoil(path):
        with open(path, "r+b") as file:
            file.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
            where, byte = file.tell(), file.read(1)[0]
            file.seek(where)
            file.write(bytes([byte ^ 0x20]))
    return spoil


def edit(change):
    """What a program wrote that meant it so: the header fits."""
    def spoil(path):
        with h5py.File(path, "r+") as file:
            change(file)
        seal(path)
    return spoil


def replace(name, values):
    def change(file):
        del file[name]
        file[name] = values
    return edit(change)


def replace_bytes(old, new):
    return lambda path: path.write_bytes(path.read_bytes().replace(old, new, 1))


def check(jobs, good, scratch):
    folder = Folder(jobs, good, scratch)
    size = (good / NEWEST).stat().st_size
    file = f"'{folder.newest}'"
    ours = "load_checkpoint: "

    for length in (1, 100, 511, 512, 3000, size // 3, size // 2, size - 1):
        least = size if length >= 512 else "at least 512"
        folder.refused(f"cut to {length} of {size} bytes", f"{ours}{file} must have {least} bytes, but it has {length}; it was "
                       "not written or copied to its end", cut(length))
    folder.refused("empty", f"{ours}{file} must be a checkpoint, but it is empty", cut(0))
    folder.refused("longer", f"{ours}{file} must have {size} bytes, but it has {size + 9}; it was not written or copied to its "
                   "end", cut(size + 9))
    for name, at in (("in the outline", 600), ("in weights", size // 3), ("in the optimizer's numbers", size // 2), ("at the end", -1)):
        folder.refused(f"a flipped bit {name}", f"{ours}{file} is damaged: the checksum of its bytes is not what was written; take "
                       "another copy", flip(at))
    folder.refused("a flipped bit in the header", f"{ours}{file} is damaged: its header is not as it was written; take another copy",
                   flip(400))
    folder.refused("a flipped bit in the mark", f"{ours}{file} must be a checkpoint of Tessera, but it does not begin like one", flip(3))
    folder.refused("a newer format", f"{ours}{file} is of format 9, written by Tessera ..., but this version reads formats up to 1; "
                   "use the newer one", replace_bytes(b"format 1", b"format 9"))
    folder.refused("a text", f"{ours}{file} must be a checkpoint of Tessera, but it does not begin like one",
                   lambda path: path.write_text("epoch,loss\n" * 100))

    def foreign(path):
        path.unlink()
        with h5py.File(path, "w") as data:
            data["x"] = numpy.zeros((4, 16))
    folder.refused("another HDF5 file", f"{ours}{file} must be a checkpoint of Tessera, but it does not begin like one; it is another "
                   "HDF5 file", foreign)

    def a_folder(path):
        path.unlink()
        path.mkdir()
    folder.refused("a folder", f"{ours}{file} must be a checkpoint, but it is no file", a_folder)

    folder.refused("no weights", f"{ours}the file {file} must hold a dataset 'conv2.weight', but it holds ...",
                   edit(lambda data: data.pop("conv2.weight")))
    folder.refused("nothing of the optimizer", f"{ours}the file {file} must hold a dataset 'optimizer/adam/mean/conv1.weight', but it "
                   "holds ...", edit(lambda data: data.pop("optimizer")))
    folder.refused("no state", f"{ours}the file {file} must hold a group 'training', but it does not", edit(lambda data: data.pop("training")))
    folder.refused("no seed", f"{ours}the group 'training' in {file} must have an attribute 'seed', but it does not",
                   edit(lambda data: data["training"].attrs.pop("seed")))
    folder.refused("a batch of words", f"{ours}the attribute 'batch' of 'training' in {file} must be a number",
                   edit(lambda data: data["training"].attrs.create("batch", "three")))
    folder.refused("an optimizer of numbers", f"{ours}the attribute 'optimizer' of 'training' in {file} must be a text",
                   edit(lambda data: data["training"].attrs.create("optimizer", 3)))
    folder.refused("another optimizer", f"{ours}{file} was written with the optimizer 'adax', but this run has 'adam'; resume with the "
                   "same, or take the weights alone with load_weights",
                   edit(lambda data: data["training"].attrs.create("optimizer", numpy.bytes_("adax"))))
    folder.refused("weights of another shape", f"{ours}dataset 'dense1.bias' of {file} must have the shape (64) of this network, but its "
                   "shape is (63); give weights that were saved from the same network", replace("dense1.bias", numpy.zeros(63, "f4")))
    folder.refused("weights in double", f"{ours}dataset 'dense1.bias' of {file} must hold float as this network does, but it holds double; "
                   "take its weights alone, with load_weights", replace("dense1.bias", numpy.zeros(64)))
    folder.refused("whole numbers as weights", f"{ours}dataset 'dense1.bias' of {file} must hold float or double, but it holds integers; "
                   "give weights that were saved from the same network", replace("dense1.bias", numpy.zeros(64, "i4")))
    folder.refused("another network", f"{ours}{file} holds a network of 17 parameters and statistics, but this one has 16; resume with the "
                   "same network", edit(lambda data: data["training"].attrs.modify("network_datasets", 17)))
    folder.refused("another seed", "Trainer::fit: a training goes on with the samples, batch, seed and order that it began with, 20 samples "
                   "in batches of 3, seed 6, shuffled, but was given 20 samples in batches of 3, seed 5, shuffled",
                   edit(lambda data: data["training"].attrs.modify("seed", numpy.uint64(6))))

    # With one before it that is good.
    folder.refused("damaged, with a good one before it", f"CheckpointFolder: {ours}{file} must have {size} bytes, but it has 5000; it was "
                   f"not written or copied to its end; the previous good checkpoint is '{folder.before}': allow use-previous to go "
                   "on from it", cut(5000), with_previous=True)

    def both(path):
        os.truncate(path, 5000)
        os.truncate(folder.before, 4000)
    folder.refused("two damaged ones", f"CheckpointFolder: {ours}{file} must have {size} bytes, but it has 5000; it was not written or "
                   f"copied to its end; nor can any other checkpoint in '{folder.path}' be used", both, with_previous=True)

    # What one rank alone sees otherwise: the folder's name is relative, and rank 2 is elsewhere.
    there = scratch / "elsewhere"
    wrapper = ["sh", "-c", 'program=$1; shift; [ "$OMPI_COMM_WORLD_RANK" != 2 ] || cd elsewhere; exec "$program" "$@"', "sh"]
    launch = ["env", "-C", str(scratch)] + jobs.launch[:-1] + wrapper + jobs.launch[-1:]
    there.mkdir()
    folder.refused("no file for rank 2 alone", f"{ours}the file 'run/{NEWEST}' must be there and readable (No such file or directory)",
                   lambda path: None, launch, arguments=["run", EPOCHS])
    (there / "run").mkdir()
    shutil.copy(good / BEFORE, there / "run" / NEWEST)
    folder.refused("another file for rank 2 alone", f"{ours}all ranks must see the same file 'run/{NEWEST}', but they do not; put it where "
                   "all of them see it", lambda path: None, launch, arguments=["run", EPOCHS])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("launch", nargs="+", help="the program, and before it how four ranks of it are started")
    jobs = Jobs(parser.parse_args().launch)
    with tempfile.TemporaryDirectory(prefix="tessera-") as scratch:
        good = Path(scratch) / "good"
        code, output, faults = jobs.run([good, EPOCHS])
        if code != 0 or faults or not (good / NEWEST).exists() or not (good / BEFORE).exists():
            jobs.report("the training itself", [], faults + [f"ends with {code}"], output)
        else:
            check(jobs, good, Path(scratch))
    print(f"bad_checkpoint: {jobs.count} jobs, {jobs.faults} end otherwise than they should")
    return 1 if jobs.faults else 0


if __name__ == "__main__":
    sys.exit(main())
