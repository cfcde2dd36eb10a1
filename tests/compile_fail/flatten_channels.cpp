// expect: tessera::flatten: the input must be whole in space and channels; redistribute to a Distribution that splits samples only
// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "tessera/layer/dense.hpp"
#include "tessera/layer/flat_dense.hpp"
#include "tessera/layer/flatten.hpp"
#include "tessera/model/model.hpp"

using namespace tessera::axes;
using Filters = tessera::Distribution<Sample, Channel>;

tessera::Model<float> network(tessera::RankGrid<Filters> const& ranks) {
  using namespace tessera;
#ifdef TESSERA_CONTROL
  return sequential<float>(ranks, SampleShape<3>{}, dense(4, flattened));
#else
  return sequential<float>(ranks, SampleShape<3>{}, flatten(), dense(4));
#endif
}
