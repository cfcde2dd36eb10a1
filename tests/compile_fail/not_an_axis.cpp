// expect: tessera::Distribution: name axes, such as Sample and Depth, or Split<Depth, 4>
// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "tessera/partition/distribution.hpp"

#ifdef TESSERA_CONTROL
using Policy = tessera::Distribution<tessera::axes::Depth>;
#else
using Policy = tessera::Distribution<int>;
#endif

static_assert(tessera::PartitionPolicy<Policy>);
