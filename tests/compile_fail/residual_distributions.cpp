// expect: tessera::branch: all branches must end in the Distribution that they start in; redistribute before or after the branches instead
// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "tessera/layer/activation.hpp"
#include "tessera/layer/redistribute.hpp"
#include "tessera/model/model.hpp"
#include "tessera/model/residual.hpp"

using namespace tessera::axes;
using Spatial = tessera::Distribution<Sample, Depth>;
using Whole = tessera::Distribution<Sample>;

tessera::Model<float> network(tessera::RankGrid<Spatial> const& ranks) {
  using namespace tessera;
#ifdef TESSERA_CONTROL
  return sequential<float>(ranks, SampleShape<3>{}, residual(relu()), redistribute<Whole>());
#else
  return sequential<float>(ranks, SampleShape<3>{}, residual(relu(), redistribute<Whole>()));
#endif
}
