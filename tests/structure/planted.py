# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Plants each fault that structure.py and scripts/docs-snippets are there to find, and sees it found."""

import importlib.machinery
import importlib.util
import sys
import tempfile
from pathlib import Path

import structure


def load_script(name: str):
    """A script without a suffix, as a module."""
    sys.dont_write_bytecode = True
    path = Path(__file__).resolve().parents[2] / "scripts" / name
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


docs = load_script("docs-snippets")
LICENCE = "".join(f"// {line}\n" for line in structure.SPDX)


def problems(files: dict[str, str], check=structure.check_includes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return "\n".join(check(Path(folder)))


def expect(text: str, found: str) -> None:
    assert text in found if text else not found, f"expected '{text}', found '{found}'"


BASE = "include/tessera/"
expect("", problems({BASE + "core/a.hpp": "", BASE + "op/b.hpp": "#include <tessera/core/a.hpp>\n"}))
expect("includes forward", problems({BASE + "core/a.hpp": "#include <tessera/op/b.hpp>\n", BASE + "op/b.hpp": ""}))
expect("does not exist", problems({BASE + "op/b.hpp": '#include "tessera/op/c.hpp"\n'}))
expect("include cycle", problems({BASE + "op/a.hpp": "#include <tessera/op/b.hpp>\n",
                                  BASE + "op/b.hpp": "#  include <tessera/op/a.hpp>\n"}))
expect("no place", problems({BASE + "misc/a.hpp": ""}))
expect("umbrella", problems({BASE + "core/a.hpp": "#include <tessera/tessera.hpp>\n", BASE + "tessera.hpp": ""}))
expect("hdf5", problems({BASE + "io/a.hpp": "#include <hdf5.h>\n", BASE + "tessera.hpp": "#include <tessera/io/a.hpp>\n"}))
expect("", problems({"a.cpp": LICENCE, "b.txt": ""}, structure.check_licences))
expect("a.cpp: must begin", problems({"a.cpp": "int i;\n"}, structure.check_licences))
expect("run: must begin", problems({"scripts/run": "#!/bin/sh\n"}, structure.check_licences))

CODE = "int a;\n  // [part]\n  int b;\n\n  int c;\n  // [end]\nint d;\n  // [part]\n    int e;\n  // [end]\n"
PART = "int b;\n\nint c;\n\n  int e;\n"
PAGE = "<!-- snippet a.cpp#part -->\n```cpp\n{}```\n"
expect("", problems({"a.cpp": CODE, "README.md": PAGE.format(PART)}, docs.check))
expect("README.md: line 1: the block differs", problems({"a.cpp": CODE, "README.md": PAGE.format("int f;\n")}, docs.check))
expect("", problems({"a.cpp": CODE, "README.md": PAGE.format("int f;\n")}, lambda folder: docs.check(folder, update=True)))
expect("", problems({"a.txt": "words\n", "README.md": "<!-- snippet a.txt -->\n```\nwords\n```\n"}, docs.check))
expect("differs from a.txt;", problems({"a.txt": "words\n", "README.md": "<!-- snippet a.txt -->\n```\n```\n"}, docs.check))
expect("must have a region [part]", problems({"a.cpp": "int a;\n", "docs/b/c.md": PAGE.format(PART)}, docs.check))
expect("'a.cpp' must exist", problems({"docs/b/c.md": PAGE.format(PART)}, docs.check))
expect("must come from a compiled file", problems({"README.md": "```cpp\nint a;\n```\n"}, docs.check))
expect("a fenced block must follow", problems({"a.cpp": CODE, "README.md": "<!-- snippet a.cpp#part -->\nwords\n"}, docs.check))
expect("leads nowhere", problems({"docs/c.md": "[words](d.md)"}, docs.check))
expect("", problems({"docs/c.md": "[words](d.md#part)", "docs/d.md": ""}, docs.check))
print("planted: all found")
