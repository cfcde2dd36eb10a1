# shellcheck shell=bash disable=SC2034
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# What the other scripts share. Source it; it runs nothing by itself.

tessera_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tessera_cache=${TESSERA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tessera}
tessera_jobs=${TESSERA_JOBS:-$(nproc)}

# The system's own python has the plotting packages that setup installs; another one may be first on PATH.
tessera_python=/usr/bin/python3
[[ -x $tessera_python ]] || tessera_python=python3

say() { printf '%s\n' "$*"; }
step() { printf '  %-14s %s\n' "$1" "$2"; }
fail() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# Ranks may outnumber cores, and containers run as root: Open MPI wants to be told that both are meant.
# tests/CMakeLists.txt gives each test the same values.
mpi_env() {
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
  export OMPI_MCA_btl_vader_single_copy_mechanism=none
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OMP_PROC_BIND=${OMP_PROC_BIND:-false}
  export KOKKOS_DISABLE_WARNINGS=1
}

# test_commands <build folder> <regex>: a line "name<tab>command" for each unit test. ctest knows commands and
# environments, but would stop a test at the suite's own time limit.
test_commands() {
  ctest --test-dir "$1" -L unit -R "$2" --show-only=json-v1 | "$tessera_python" -c '
import json, shlex, sys
for test in json.load(sys.stdin)["tests"]:
    environment = next((p["value"] for p in test["properties"] if p["name"] == "ENVIRONMENT"), [])
    print(test["name"], shlex.join(["env", *environment, *test["command"]]), sep="\t")'
}

# Uses the Kokkos that setup prepared, unless the caller names a toolchain of their own.
use_toolchain() {
  if [[ -z ${CMAKE_TOOLCHAIN_FILE:-} && -e $tessera_cache/toolchain.cmake ]]; then
    export CMAKE_TOOLCHAIN_FILE=$tessera_cache/toolchain.cmake
  fi
}

# configure <preset> [cmake argument...]: quiet unless it fails; starts afresh when the toolchain changed.
configure() {
  local preset=$1 folder=$tessera_root/build/$1 log stamp fresh=()
  shift
  use_toolchain
  mkdir -p "$folder"
  log=$folder/configure.log
  stamp=$(readlink -f "${CMAKE_TOOLCHAIN_FILE:-none}")
  if [[ -e $folder/CMakeCache.txt && $(cat "$folder/toolchain.stamp" 2>/dev/null) != "$stamp" ]]; then
    fresh=(--fresh)
  fi
  if ! (cd "$tessera_root" && cmake --preset "$preset" "${fresh[@]}" "$@") >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    fail "configuring '$preset' must succeed; see $log"
  fi
  printf '%s\n' "$stamp" >"$folder/toolchain.stamp"
}
