# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Gives sources what they cannot read, on 4 ranks: each job must end in time, everywhere, not with zero, and with one line
that says what is wrong, in which file and dataset."""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

import h5py
import numpy

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from bad_input import Jobs  # noqa: E402

SUFFIXES = "must hold files whose names end in .h5 or .hdf5 or .hdf, but it holds"
KINDS = "must hold int8, uint8, int16, uint16, int32, float or double, but it holds"


def write(path, datasets, **options):
    """A file of zeros, or of the arrays given, by name."""
    with h5py.File(path, "w") as file:
        for name, content in datasets.items():
            array = content if isinstance(content, numpy.ndarray) else numpy.zeros(*content)
            file.create_dataset(name, data=array, **options)
    return path


def universe(path, shape=(8, 6, 6, 2), values=(4,), kind="i2"):
    return write(path, {"x": (shape, kind), "y": (values, "f4")})


def folder_of(path, count=3):
    """A folder of good files, one sample each, to be spoilt."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    for i in range(count):
        universe(path / f"universe{i}.h5")
    return path


def check_good(jobs, folder):
    """What is spoilt below is read when it is not."""
    code, output, faults = jobs.run([folder_of(folder / "good"), "plain", "finite"])
    if code != 0:
        faults.append(f"ends with {code}")
    jobs.report("good files", [], faults, output)
    code, output, faults = jobs.run([write(folder / "masks.h5", {"volume": ((8, 6, 6), "f4"), "segmentation": ((8, 6, 6), "?")}), "masks"])
    if code != 0:
        faults.append(f"ends with {code}")
    jobs.report("a good mask", [], faults, output)


def check_damage(jobs, folder):
    path = folder / "damaged.h5"
    whole = "must be a whole HDF5 file, but HDF5 says: ...; make it or copy it again"
    for layout, options in (("contiguous", {}), ("packed", {"compression": "gzip", "shuffle": True})):
        noise = numpy.random.default_rng(1).integers(0, 3000, (2, 8, 6, 6, 2)).astype("i2")
        write(path, {"x": noise, "y": ((2, 4), "f4")}, **options)
        size = path.stat().st_size
        for left in (size - 1, size * 3 // 4, size // 2, 1000, 200, 12):
            write(path, {"x": noise, "y": ((2, 4), "f4")}, **options)
            os.truncate(path, left)
            jobs.refused(f"{layout}, cut to {left} of {size} bytes", [path, "plain"], f"Hdf5Source: the file '{path}' {whole}")
    os.truncate(path, 4)
    jobs.refused("cut within the signature", [path, "plain"],
                 f"Hdf5Source: the file '{path}' must be an HDF5 file, but it does not begin like one")

    write(path, {"x": ((8, 6, 6, 2), "i2"), "y": ((4,), "f4")}, compression="lzf")
    jobs.refused("packed with what HDF5 lacks", [path, "plain"],
                 f"Hdf5Source: dataset 'x' of '{path}' must be packed with filters that this HDF5 has, but filter 32000 'lzf' is "
                 "missing; name its folder in HDF5_PLUGIN_PATH, or pack the file with gzip")

    # The planes of one rank alone: chunks are as deep as its box.
    noise = numpy.random.default_rng(1).integers(0, 3000, (2, 8, 6, 6, 2)).astype("i2")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=noise, chunks=(1, 2, 6, 6, 2), compression="gzip", shuffle=True, fletcher32=True)
        file["y"] = numpy.zeros((2, 4), "f4")
    with h5py.File(path) as file:
        chunks = [file["x"].id.get_chunk_info(i) for i in range(file["x"].id.get_num_chunks())]
    victim = next(c for c in chunks if c.chunk_offset[:2] == (1, 4))
    with open(path, "r+b") as file:
        file.seek(victim.byte_offset + victim.size // 2)
        file.write(b"\xff" * 8)
    jobs.refused("a damaged chunk that rank 2 alone reads", [path, "plain"],
                 f"Hdf5Source: dataset 'x' of '{path}' must be readable, but HDF5 says: ...; the file may be damaged: make "
                 "it or copy it again")


def check_content(jobs, folder):
    path = folder / "content.h5"

    def refused(name, schema, datasets, message, *options):
        jobs.refused(name, [write(path, datasets), schema, *options], f"Hdf5Source: {message}")

    full, par = ((2, 8, 6, 6), "i2"), ((4,), "f4")
    refused("no full", "lbann", {"x": full, "unitPar": par},
            f"the file '{path}' must hold a dataset 'full', but it holds 'unitPar', 'x'")
    refused("no unitPar", "lbann", {"full": full}, f"the file '{path}' must hold a dataset 'unitPar', but it holds 'full'")
    refused("an empty file", "lbann", {}, f"the file '{path}' must hold a dataset 'full', but it holds nothing")
    refused("full without channels", "lbann", {"full": ((8, 6, 6), "i2"), "unitPar": par},
            f"dataset 'full' of '{path}' must have the axes (sample, channel, depth, height, width) or, for one sample, "
            "(channel, depth, height, width), but its shape is (8, 6, 6)")
    refused("a number instead of a vector", "lbann", {"full": full, "unitPar": ((), "f4")},
            f"dataset 'unitPar' of '{path}' must have the axes (value), but its shape is ()")
    refused("a sample axis in one dataset alone", "segmentation", {"volume": ((1, 8, 6, 6), "f4"), "segmentation": ((1, 1, 8, 6, 6), "u1")},
            f"dataset 'segmentation' of '{path}' must have the axes (channel, depth, height, width), but its shape is "
            "(1, 1, 8, 6, 6)")
    refused("labels of another size", "segmentation", {"volume": ((1, 8, 6, 6), "f4"), "segmentation": ((1, 8, 6, 5), "u1")},
            f"datasets 'volume' and 'segmentation' of '{path}' must have the same depth, height and width, but their shapes are "
            "(1, 8, 6, 6) and (1, 8, 6, 5)")
    refused("masks for fewer samples", "masks", {"volume": ((3, 8, 6, 6), "f4"), "segmentation": ((2, 8, 6, 6), "?")},
            f"datasets 'volume' and 'segmentation' of '{path}' must have the same number of samples, but their shapes are "
            "(3, 8, 6, 6) and (2, 8, 6, 6)")
    refused("no cells", "masks", {"volume": ((8, 0, 6), "f4"), "segmentation": ((8, 0, 6), "u1")},
            f"datasets 'volume' and 'segmentation' of '{path}' must hold samples, but their shapes are (8, 0, 6) and (8, 0, 6)")
    for kind, what in (("i8", "numbers of another size or sign"), ("u4", "numbers of another size or sign"),
                       ("f2", "numbers of another size or sign"), ("S4", "something else than numbers"),
                       ("c8", "something else than numbers")):
        refused(f"cells of {kind}", "lbann", {"full": (full[0], kind), "unitPar": par}, f"dataset 'full' of '{path}' {KINDS} {what}")
    refused("transforms for other channels", "three", {"x": ((8, 6, 6, 2), "i2"), "y": par},
            "the transforms must be none, one for all channels, or one for each of 2, but there are 3")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (2 ** 33, 2 ** 20, 2 ** 10, 1), "i2", chunks=(1, 16, 16, 1))
        file["y"] = numpy.zeros(4, "f4")
    jobs.refused("more cells than there can be", [path, "plain"],
                 f"Hdf5Source: datasets 'x' and 'y' of '{path}' must have less than 2^60 cells, but their shapes are "
                 "(8589934592, 1048576, 1024, 1) and (4)")

    for name, value, text in (("NaN", numpy.nan, "nan"), ("an infinity", -numpy.inf, "-inf")):
        x = numpy.ones((8, 6, 6, 2), "f4")
        x[5, 1, 2, 1] = value
        refused(name, "plain", {"x": x, "y": par},
                f"dataset 'x' of '{path}' must hold finite numbers, but sample 0 has {text} at depth 5, height 1, width 2, "
                "channel 1", "finite")
    x = numpy.ones((8, 6, 6, 2), "i2")
    x[3, 0, 5, 0] = -1
    refused("a count without a logarithm", "mlperf", {"x": x, "y": par},
            f"dataset 'x' of '{path}' must hold numbers above -1, to have a logarithm of 1 + x, but sample 0 has -1 at depth 3, "
            "height 0, width 5, channel 0", "finite")
    refused("NaN in the target", "plain", {"x": ((8, 6, 6, 2), "i2"), "y": numpy.array([0, numpy.nan], "f8")},
            f"dataset 'y' of '{path}' must hold finite numbers, but sample 0 has nan at depth 0, height 0, width 0, channel 1",
            "finite")


def check_folders(jobs, folder):
    path = folder / "universes"

    def refused(name, message, *options):
        jobs.refused(name, [path, "plain", *options], f"Hdf5Source: {message}")

    path.mkdir()
    refused("an empty folder", f"the folder '{path}' {SUFFIXES} nothing")
    (path / "universe0.npy").touch()
    (path / ".hidden.h5").touch()
    refused("a folder of other files", f"the folder '{path}' {SUFFIXES} only other files")
    first, last = path / "universe0.h5", path / "universe2.h5"
    same = "must hold samples of the same shape and type in all files, but those of"
    universe(folder_of(path) / last.name, (8, 6, 6, 1))
    refused("a file with other channels", f"dataset 'x' {same} '{first}' are (8, 6, 6, 2) of int16, and those of '{last}' (8, 6, 6, 1) of int16")
    universe(folder_of(path) / last.name, values=(3,))
    refused("a file with other values", f"dataset 'y' {same} '{first}' are (4) of float32, and those of '{last}' (3) of float32")
    universe(folder_of(path) / last.name, kind="u2")
    refused("a file of another type", f"dataset 'x' {same} '{first}' are (8, 6, 6, 2) of int16, and those of '{last}' (8, 6, 6, 2) of uint16")
    (folder_of(path) / last.name).write_text("universe")
    refused("a file among them that is none", f"the file '{last}' must be an HDF5 file, but it does not begin like one")
    os.truncate(folder_of(path) / last.name, 3000)
    refused("a short file among them", f"the file '{last}' must be a whole HDF5 file, but HDF5 says: ...; make it or copy it again")
    (folder_of(path) / last.name).unlink()
    last.symlink_to(path / "elsewhere.h5")
    refused("a link that leads nowhere", f"the file '{last}' must be there and readable (No such file or directory)")
    (folder_of(path) / "universe3.h5").mkdir()
    refused("a folder among the files", f"'{path / 'universe3.h5'}' must be an HDF5 file, but it is a folder")

    # What one rank alone cannot read.
    for rank in (0, 2):
        other = folder_of(folder / "other")
        os.truncate(other / "universe0.h5", 3000)
        folder_of(path)
        refused(f"a short file on rank {rank} alone",
                f"the file '{other / 'universe0.h5'}' must be a whole HDF5 file, but HDF5 says: ...; make it or copy it again",
                f"rank={rank}", f"path={other}")
    refused("no folder on rank 3 alone", f"the file '{folder}/absent/universe0.h5' must be there and readable (No such file or directory)",
            "rank=3", f"path={folder}/absent")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("launch", nargs="+", help="the program, and before it how four ranks of it are started")
    jobs = Jobs(parser.parse_args().launch)
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        for check in (check_good, check_damage, check_content, check_folders):
            check(jobs, Path(folder))
    print(f"bad_source: {jobs.count} jobs, {jobs.faults} end otherwise than they should")
    return 1 if jobs.faults else 0


if __name__ == "__main__":
    sys.exit(main())
