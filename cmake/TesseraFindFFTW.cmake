# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Makes tessera_fftw, FFTW in double precision, which has no CMake package everywhere. No such target if it is not found.

if(NOT TARGET tessera_fftw)
  find_path(FFTW3_INCLUDE_DIR fftw3.h)
  find_library(FFTW3_LIBRARY fftw3)
  mark_as_advanced(FFTW3_INCLUDE_DIR FFTW3_LIBRARY)
  if(FFTW3_INCLUDE_DIR AND FFTW3_LIBRARY)
    add_library(tessera_fftw INTERFACE IMPORTED GLOBAL)
    target_include_directories(tessera_fftw INTERFACE ${FFTW3_INCLUDE_DIR})
    target_link_libraries(tessera_fftw INTERFACE ${FFTW3_LIBRARY})
  endif()
endif()
