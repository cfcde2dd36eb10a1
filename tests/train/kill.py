# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Kills a training with SIGKILL, one rank or all of them, at random moments and while a checkpoint is being written, and
lets it go on: each time the outcome must be, to the last bit, that of a run which nobody disturbed."""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MARK = "TESSERA_KILL_JOB"
LIMIT = 10  # seconds within which a job must end after a kill


class Job:
    """One run of the program under mpirun, in a folder."""

    count = 0

    def __init__(self, command, folder, epochs):
        Job.count += 1
        self.mark = f"{os.getpid()}.{Job.count}"
        self.program = os.path.realpath(command[-1])
        self.output = tempfile.TemporaryFile()
        self.began = time.monotonic()
        self.process = subprocess.Popen(command + [str(folder), str(epochs)], stdout=self.output,
                                        stderr=subprocess.STDOUT, env={**os.environ, MARK: self.mark})

    def ranks(self):
        """The processes of its ranks that are there."""
        wanted, found = f"{MARK}={self.mark}".encode(), []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (process / "environ").read_bytes().split(b"\0") and os.readlink(process / "exe") == self.program:
                    found.append(int(process.name))
            except OSError:
                continue
        return found

    def kill(self, everyone, generator):
        """False if there was nobody to kill."""
        ranks = self.ranks()
        if not everyone:
            ranks = generator.sample(ranks, min(1, len(ranks)))
        for rank in ranks:
            try:
                os.kill(rank, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return bool(ranks)

    def wait_for_begin(self):
        """Until the ranks run; before that they start MPI, and Open MPI 4.1 may hang when one of them is killed."""
        while not self.ended() and "killed: began" not in self.said():
            time.sleep(0.005)

    def ended(self):
        return self.process.poll() is not None

    def finish(self, limit):
        """The exit code, or None if it hangs, in which case it is ended."""
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.kill(True, random)
            self.process.kill()
            self.process.wait()
            return None

    def said(self):
        self.output.seek(0)
        return self.output.read().decode(errors="replace")

    def outcome(self):
        return next((line for line in self.said().splitlines() if line.startswith("killed: outcome")), None)


def parts(folder):
    return list(folder.glob("*.part"))


def wait_for_part(job, folder, number):
    """Waits for the beginning of a checkpoint, the number-th from now."""
    seen = None
    while not job.ended():
        now = [part.name for part in parts(folder)]
        if now and now[0] != seen:
            seen, number = now[0], number - 1
            if number == 0:
                return
        time.sleep(0.0002)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("launch", nargs="+", help="the program, and before it how its ranks are started")
    options = parser.parse_args()
    generator = random.Random(options.seed)
    faults, kinds, kills, writing, resumed = [], set(), 0, 0, 0

    with tempfile.TemporaryDirectory(prefix="tessera-") as scratch:
        undisturbed = Job(options.launch, Path(scratch) / "undisturbed", options.epochs)
        code = undisturbed.finish(600)
        seconds, expected = time.monotonic() - undisturbed.began, undisturbed.outcome()
        if code != 0 or expected is None:
            print(f"kill: the undisturbed run ends with {code}:\n{undisturbed.said()}")
            return 1
        print(f"kill: seed {options.seed}; undisturbed {seconds:.1f} s: {expected[:120]}", flush=True)

        run = 0
        while kills < options.kills and not faults:
            run += 1
            if run > 3 * options.kills + 5:
                faults.append(f"only {kills} kills in {run - 1} runs: the moments to kill at did not come")
                break
            folder = Path(scratch) / f"run{run}"
            job = Job(options.launch, folder, options.epochs)
            rounds = 0
            while not job.ended() and rounds < 2 and kills < options.kills:  # a resumed run is killed once more
                on_purpose = kills % 2 == 1
                job.wait_for_begin()
                if on_purpose:
                    wait_for_part(job, folder, generator.randint(1, 1 + int(seconds * 2)))
                else:
                    time.sleep(generator.uniform(0, 0.6 * seconds))
                everyone = generator.random() < 0.5
                if job.ended() or not job.kill(everyone, generator):
                    break
                kills += 1
                rounds += 1
                kinds.add(everyone)
                ended_by = time.monotonic() + LIMIT
                if job.finish(LIMIT) is None:
                    faults.append(f"hangs after a kill:\n{job.said()}")
                    break
                while job.ranks() and time.monotonic() < ended_by:
                    time.sleep(0.02)
                if job.ranks():
                    faults.append(f"ranks live on after a kill:\n{job.said()}")
                    break
                caught = len(parts(folder))
                writing += caught
                there = sorted(p.name for p in folder.glob("checkpoint-*.h5")) if folder.exists() else []
                print(f"kill {kills}: {'all ranks' if everyone else 'one rank'}"
                      f"{', while a checkpoint was written' if caught else ''}; newest {there[-1] if there else 'none'}", flush=True)
                job = Job(options.launch, folder, options.epochs)
            code = job.finish(10 * seconds + 60)
            if code != 0 or job.outcome() != expected:
                faults.append(f"run {run} ends with {code} and not as the undisturbed one:\n{job.said()}")
            resumed += "goes on from '/" in job.said()
            if parts(folder):
                faults.append(f"run {run} leaves {parts(folder)}")

    if kills >= 10 and writing < kills // 5:
        faults.append(f"only {writing} kills came while a checkpoint was written")
    if kills >= 10 and len(kinds) < 2:
        faults.append("kills were all of one kind, of one rank or of all")
    if kills >= 10 and resumed == 0:
        faults.append("no run went on from a checkpoint")
    for fault in faults:
        print(f"FAILED: {fault}")
    print(f"kill: {kills} kills, {writing} of them while a checkpoint was written; {run} runs, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
