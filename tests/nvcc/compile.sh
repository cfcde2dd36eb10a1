#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# compile.sh <source> <object> <compiler> [<flag>...]: compiles, and checks that the object holds machine code of the device
# for each kernel that a line "// kernels: <name> ..." of the source lists.

set -euo pipefail
source=$1 object=$2
shift 2

"$@" -c "$source" -o "$object"
objcopy -O binary -j .nv_fatbin "$object" "$object.fatbin"
kernels=$(strings -n 8 "$object.fatbin" | sed -n 's/^\.text\.\(_Z\)/\1/p' | sort -u | c++filt | grep 'tessera::' || true)
missing=
for kernel in $(sed -n 's|^// kernels: ||p' "$source"); do
  grep -q "::$kernel\b" <<<"$kernels" || missing+=" $kernel"
done
if [[ -n $missing ]]; then
  echo "compile: the object must hold these kernels, but does not:$missing" >&2
  echo "it holds:" >&2
  sed -n 's/.*(Kokkos::Impl::Parallel[A-Za-z]*<\(tessera::.*\), Kokkos::RangePolicy.*/\1/p' <<<"$kernels" >&2
  exit 1
fi
