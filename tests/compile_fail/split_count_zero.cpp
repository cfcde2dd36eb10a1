// expect: tessera::Split: the count must be at least 1, or tessera::dynamic
// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "tessera/partition/distribution.hpp"

#ifdef TESSERA_CONTROL
using Policy = tessera::Distribution<tessera::Split<tessera::axes::Depth, 4>>;
#else
using Policy = tessera::Distribution<tessera::Split<tessera::axes::Depth, 0>>;
#endif

static_assert(Policy::splits(tessera::AxisId::depth));
