# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""replay.py <build folder> -- <command that starts planted_property on 3 ranks>

Plants faults in properties, and sees tests/replay run the shrunken case again: it fails in the same way, and passes once
the fault is mended.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

build, _, *command = sys.argv[1:]
script = Path(__file__).resolve().parents[1] / "replay"


def run(arguments, plant=""):
    environment = {**os.environ, "TESSERA_PLANT": plant, "TESSERA_CASES": "200"}
    job = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    return job.returncode, re.sub(r"^\[\d\] ", "", job.stdout, flags=re.MULTILINE)


def replay(line, plant=""):
    return run([script, "--build", build, *line] if isinstance(line, list) else [script, "--build", build, line], plant)


def expect(holds, what, text):
    assert holds, f"{what}, but:\n{text}"


def counterexample(text):
    """The case, and why it failed: from the first line of RapidCheck's report on the example to its end."""
    found = re.search(r"^(list|std::tuple<.*>):\n(.*)\n\n(.*(?:\n.+)*?)\n", text, flags=re.MULTILINE)
    expect(found, "a counterexample must be shown", text)
    return found.groups()


for name, filters, ranks in (("lists: no element is large", "*ranks:*", 3), ("alone: no element is large", "*one rank", 1)):
    first = command if ranks == 3 else command[-1:]
    code, text = run([*first, "-tc=" + filters], "large")
    expect(code != 0, "the planted fault must show", text)
    lines = set(re.findall(r"^\s*replay: (.*)$", text, flags=re.MULTILINE))
    expect(len(lines) == 1, "all ranks must print one line to replay", text)
    line = lines.pop()
    expect(line.startswith(f'support/planted_property.{ranks} "{name}" '), "the line must name test and property", line)
    shown = counterexample(text)
    expect(re.search(r"\[(0, 101|101, 0)\]", shown[1]), "the counterexample must be shrunken", text)
    for given in (line, re.match(r'(\S+) "(.*)" (\S+)', line).groups()):
        code, text = replay(given if isinstance(given, str) else list(given), "large")
        expect(code == 1 and text.endswith("\nreplay: fails\n"), "the fault must show again", text)
        expect(counterexample(text) == shown, f"the counterexample must be {shown}", text)
        expect("ran:" not in text, "nothing else must run", text)
    code, text = replay(line)
    expect(code == 0 and text.endswith("\nreplay: passes\n"), "the mended case must pass", text)
    expect("ran:" not in text and "random cases" not in text, "nothing else must run", text)

word = line.split()[-1]
for given, message in (
    ("no/such.2 " + f'"{name}" {word}', "no/such must be built"),
    ("support/planted_property", "must be a line such as"),
    (f'support/planted_property.1 "{name}" {word[:8]}', "must be one that a failure printed"),
    (f'support/planted_property.1 "{name}" {word[:8]}!', "must be letters, digits, - and _"),
    (f'support/planted_property.1 "another name" {word}', "the property is no more"),
    (f'support/planted_property.1 "{name}" A{word[1:]}', "the test case must be there"),
):
    code, text = replay(given)
    expect(code != 0 and message in text, f"'{given}' must be refused with '{message}'", text)

code, text = run(command, "twice")
expect(code != 0 and "its name must be unique within a program, but there are two 'before'" in text, "twin names must be refused", text)
print("replay: every planted fault failed again, and passed when mended")
