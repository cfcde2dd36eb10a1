# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Runs throws on 4 ranks in every way: the job must end in time, not with zero, and with one line that says why."""

import argparse
import random
import subprocess
import sys
import time

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


def judge(command, message, limit):
    """What is wrong with how the job ended, or nothing."""
    began = time.monotonic()
    try:
        job = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=6 * limit)
    except subprocess.TimeoutExpired:
        return f"hangs: still there after {6 * limit} s"
    seconds = time.monotonic() - began
    lines = [line for line in job.stdout.splitlines() if "tessera: error:" in line]
    wanted = [] if message is None else ["tessera: error: " + message]
    if (job.returncode == 0) != (message is None):
        return f"ends with {job.returncode}:\n{job.stdout}"
    if seconds > limit:
        return f"takes {seconds:.1f} s, more than {limit} s:\n{job.stdout}"
    if lines != wanted:
        return f"prints {lines} instead of {wanted}"
    return ""


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
