# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the shape of the source tree: structure.py includes|licences <project folder>."""

import re
import subprocess
import sys
from pathlib import Path

# Includes point backward along this order, never forward.
FOLDERS = ["core", "partition", "comm", "tensor", "exchange", "op", "layer", "model", "optim", "io", "train", "perf"]
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
SPDX = ["SPDX-FileCopyrightText: 2026 The Tessera authors", "SPDX-License-Identifier: Apache-2.0"]
CODE = {".hpp", ".cpp", ".cu", ".cmake", ".py", ".sh"}
GENERATED = {"build", ".git", ".cache", "__pycache__"}


def include_graph(include: Path) -> dict[str, list[str]]:
    files = sorted(include.glob("tessera/**/*.hpp"))
    return {f.relative_to(include).as_posix(): INCLUDE.findall(f.read_text()) for f in files}


def reachable(graph: dict[str, list[str]], start: str) -> set[str]:
    seen, open_ends = set(), [start]
    while open_ends:
        name = open_ends.pop()
        if name not in seen:
            seen.add(name)
            open_ends += graph.get(name, [])
    return seen


def cycle(graph: dict[str, list[str]]) -> list[str]:
    """The files of one include cycle, or nothing."""
    state: dict[str, str] = {}

    def visit(name: str, path: list[str]) -> list[str]:
        if state.get(name) == "done" or name not in graph:
            return []
        if name in path:
            return path[path.index(name):] + [name]
        for target in graph[name]:
            if found := visit(target, path + [name]):
                return found
        state[name] = "done"
        return []

    for name in graph:
        if found := visit(name, []):
            return found
    return []


def check_includes(project: Path) -> list[str]:
    graph = include_graph(project / "include")
    problems = []
    for name, targets in graph.items():
        parts = name.split("/")
        if len(parts) > 2 and parts[1] not in FOLDERS:
            problems.append(f"{name}: folder '{parts[1]}' has no place in the order {', '.join(FOLDERS)}")
            continue
        for target in targets:
            there = target.split("/")
            if there[0] != "tessera":
                continue
            if target not in graph:
                problems.append(f"{name}: includes <{target}>, which does not exist")
            elif len(parts) > 2 and len(there) == 2:
                problems.append(f"{name}: includes the umbrella <{target}>")
            elif len(parts) > 2 and there[1] in FOLDERS and FOLDERS.index(there[1]) > FOLDERS.index(parts[1]):
                problems.append(f"{name}: includes forward, <{target}>")
    if found := cycle(graph):
        problems.append("include cycle: " + " -> ".join(found))
    if "hdf5.h" in reachable(graph, "tessera/tessera.hpp"):
        problems.append("tessera/tessera.hpp: reaches <hdf5.h>, which belongs to the component tessera::hdf5")
    return problems


def project_files(project: Path) -> list[Path]:
    """Tracked and not ignored files where git can tell, else all but build folders."""
    git = ["git", "-C", str(project), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(git, capture_output=True, check=True).stdout.decode().split("\0")
        files = [project / n for n in names if n]
    except (OSError, subprocess.CalledProcessError):
        files = [f for f in project.rglob("*") if not GENERATED & set(f.relative_to(project).parts)]
    return [f for f in files if f.is_file()]


def check_licences(project: Path) -> list[str]:
    problems = []
    for file in project_files(project):
        script = file.suffix == "" and file.read_bytes()[:2] == b"#!"
        if file.suffix in CODE or file.name == "CMakeLists.txt" or script:
            head = "\n".join(file.read_text().splitlines()[:4])
            if not all(line in head for line in SPDX):
                problems.append(f"{file.relative_to(project)}: must begin with the two SPDX lines")
    return problems


def main() -> int:
    checks = {"includes": check_includes, "licences": check_licences}
    problems = checks[sys.argv[1]](Path(sys.argv[2]))
    print("\n".join(problems) or f"{sys.argv[1]}: good")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
