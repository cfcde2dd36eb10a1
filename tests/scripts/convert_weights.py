# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Trains CosmoFlow with the example, takes the checkpoint to PyTorch, and weights of PyTorch back: both must predict the
same. Ends with 77, which is no failure, where there is no PyTorch."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "convert_weights.py"
TOLERANCE = 1e-5

try:
    import h5py
    import numpy
    import torch
    from torch import nn
except ImportError as missing:
    print(f"convert_weights: skipped, since {missing}; scripts/setup --fixtures installs PyTorch")
    sys.exit(77)


class CosmoFlow(nn.Module):
    """The network of Oyama et al. (2021) for cubes of 32 cells, as examples/cosmoflow has it, with batch norm."""

    def __init__(self, channels):
        super().__init__()
        widths = [channels, 16, 32, 64, 128, 256]
        for i in range(1, 6):
            self.add_module(f"conv{i}", nn.Conv3d(widths[i - 1], widths[i], 3, 2 if i == 4 else 1, 1, bias=False))
            self.add_module(f"batch_norm{i}", nn.BatchNorm3d(widths[i]))
        self.dense1, self.dense2, self.dense3 = nn.Linear(2048, 2048), nn.Linear(2048, 256), nn.Linear(256, 4)

    def forward(self, x):
        for i in range(1, 6):
            x = nn.functional.leaky_relu(getattr(self, f"batch_norm{i}")(getattr(self, f"conv{i}")(x)), 0.01)
            if i <= 3:
                x = nn.functional.avg_pool3d(x, 3, 2, 1)
        x = nn.functional.leaky_relu(self.dense1(x.flatten(1)), 0.01)
        x = nn.functional.leaky_relu(self.dense2(x), 0.01)
        return self.dense3(x)


class Failed(Exception):
    pass


def run(command):
    job = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if job.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))} ends with {job.returncode}:\n{job.stdout}")
    return job.stdout


def refused(command, words):
    job = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if job.returncode == 0 or words not in job.stdout or len(job.stdout.splitlines()) != 1:
        raise Failed(f"{' '.join(map(str, command))} must say '{words}' in one line, but ends with {job.returncode}:\n{job.stdout}")


def check(launch, folder):
    data, weights, out = folder / "data.h5", folder / "weights.h5", folder / "out.json"
    random = numpy.random.default_rng(3)
    with h5py.File(data, "w") as file:
        file["x"] = random.poisson(8, (3, 32, 32, 32, 2)).astype("i2")
        file["y"] = random.uniform(-1, 1, (3, 4)).astype("f4")
    with h5py.File(data) as file:
        x = torch.from_numpy(numpy.log1p(file["x"][...].astype("f4"))).permute(0, 4, 1, 2, 3).contiguous()
    train = launch + ["train", "--data", data, "--epochs", 2, "--batch", 2, "--checkpoint", folder / "run"]
    run(train)
    checkpoint = sorted((folder / "run").glob("checkpoint-*.h5"))[-1]
    convert = [sys.executable, SCRIPT]

    def ours(file):
        run(launch + ["predict", "--data", data, "--weights", file, "--out", out, "--batch", 3])
        return torch.tensor(json.loads(out.read_text())["predicted"])

    def theirs(state):
        net = CosmoFlow(2)
        net.load_state_dict(state)
        net.eval()
        with torch.no_grad():
            return net(x)

    def same(name, a, b):
        difference = ((a - b).abs().max() / b.abs().max()).item()
        print(f"convert_weights: {name}: outputs up to {b.abs().max().item():.3f} differ by {difference:.1e} of that")
        if not difference <= TOLERANCE or b.std() == 0:
            raise Failed(f"{name}: more than {TOLERANCE}")

    run(convert + ["to-torch", checkpoint, folder / "state.pt"])
    state = torch.load(folder / "state.pt")
    same("checkpoint to PyTorch", theirs(state), ours(checkpoint))

    torch.manual_seed(5)
    net = CosmoFlow(2)
    net(x)  # moves the running statistics
    torch.save(net.state_dict(), folder / "state.pt")
    run(convert + ["from-torch", folder / "state.pt", weights])
    same("PyTorch to weights", ours(weights), theirs(net.state_dict()))

    # A checkpoint with these weights goes on; one of other names is refused, and a map of names helps.
    other = folder / "other" / checkpoint.name
    other.parent.mkdir()
    run(convert + ["from-torch", folder / "state.pt", other, "--like", checkpoint])
    same("PyTorch to checkpoint", ours(other), theirs(net.state_dict()))
    said = run(train[:-1] + [other.parent, "--resume"])
    if f"train: goes on from '{other}'" not in said:
        raise Failed(f"the converted checkpoint is not resumed:\n{said}")
    torch.save({name.replace("conv1", "first"): value for name, value in net.state_dict().items()}, folder / "named.pt")
    command = convert + ["from-torch", folder / "named.pt", folder / "named.h5", "--like", checkpoint]
    refused(command, "must hold the same names, but 'conv1.weight' is in one alone; give --names")
    (folder / "names.json").write_text('{"conv1": "first"}')
    run(command + ["--names", folder / "names.json"])
    same("other names", ours(folder / "named.h5"), theirs(net.state_dict()))
    run(convert + ["to-torch", folder / "named.h5", folder / "back.pt", "--names", folder / "names.json"])
    back = torch.load(folder / "back.pt")
    if not torch.equal(back["first.weight"], net.state_dict()["conv1.weight"]):
        raise Failed("there and back must give the same weights")
    refused(convert + ["from-torch", folder / "state.pt", weights, "--like", data], "must be a checkpoint, but it does not begin like one")
    refused(convert + ["to-torch", folder / "absent.h5", folder / "state.pt"], "absent.h5")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("launch", nargs="+", help="the cosmoflow program, and before it how its ranks are started")
    launch = parser.parse_args().launch
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        try:
            check(launch, Path(folder))
        except Failed as failed:
            print(f"FAILED: {failed}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
