# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Trains on 4 ranks, one of which throws at a random place of a step: the job must end in time, not with zero, and with
one line that says why."""

import argparse
import random
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from job import judge  # noqa: E402

MESSAGE = "throws: '{}' must not be reached; this is meant"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--places", type=int, default=20, help="how many places; each kind comes up before one repeats")
    parser.add_argument("--limit", type=float, default=10, help="seconds a job may take")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("launch", nargs="+", help="the program, and before it how four ranks of it are started")
    options = parser.parse_args()
    kinds = subprocess.run([options.launch[-1], "places"], stdout=subprocess.PIPE, text=True, check=True).stdout.split("\n")[:-1]
    draw = random.Random(options.seed)
    jobs = [(["none"], None)]
    while len(jobs) <= options.places:
        jobs += [([str(draw.randrange(4)), kind, str(draw.randint(1, 3))], MESSAGE.format(kind))
                 for kind in draw.sample(kinds, len(kinds))]
    faults = 0
    for arguments, message in jobs[:options.places + 1]:
        fault = judge(options.launch + arguments, message, options.limit)
        print(f"throws {' '.join(arguments)}: {fault or 'ends as it should'}", flush=True)
        faults += bool(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
