# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Plants each fault that structure.py is there to find, and sees it found."""

import tempfile
from pathlib import Path

import structure

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
print("planted: all found")
