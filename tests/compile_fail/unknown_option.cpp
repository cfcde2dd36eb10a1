// expect: tessera: the layer does not take one of its options; docs/reference/layers lists those that it takes
// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "tessera/layer/pool.hpp"

#ifdef TESSERA_CONTROL
auto const spec = tessera::max_pool3d<2>(tessera::ceil_mode);
#else
auto const spec = tessera::max_pool3d<2>(tessera::no_bias);
#endif
