// expect: tessera::Distribution: an axis may be named only once; remove the repeated one
// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "tessera/partition/distribution.hpp"

using namespace tessera::axes;

#ifdef TESSERA_CONTROL
using Policy = tessera::Distribution<Sample, tessera::Split<Depth, 2>>;
#else
using Policy = tessera::Distribution<Sample, Depth, tessera::Split<Depth, 2>>;
#endif

static_assert(Policy::splits(tessera::AxisId::depth));
