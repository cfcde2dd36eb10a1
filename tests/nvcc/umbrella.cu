// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// All that a user includes, as the compiler for devices sees it.

#include <tessera/tessera.hpp>

#include <tessera/core/version.hpp>

static_assert(tessera::version >= tessera::Version{0, 1, 0});
