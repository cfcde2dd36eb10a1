// expect: tessera: scale takes whole numbers; give size for others
// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "tessera/layer/upsample.hpp"

#ifdef TESSERA_CONTROL
auto const spec = tessera::upsample_linear2d(tessera::scale(2));
#else
auto const spec = tessera::upsample_linear2d(tessera::scale(2.5));
#endif
