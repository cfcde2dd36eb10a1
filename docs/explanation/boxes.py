#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Draws boxes.svg: python3 docs/explanation/boxes.py [another file, such as boxes.png]"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

COLOURS = ["#cfe3f1", "#f6dcc0", "#d5e8c8", "#ead3ea", "#f7efb6", "#d9d9e3"]
STRONG = ["#2a6f97", "#c8641b", "#3f7d2a", "#8d3f8d", "#9c8405", "#55556f"]
INK, GREY = "#222831", "#8a8f98"

plt.rcParams.update({"font.size": 10, "svg.hashsalt": "boxes", "svg.fonttype": "path", "hatch.linewidth": 0.6})


def block_range(n, parts, i):
    each, longer = divmod(n, parts)
    begin = i * each + min(i, longer)
    return begin, begin + each + (i < longer)


def intersect(a, b):
    return max(a[0], b[0]), min(a[1], b[1])


def box(axes, h, w, **style):
    axes.add_patch(Rectangle((w[0], h[0]), w[1] - w[0], h[1] - h[0], **style))


def middle(i):
    return (i[0] + i[1]) / 2


def halo(axes):
    """The halo of rank 2 under a 5 x 5 window: 10 x 12 cells, three blocks along height and two along width."""
    height, width, rank = 10, 12, 2
    rows = [block_range(height, 3, i) for i in range(3)]
    columns = [block_range(width, 2, i) for i in range(2)]
    own = rows[rank // 2], columns[rank % 2]
    need = tuple((i[0] - 2, i[1] + 2) for i in own)
    for r in range(6):
        h, w = rows[r // 2], columns[r % 2]
        box(axes, h, w, facecolor=COLOURS[r], edgecolor="none")
        part = intersect(h, need[0]), intersect(w, need[1])
        if r != rank and part[0][0] < part[0][1] and part[1][0] < part[1][1]:
            box(axes, *part, facecolor=STRONG[r], alpha=0.45, edgecolor=STRONG[r], linewidth=1.2)
            axes.text(middle(part[1]), middle(part[0]), f"from {r}", ha="center", va="center", color=INK, fontsize=9)
    for w in (need[1][0], 0), (0, 0):
        if w[0] < w[1]:
            box(axes, need[0], w, facecolor="white", edgecolor=GREY, hatch="////", linewidth=0.8)
            axes.text(middle(w), middle(need[0]), "zeros", rotation=90, ha="center", va="center", color=INK, fontsize=9,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5})
    for i in range(height + 1):
        axes.plot([0, width], [i, i], color="white", linewidth=0.7, zorder=1.5)
    for i in range(width + 1):
        axes.plot([i, i], [0, height], color="white", linewidth=0.7, zorder=1.5)
    for h in [r[0] for r in rows] + [height]:
        axes.plot([0, width], [h, h], color=GREY, linewidth=1)
    for w in [c[0] for c in columns] + [width]:
        axes.plot([w, w], [0, height], color=GREY, linewidth=1)
    for r, (h, w) in {0: (0.75, 0.9), 1: (0.75, 11.1), 3: (5.5, 11.1), 4: (9.5, 0.9), 5: (9.5, 11.1)}.items():
        axes.text(w, h, f"rank {r}", ha="center", va="center", color=STRONG[r], fontsize=9)
    box(axes, *own, facecolor="none", edgecolor=STRONG[rank], linewidth=2.6, zorder=3)
    box(axes, *need, facecolor="none", edgecolor=INK, linewidth=1.8, linestyle=(0, (5, 2)), zorder=3)
    axes.text(middle(own[1]), middle(own[0]), "rank 2 owns\n[4,7) x [0,6)", ha="center", va="center", color=STRONG[rank])
    axes.annotate("and needs [2,9) x [-2,8)", (need[1][1], need[0][0]), xytext=(9.0, -0.75), ha="left", va="center",
                  color=INK, annotation_clip=False, arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.8})
    axes.set(xlim=(-2.6, 14.6), ylim=(10.4, -1.4), aspect="equal")
    axes.set_title("a   a 5 x 5 window on six ranks", loc="left", fontsize=11)
    axes.set(xlabel="width", ylabel="height", xticks=[0, 6, 12], yticks=[0, 4, 7, 10])


def line(axes):
    """The halo of rank 3 under a window of 7 cells: blocks 4, 1, 0 and 5 long."""
    blocks, rank, reach = [(0, 4), (4, 5), (5, 5), (5, 10)], 3, 3
    own = blocks[rank]
    need = own[0] - reach, own[1] + reach
    top, low = (0, 1), (3, 4)
    for r, block in enumerate(blocks):
        if block[0] < block[1]:
            box(axes, top, block, facecolor=COLOURS[r], edgecolor=GREY, linewidth=1)
            axes.text(middle(block), 0.5, f"rank {r}" if block[1] - block[0] > 1 else f"{r}", ha="center", va="center",
                      color=STRONG[r], fontsize=9)
        part = intersect(block, need)
        if part[0] < part[1]:
            mine = r == rank
            box(axes, low, part, facecolor=COLOURS[r] if mine else STRONG[r], alpha=1 if mine else 0.45,
                edgecolor=STRONG[r], linewidth=1.2)
            axes.text(middle(part), 3.5, "its own" if mine else f"from {r}" if part[1] - part[0] > 1 else f"{r}",
                      ha="center", va="center", color=INK, fontsize=9)
            if not mine:
                axes.annotate("", (middle(part), 2.95), (middle(part), 1.05),
                              arrowprops={"arrowstyle": "-|>", "color": STRONG[r], "linewidth": 1.2})
    axes.annotate("rank 2 owns\nnothing, and\nsends nothing", (5, 0.5), xytext=(6.6, 2.0), va="center", fontsize=9, color=STRONG[2],
                  arrowprops={"arrowstyle": "-", "color": STRONG[2], "linewidth": 0.8})
    box(axes, low, (10, need[1]), facecolor="white", edgecolor=GREY, hatch="////", linewidth=0.8)
    axes.text(11.5, 3.5, "zeros", ha="center", va="center", color=INK, fontsize=9,
              bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5})
    box(axes, low, need, facecolor="none", edgecolor=INK, linewidth=1.8, linestyle=(0, (5, 2)), zorder=3)
    for i in range(11):
        axes.plot([i, i], top, color="white", linewidth=0.7, zorder=1.5)
    axes.text(-0.3, 0.5, "owned", ha="right", va="center", color=INK)
    axes.text(1.7, 3.5, "rank 3 needs", ha="right", va="center", color=INK)
    axes.set(xlim=(-2.6, 14.6), ylim=(4.6, -0.6), aspect="equal")
    axes.set_title("b   a window of 7 cells on uneven blocks: past the neighbour", loc="left", fontsize=11)
    axes.set(xticks=[0, 4, 5, 10], yticks=[])


def main():
    figure, (first, second) = plt.subplots(2, 1, figsize=(7.4, 8.0), height_ratios=[11.8, 5.2], layout="constrained")
    halo(first)
    line(second)
    for axes in (first, second):
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, labelcolor=GREY)
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("boxes.svg")
    figure.savefig(out, **({"metadata": {"Date": None}} if out.suffix == ".svg" else {"dpi": 110}))


if __name__ == "__main__":
    main()
