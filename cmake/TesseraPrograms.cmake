# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# What our own tests, benchmarks and examples share; nothing here reaches a user of the library.

include_guard(GLOBAL)

set(CMAKE_CXX_EXTENSIONS OFF) # standard C++ only

# Warnings are errors in everything we compile ourselves. Kokkos and MPI are imported targets, hence system headers.
add_library(tessera_warnings INTERFACE)
target_compile_options(tessera_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror>)

# GNU vector types are part of the tuned kernels' interface; passing them between functions is meant.
target_compile_options(tessera_warnings INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-psabi>)

# tessera_add_program(<target> SOURCES <file>... [LIBS <library>...]): an executable with our warnings on.
function(tessera_add_program target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE tessera::tessera tessera_warnings ${arg_LIBS})
endfunction()
