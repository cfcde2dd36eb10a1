// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// kernels: AveragePool AveragePoolAdjoint MaxPool MaxPoolAdjoint SumOverReaders AdaptiveGeometry ChannelSum SpreadError

#include <tessera/layer/adaptive_pool.hpp>
#include <tessera/layer/pool.hpp>

#include "on_device.hpp"

tessera::test::Net pools(tessera::RankGrid<tessera::test::Split> const& ranks) {
  using namespace tessera;
  return test::on_device(ranks, avg_pool3d<3>(stride(2), padding(1)), max_pool3d<2>(stride(1), dilation(2)),
                         adaptive_avg_pool3d({3, 4, 5}), global_avg_pool());
}
