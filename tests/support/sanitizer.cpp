// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Part of sanitizer builds only: it lets the leak checker tell MPI's own leaks from ours, which lsan.supp does by
// library. Nothing here hides an allocation that Tessera makes.

#include <sanitizer/lsan_interface.h>

#include <cstdarg>
#include <cstdio>

// MPI unloads its plug-ins before the leak check, which then could no longer name the library.
extern "C" int dlclose(void*) noexcept { return 0; }

// MPI's string formatting allocates inside the C library, through which the fast stack unwinder does not find its way
// back to the caller. Tessera does not call these functions.
extern "C" int __vasprintf_chk(char** out, int, char const* format, std::va_list arguments) noexcept {
  __lsan_disable();
  int const length = vasprintf(out, format, arguments);
  __lsan_enable();
  return length;
}

extern "C" int __asprintf_chk(char** out, int flag, char const* format, ...) noexcept {
  std::va_list arguments;
  va_start(arguments, format);
  int const length = __vasprintf_chk(out, flag, format, arguments);
  va_end(arguments);
  return length;
}
