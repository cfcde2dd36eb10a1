#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# run.sh package|subdirectory <source folder> <build folder> <work folder> <with HDF5: ON|OFF> <mpirun>

set -euo pipefail
way=$1 source=$2 build=$3 work=$4 hdf5=$5 mpirun=$6
here=$(cd "$(dirname "$0")" && pwd)
[[ -n ${CMAKE_TOOLCHAIN_FILE:-} ]] || unset CMAKE_TOOLCHAIN_FILE

rm -rf "$work"
mkdir -p "$work"
arguments=(-DCONSUMER_HDF5="$hdf5" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON)
if [[ $way == package ]]; then
  cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
  arguments+=(-Dtessera_ROOT="$work/prefix" -DCONSUMER_VERSION="$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")")
else
  arguments+=(-DCONSUMER_SUBDIRECTORY="$source")
fi

cmake -S "$here/consumer" -B "$work/build" "${arguments[@]}"
cmake --build "$work/build"

# What the consumer's compiler is told is the consumer's business: no -march, no warning flag, no optimisation of ours.
if flags=$(grep -oE -- ' -(march|mtune|W[a-z]|O[0-9s]|g)[^ ]*' "$work/build/compile_commands.json" | sort -u) && [[ -n $flags ]]; then
  echo "install: no flag may leak to a consumer, but its compiler was given:" $flags >&2
  exit 1
fi
# Nor may a subdirectory bring its tests, examples or benchmarks along.
if [[ -e $work/build/tessera/tests || -e $work/build/tessera/examples ]]; then
  echo "install: as a subdirectory, Tessera must build neither tests nor examples" >&2
  exit 1
fi

"$mpirun" -n 2 "$work/build/consumer"
if [[ $hdf5 == ON ]]; then
  (cd "$work" && "$mpirun" -n 2 "$work/build/consumer_hdf5")
fi

# The project of README.md, with the installed package.
if [[ $way == package && $hdf5 == ON ]]; then
  cmake -S "$here/readme" -B "$work/readme" -Dtessera_ROOT="$work/prefix"
  cmake --build "$work/readme"
  "$mpirun" -n 2 "$work/readme/my_program"
fi
