// expect: CountsAreGivenByName
// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "tessera/partition/counts.hpp"

#ifdef TESSERA_CONTROL
constexpr tessera::Counts counts{.sample = 2, .channel = 2, .depth = 2};
#else
constexpr tessera::Counts counts{2, 2, 2};
#endif

static_assert(counts.product() == 8);
