// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// kernels: AddChannels CopyChannels PackSums Unpack Apply ApplySlope

#include <tessera/io/batch.hpp>
#include <tessera/layer/activation.hpp>
#include <tessera/layer/redistribute.hpp>
#include <tessera/model/residual.hpp>

#include "on_device.hpp"

tessera::test::Net branches(tessera::RankGrid<tessera::test::Split> const& ranks) {
  using namespace tessera;
  return test::on_device(ranks, residual(relu()), redistribute<test::Whole>());
}

/// Samples go to the device through a staging buffer.
void fill(tessera::Shard<float, tessera::test::Device> const& input) {
  tessera::io::BatchReader<float, tessera::test::Device> reader;
  reader(input, [](std::int64_t, tessera::Box const& box, float* cells) { cells[box.volume() - 1] = 1; });
}
