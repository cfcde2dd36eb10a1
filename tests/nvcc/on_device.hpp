// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/model/model.hpp>
#include <tessera/partition/distribution.hpp>

namespace tessera::test {

using Device = Kokkos::Cuda;
using Split = Distribution<axes::Sample, axes::Depth, axes::Height, axes::Width>;
using Whole = Distribution<axes::Sample>;
using Net = Model<float, Device>;

/// Layers bound to the memory of a device: their passes both ways, and the kernels in them, are compiled.
template <class Policy, class... Specs>
Net on_device(RankGrid<Policy> const& ranks, Specs const&... specs) {
  return sequential<float, Device>(ranks, SampleShape<3>{.channels = 4, .space = {16, 16, 16}}, specs...);
}

}  // namespace tessera::test
