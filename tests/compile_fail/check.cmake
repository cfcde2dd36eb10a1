# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# cmake -D COMPILER=... -D FLAGS=<response file> -D PREFIX=<header> -D SOURCE=... -P check.cmake

file(READ ${SOURCE} first LIMIT 1000)
if(NOT first MATCHES "^// expect: ([^\n]+)\n")
  message(FATAL_ERROR "${SOURCE}: the first line must be '// expect: <text of the diagnostic>'")
endif()
set(expected "${CMAKE_MATCH_1}")
set(command ${COMPILER} @${FLAGS} -fsyntax-only -fdiagnostics-color=never -include ${PREFIX} ${SOURCE})

execute_process(COMMAND ${command} -DTESSERA_CONTROL RESULT_VARIABLE result ERROR_VARIABLE text OUTPUT_QUIET)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${SOURCE}: the right use (TESSERA_CONTROL) must compile, but:\n${text}")
endif()

execute_process(COMMAND ${CMAKE_COMMAND} -E env LC_ALL=C ${command} RESULT_VARIABLE result ERROR_VARIABLE text OUTPUT_QUIET)
if(result EQUAL 0)
  message(FATAL_ERROR "${SOURCE}: the wrong use must not compile, but it does")
endif()
string(FIND "${text}" "${expected}" found)
if(found EQUAL -1)
  message(FATAL_ERROR "${SOURCE}: the diagnostic must contain\n  ${expected}\nbut is\n${text}")
endif()
