#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# patch_kokkos.sh <Kokkos's include folder> <new folder>: a copy of the headers with the CUDA backend switched on for Hopper.
# Headers that have it on already are copied as they are.

set -euo pipefail
from=$1 to=$2

fail() {
  echo "patch_kokkos: $*: Kokkos's headers changed shape" >&2
  exit 1
}
define() { # define <file> <macro>
  grep -qE "^#define $2\b" "$1" && return
  if grep -qE "^/\* #undef $2 \*/" "$1"; then
    sed -i "s|^/\* #undef $2 \*/|#define $2|" "$1"
  else
    fail "$(basename "$1") must mention $2"
  fi
}
include() { # include <file> <header>: before the closing #endif
  [[ -f $to/$1 && $(tail -n 1 "$to/$1") == "#endif" ]] || fail "$1 must exist and end with #endif"
  [[ -f $to/$2 ]] || fail "$2 must exist"
  sed -i "\$i #include <$2>" "$to/$1"
}

rm -rf "$to"
cp -rL "$from" "$to"
core=$to/KokkosCore_config.h
[[ -f $core ]] || fail "KokkosCore_config.h must exist"
grep -qE '^#define KOKKOS_ENABLE_CUDA\b' "$core" && exit 0
for macro in KOKKOS_ENABLE_CUDA KOKKOS_ARCH_HOPPER KOKKOS_ARCH_HOPPER90; do
  define "$core" "$macro"
done
desul=$to/desul/atomics/Config.hpp
[[ -f $desul ]] || fail "desul/atomics/Config.hpp must exist"
define "$desul" DESUL_ATOMICS_ENABLE_CUDA
include KokkosCore_Config_FwdBackend.hpp fwd/Kokkos_Fwd_CUDA.hpp
include KokkosCore_Config_DeclareBackend.hpp decl/Kokkos_Declare_CUDA.hpp
include KokkosCore_Config_SetupBackend.hpp setup/Kokkos_Setup_Cuda.hpp
