#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Draws what a CosmoFlow run made: its losses, its predictions, and one universe of its data."""

import argparse
import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import h5py
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

# Name in the metrics, label, centre; parameters lie within 30 % of their centres (cosmology.hpp).
PARAMETERS = [
    ("omega_m", r"$\Omega_m$", 0.3089),
    ("sigma_8", r"$\sigma_8$", 0.8159),
    ("n_s", r"$n_s$", 0.9667),
    ("h", r"$h$", 0.6774),
]
SPREAD = 0.3
BLUE, ORANGE, GREY = "#2a6f97", "#e07a1f", "#8a8f98"

STYLE = {
    "figure.dpi": 150,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.grid": True,
    "grid.color": "#e6e8eb",
    "axes.axisbelow": True,
    "legend.frameon": False,
}


def fail(message):
    sys.exit(f"plot: {message}")


def read_json(path, *keys):
    try:
        content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        fail(f"'{path}' must be a readable JSON file ({error}); run the training first")
    for key in keys:
        if not isinstance(content, dict) or not content.get(key):
            fail(f"'{path}' must hold '{key}', not empty; run the training again")
    return content


def draw_loss(metrics, path):
    epochs = [e["epoch"] for e in metrics["epochs"]]
    figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
    for key, label, colour in (("train_loss", "training", BLUE), ("validation_loss", "validation", ORANGE)):
        values = [np.nan if e.get(key) is None else e[key] for e in metrics["epochs"]]
        if np.all(np.isnan(values)):
            continue
        axes.plot(epochs, values, color=colour, label=label, marker="o", markersize=3.5, linewidth=1.8)
    # A network that always answers the centre has the variance of a uniform number in [-1, 1].
    axes.axhline(1 / 3, color=GREY, linestyle="--", linewidth=1)
    axes.annotate(
        "always predicting the centre", (1, 1 / 3), xycoords=("axes fraction", "data"), xytext=(-4, 4),
        textcoords="offset points", ha="right", va="bottom", color=GREY, fontsize=8,
    )
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="epoch", ylabel="mean squared error", title="Loss")
    axes.legend()
    figure.savefig(path)
    plt.close(figure)


def draw_scatter(metrics, predictions, path):
    true = np.asarray(predictions["true"], dtype=float)
    predicted = np.asarray(predictions["predicted"], dtype=float)
    if true.ndim != 2 or true.shape[1] != len(PARAMETERS) or true.shape != predicted.shape:
        fail(f"'true' and 'predicted' must both be of shape (N, 4), they are {true.shape} and {predicted.shape}")
    figure, panels = plt.subplots(1, 4, figsize=(14, 4), layout="constrained")
    for i, (axes, (name, label, centre)) in enumerate(zip(panels, PARAMETERS)):
        x = centre * (1 + SPREAD * true[:, i])
        y = centre * (1 + SPREAD * predicted[:, i])
        low, high = centre * (1 - SPREAD), centre * (1 + SPREAD)
        margin = 0.06 * (high - low)
        limits = (low - margin, high + margin)
        axes.plot(limits, limits, color=GREY, linewidth=1)
        beyond = np.count_nonzero((y < limits[0]) | (y > limits[1]))
        axes.scatter(x, np.clip(y, *limits), s=14, color=BLUE, alpha=0.65, linewidths=0, clip_on=False)
        if beyond:
            axes.annotate(f"{beyond} beyond the frame", (0.03, 0.97), xycoords="axes fraction", va="top", fontsize=8,
                          color=GREY)
        axes.set(xlim=limits, ylim=limits, aspect="equal", xlabel="true", title=label)
        ratio = metrics["ratios"].get(name)
        if ratio is not None:
            axes.set_title(f"{label}    ratio {ratio:.2f}")
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.yaxis.set_major_locator(MaxNLocator(4))
    panels[0].set_ylabel("predicted")
    figure.suptitle("Predicted against true; ratio = mean squared error / that of predicting the training mean")
    figure.savefig(path)
    plt.close(figure)


def draw_universe(path_in, index, path):
    try:
        with h5py.File(path_in, "r") as file:
            count = file["x"].shape[0]
            if not 0 <= index < count:
                fail(f"--universe must lie between 0 and {count - 1}, it is {index}")
            x = file["x"][index]
            redshifts = [float(z) for z in np.atleast_1d(file.attrs.get("redshifts", []))]
            box = float(file.attrs.get("box_mpc_per_h", x.shape[0]))
            unit = "Mpc/h" if "box_mpc_per_h" in file.attrs else "voxels"
            parameters = file["parameters"][index] if "parameters" in file else None
    except (OSError, KeyError) as error:
        fail(f"'{path_in}' must be an HDF5 file with a dataset 'x' ({error}); run the simulation first")
    # A slab of 16 Mpc/h: enough particles to see the web, thin enough not to blur it.
    slab = min(x.shape[0], max(1, round(16 * x.shape[0] / box if unit == "Mpc/h" else x.shape[0] / 16)))
    mean = x[:slab].sum(axis=0).astype(float)
    # From the youngest universe to today; each channel over its own mean.
    order = np.argsort(redshifts)[::-1] if len(redshifts) == x.shape[-1] else np.arange(x.shape[-1])
    density = [np.clip(mean[..., c] / max(mean[..., c].mean(), 1e-9), 0.08, None) for c in order]
    highest = max(float(np.percentile(d, 99.8)) for d in density)
    norm = LogNorm(vmin=0.1, vmax=max(highest, 1.0))
    figure, panels = plt.subplots(1, len(density), figsize=(3.5 * len(density) + 1.1, 4.5), layout="constrained",
                                  squeeze=False)
    for axes, c, d in zip(panels[0], order, density):
        image = axes.imshow(d, origin="lower", extent=(0, box, 0, box), cmap="inferno", norm=norm)
        axes.grid(False)
        axes.set(xlabel=unit, title=f"z = {redshifts[c]:g}" if len(redshifts) == x.shape[-1] else f"channel {c}")
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.spines[:].set_visible(False)
    panels[0][0].set_ylabel(unit)
    for axes in panels[0][1:]:
        axes.tick_params(labelleft=False)
    bar = figure.colorbar(image, ax=panels, label="particles / mean", shrink=0.75, extend="both", pad=0.01)
    bar.ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    bar.ax.yaxis.set_major_formatter("{x:g}")
    bar.ax.yaxis.set_minor_locator(NullLocator())
    title = f"One universe, a slab of {slab * box / x.shape[0]:g} {unit}"
    if parameters is not None:
        title += ":  " + ",  ".join(f"{p[1]} = {v:.3f}" for p, v in zip(PARAMETERS, parameters))
    figure.suptitle(title)
    figure.savefig(path)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--metrics", required=True, metavar="FILE", help="metrics.json that training wrote")
    parser.add_argument("--data", required=True, metavar="FILE", help="HDF5 file of universes, one of which is drawn")
    parser.add_argument("--predictions", required=True, metavar="FILE", help="predictions.json that prediction wrote")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for loss.png, scatter.png, universe.png")
    parser.add_argument("--universe", type=int, default=0, metavar="N", help="which universe to draw (default 0)")
    arguments = parser.parse_args()

    metrics = read_json(arguments.metrics, "epochs", "ratios")
    predictions = read_json(arguments.predictions, "true", "predicted")
    out = pathlib.Path(arguments.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with plt.rc_context(STYLE):
            draw_loss(metrics, out / "loss.png")
            draw_scatter(metrics, predictions, out / "scatter.png")
            draw_universe(arguments.data, arguments.universe, out / "universe.png")
    except OSError as error:
        fail(f"'{out}' must be a folder that can be written to ({error}); choose another --out")


if __name__ == "__main__":
    main()
