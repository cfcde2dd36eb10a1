# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# tessera_find_hdf5(): finds HDF5's C library, the parallel one where there is a choice. Also part of the installed package.

include_guard(GLOBAL)

macro(tessera_find_hdf5)
  # CMake's module tries the C library in the C language, but projects that use Tessera may be C++ alone.
  enable_language(C)
  set(HDF5_PREFER_PARALLEL ON)
  find_package(HDF5 QUIET COMPONENTS C)
endmacro()
