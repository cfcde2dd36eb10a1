# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Runs throws on 4 ranks in every way: the job must end in time, not with zero, and with one line that says why."""

import argparse
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from job import judge  # noqa: E402

PLACE = "throws: place {} must not be reached; this is meant"
RANK = "throws: rank {} must not go on; this is meant"
LEFT = ("an exception left the scope of tessera::Environment on this rank; catch it inside, or let it end the program")


def cases(places):
    for place in places:
        rank = place % 4
        yield ["one", str(rank), str(place)], PLACE.format(place)
    for place in (0, 1, 7):
        yield ["all", str(place)], PLACE.format(place)
    for place in (0, 5, 14):
        yield ["most", str(place)], PLACE.format(place)
    yield ["unknown", "2"], "an exception of unknown type was thrown"
    yield ["unwound", "1"], LEFT
    yield ["unwound", "0"], LEFT
    yield ["destructor", "3"], LEFT
    yield ["guarded", "2"], RANK.format(2)
    yield ["agreed", "3"], RANK.format(3)
    yield ["none"], None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--places", type=int, default=8, help="how many of the 20 places one rank throws at")
    parser.add_argument("--limit", type=float, default=10, help="seconds a job may take")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("launch", nargs="+", help="the program, and before it how four ranks of it are started")
    options = parser.parse_args()
    places = sorted(random.Random(options.seed).sample(range(20), options.places))
    faults = 0
    for arguments, message in cases(places):
        fault = judge(options.launch + arguments, message, options.limit)
        print(f"throws {' '.join(arguments)}: {fault or 'ends as it should'}", flush=True)
        faults += bool(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
