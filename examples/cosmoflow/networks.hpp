// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "tessera/tessera.hpp"

namespace cosmoflow {

using namespace tessera::axes;

/// Samples are cut along any of their axes while convolutions work, and whole for the dense layers.
using Spatial = tessera::Distribution<Sample, Depth, Height, Width>;
using Whole = tessera::Distribution<Sample>;

/// Counts from the text of --split; without one, all ranks along depth.
inline tessera::Counts split(std::string const& text, int ranks) {
  if (text.empty()) return {.depth = ranks};
  tessera::Counts const counts = tessera::parse_counts(text);
  tessera::require(counts.channel == 1, "cosmoflow", "--split must cut sample, depth, height or width, but '", text,
                   "' cuts channel");
  double parts = 1.0;
  for (tessera::AxisId axis : tessera::rank_order) parts *= static_cast<double>(counts[axis]);
  tessera::require(parts == ranks, "cosmoflow", "--split must make as many parts as there are ranks, but '", text,
                   "' makes ", parts, " and there are ", ranks, "; change the split or the number of ranks");
  return counts;
}

/// How often a cube can be halved before 2 cells are left along its shortest side.
inline int halvings(tessera::Shape const& sample) {
  std::int64_t side = std::min({sample.depth, sample.height, sample.width});
  tessera::require(side >= 16, "cosmoflow", "a sample must have at least 16 cells along each side, but it has ",
                   sample.depth, " x ", sample.height, " x ", sample.width);
  int count = 0;
  for (; side > 3; side = (side + 1) / 2) ++count;
  return count;
}

/// The CosmoFlow network of Oyama et al. (2021), for any cube: block 4 has stride 2, the first halvings - 1 blocks end
/// in a pool, and cubes below 128 (below 64) do without block 7 (and 6), so that 2 cells per side remain.
template <class T>
tessera::Model<T> paper_network(tessera::RankGrid<Spatial> const& ranks, tessera::SampleShape<3> const& sample,
                                bool with_norm) {
  using namespace tessera;
  int const pools = halvings(sample.shape()) - 1;
  auto const block = [&](int number, std::int64_t channels, std::int64_t step = 1) {
    return sequence(conv3d<3>(channels, stride(step), padding(1), no_bias), when(with_norm, batch_norm()),
                    leaky_relu(0.01), when(pools >= number, avg_pool3d<3>(stride(2), padding(1))));
  };
  return sequential<T>(ranks, sample, block(1, 16), block(2, 32), block(3, 64), block(4, 128, 2), block(5, 256),
                       when(pools >= 4, block(6, 256)), when(pools >= 5, block(7, 256)),  //
                       redistribute<Whole>(), flatten(),                                  //
                       dropout(0.2), dense(2048, bias(0.1)), leaky_relu(0.01),            //
                       dropout(0.2), dense(256, bias(0.1)), leaky_relu(0.01),             //
                       dropout(0.2), dense(4, bias(0.1)));
}

/// CosmoFlow as MLPerf HPC trains it.
template <class T>
tessera::Model<T> mlperf_network(tessera::RankGrid<Spatial> const& ranks, tessera::SampleShape<3> const& sample,
                                 bool with_norm) {
  using namespace tessera;
  auto const block = [&](std::int64_t channels) {
    return sequence(conv3d<3>(channels, same), when(with_norm, batch_norm()), leaky_relu(0.3), max_pool3d<2>());
  };
  return sequential<T>(ranks, sample, block(32), block(64), block(128), block(256), block(512),  //
                       redistribute<Whole>(), flatten(),                                         //
                       dense(128), leaky_relu(0.3), dropout(0.5), dense(64), leaky_relu(0.3), dropout(0.5), dense(4),
                       scaled_tanh(1.2));
}

/// By name: "paper" or "mlperf".
template <class T>
tessera::Model<T> network(std::string const& name, tessera::RankGrid<Spatial> const& ranks,
                          tessera::SampleShape<3> const& sample, bool with_norm) {
  tessera::require(name == "paper" || name == "mlperf", "cosmoflow", "--network must be paper or mlperf, not '", name,
                   "'");
  return name == "paper" ? paper_network<T>(ranks, sample, with_norm) : mlperf_network<T>(ranks, sample, with_norm);
}

}  // namespace cosmoflow
