#!/usr/bin/python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Takes the weights of a Tessera checkpoint to PyTorch, and weights of PyTorch to Tessera.

    convert_weights.py to-torch CHECKPOINT.h5 STATE.pt      a checkpoint, or what save_weights wrote
    convert_weights.py from-torch STATE.pt WEIGHTS.h5       a file for load_weights
    convert_weights.py from-torch STATE.pt CHECKPOINT.h5 --like OLD.h5
                                                            OLD with these weights: to go on training with them

Names and shapes are PyTorch's: conv1.weight (out, in, depth, height, width), batch_norm1.running_mean and so on. A module
whose attributes have other names needs --names, a JSON file {"conv1": "features.0", ...} of ours and theirs.

Needs h5py and PyTorch: apt-get install python3-h5py python3-torch.
"""

import argparse
import json
import os
import pathlib
import pickle
import shutil
import sys
import zlib

HEADER = 512  # bytes before the HDF5 file in a checkpoint, which say its length and checksum
MARK = b"tessera checkpoint\n"


class Fault(Exception):
    """What cannot be done, in one line."""


def fsynced(path):
    """Lets a file that was written reach the disk."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.close(file)


def seal(path):
    """Gives a checkpoint that was changed the header that fits it."""
    with open(path, "r+b") as file:
        words = dict(line.split(" ", 1) for line in file.read(HEADER).rstrip(b"\0").decode().splitlines()[1:])
        size = os.path.getsize(path)

        def header(checksum):
            text = (f"{MARK.decode()}format {words['format']}\nlibrary {words['library']}\nbytes {size}\n"
                    f"crc32 {checksum:08x}\n")
            return text.encode().ljust(HEADER, b"\0")

        checksum = zlib.crc32(header(0))
        file.seek(HEADER)
        while piece := file.read(1 << 20):
            checksum = zlib.crc32(piece, checksum)
        file.seek(0)
        file.write(header(checksum))


def is_checkpoint(path):
    with open(path, "rb") as file:
        return file.read(len(MARK)) == MARK


def weights_of(file):
    """Parameters and running statistics in an HDF5 file, by name."""
    import h5py
    return {name: item for name, item in file.items() if isinstance(item, h5py.Dataset)}


def renamed(name, names):
    """conv1.weight, by the names of {"conv1": ...}."""
    layer, dot, rest = name.rpartition(".")
    return names.get(name, names.get(layer, layer) + dot + rest)


def to_torch(source, target, names):
    import h5py
    import torch
    state = {}
    with h5py.File(source, "r") as file:
        weights = weights_of(file)
        if not weights:
            raise Fault(f"'{source}' must hold weights, but it holds none at its top")
        kind = next((item.dtype for name, item in weights.items() if name.endswith(".weight")), "f4")
        steps = int(file["training"].attrs["optimizer_steps"]) if "training" in file else 0
        for name, item in weights.items():
            state[renamed(name, names)] = torch.from_numpy(item[...].astype(kind))
            if name.endswith(".running_mean"):  # which PyTorch counts, and we do not
                state[renamed(name[:-len("running_mean")] + "num_batches_tracked", names)] = torch.tensor(steps)
    torch.save(state, target + ".part")
    fsynced(target + ".part")
    os.replace(target + ".part", target)
    return len(weights)


def from_torch(source, target, names, like):
    import h5py
    import numpy
    import torch
    state = torch.load(source, map_location="cpu")
    state = state.get("state_dict", state) if isinstance(state, dict) else state
    if not isinstance(state, dict) or not all(torch.is_tensor(value) for value in state.values()):
        raise Fault(f"'{source}' must hold a state dict, names with tensors; save module.state_dict()")
    theirs = {value: key for key, value in names.items()}
    given = {renamed(name, theirs): value.detach().numpy() for name, value in state.items()
             if not name.endswith("num_batches_tracked")}
    part = target + ".part"
    if like is None:
        with h5py.File(part, "w") as file:
            for name, values in given.items():
                running = name.endswith((".running_mean", ".running_var"))
                file[name] = values.astype(numpy.float64) if running else values
    else:
        if not is_checkpoint(like):
            raise Fault(f"'{like}' must be a checkpoint, but it does not begin like one")
        shutil.copyfile(like, part)
        with h5py.File(part, "r+") as file:
            there = weights_of(file)
            if given.keys() != there.keys():
                differ = sorted(given.keys() ^ there.keys())
                raise Fault(f"'{source}' and '{like}' must hold the same names, but '{differ[0]}' is in one alone; give --names")
            for name, item in there.items():
                if item.shape != given[name].shape:
                    raise Fault(f"'{name}' must have the shape {item.shape} as in '{like}', but in '{source}' it has {given[name].shape}")
                item[...] = given[name]
        seal(part)
    fsynced(part)
    os.replace(part, target)
    return len(given)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("direction", choices=["to-torch", "from-torch"])
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--names", help="JSON file of our names and PyTorch's")
    parser.add_argument("--like", help="from-torch: the checkpoint whose weights are replaced")
    options = parser.parse_args()
    try:
        if options.like is not None and options.direction == "to-torch":
            raise Fault("--like goes with from-torch alone")
        names = {}
        if options.names is not None:
            with open(options.names) as file:
                names = json.load(file)
        if options.direction == "to-torch":
            count = to_torch(options.source, options.target, names)
        else:
            count = from_torch(options.source, options.target, names, options.like)
        print(f"convert_weights: wrote '{options.target}', {count} tensors")
    except ImportError as missing:
        sys.exit(f"convert_weights: {missing}; apt-get install python3-h5py python3-torch, and run with /usr/bin/python3")
    except (Fault, OSError) as fault:
        sys.exit(f"convert_weights: {fault}")
    except (pickle.UnpicklingError, RuntimeError, TypeError, ValueError) as fault:
        sys.exit(f"convert_weights: '{options.source}' and '--names' must be readable: {' '.join(str(fault).split())[:200]}")
    finally:
        part = pathlib.Path(options.target + ".part")
        part.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
