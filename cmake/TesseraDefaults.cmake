# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Read before project() when Tessera is the top-level project: what a developer would otherwise have to say each time.
# Anything said on the command line, in the environment or by a toolchain file wins.

if(NOT DEFINED CMAKE_BUILD_TYPE AND NOT DEFINED ENV{CMAKE_BUILD_TYPE})
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug, RelWithDebInfo")
endif()

if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER AND NOT DEFINED ENV{CMAKE_CXX_COMPILER_LAUNCHER})
  find_program(TESSERA_CCACHE ccache)
  mark_as_advanced(TESSERA_CCACHE)
  if(TESSERA_CCACHE)
    # The sloppiness lets it work with precompiled headers; the base folder lets two clones share what they compiled.
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
        CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${TESSERA_CCACHE} CACHE STRING "Compiler launcher")
  endif()
endif()

# scripts/setup leaves a toolchain file behind where it had to bring its own Kokkos.
if(NOT DEFINED CMAKE_TOOLCHAIN_FILE AND NOT DEFINED ENV{CMAKE_TOOLCHAIN_FILE}
   AND NOT DEFINED Kokkos_DIR AND NOT DEFINED Kokkos_ROOT AND NOT DEFINED ENV{Kokkos_DIR} AND NOT DEFINED ENV{Kokkos_ROOT})
  if(DEFINED ENV{TESSERA_CACHE})
    set(tessera_cache "$ENV{TESSERA_CACHE}")
  elseif(DEFINED ENV{XDG_CACHE_HOME})
    set(tessera_cache "$ENV{XDG_CACHE_HOME}/tessera")
  else()
    set(tessera_cache "$ENV{HOME}/.cache/tessera")
  endif()
  if(EXISTS "${tessera_cache}/toolchain.cmake")
    message(STATUS "Tessera: using the Kokkos that scripts/setup prepared")
    set(CMAKE_TOOLCHAIN_FILE "${tessera_cache}/toolchain.cmake" CACHE FILEPATH "Toolchain file made by scripts/setup")
  endif()
endif()
