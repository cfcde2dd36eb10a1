// expect: tessera::concat: takes branches: concat(branch(layers...), branch(layers...))
// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "tessera/layer/activation.hpp"
#include "tessera/model/concat.hpp"

#ifdef TESSERA_CONTROL
auto const both = tessera::concat(tessera::branch(), tessera::branch(tessera::relu()));
#else
auto const both = tessera::concat(tessera::branch(), tessera::relu());
#endif
