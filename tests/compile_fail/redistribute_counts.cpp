// expect: tessera::redistribute: a Distribution with several dynamic axes needs counts by name: redistribute<P>({.sample = 2, .depth = 2})
// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "tessera/layer/redistribute.hpp"
#include "tessera/model/model.hpp"

using namespace tessera::axes;
using Slabs = tessera::Distribution<Depth>;
using Both = tessera::Distribution<Sample, Depth>;

tessera::Model<float> network(tessera::RankGrid<Slabs> const& ranks) {
  using namespace tessera;
#ifdef TESSERA_CONTROL
  return sequential<float>(ranks, SampleShape<3>{}, redistribute<Both>({.sample = 2, .depth = 2}));
#else
  return sequential<float>(ranks, SampleShape<3>{}, redistribute<Both>());
#endif
}
