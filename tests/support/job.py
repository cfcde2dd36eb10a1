# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""How a job that is meant to fail must end: in time, not with zero, and with one line that says why."""

import subprocess
import time


def judge(command, message, limit):
    """What is wrong with how the job ended, or nothing. Without a message it must succeed."""
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
