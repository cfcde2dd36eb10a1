// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// kernels: Multiply MultiplySums MultiplySumOfChunks CopyChannels AddChannels PackSums Unpack FillChannels

#include <tessera/layer/activation.hpp>
#include <tessera/layer/pool.hpp>
#include <tessera/model/concat.hpp>
#include <tessera/model/multiply.hpp>
#include <tessera/model/sum.hpp>

#include "on_device.hpp"

tessera::test::Net joined_branches(tessera::RankGrid<tessera::test::Split> const& ranks) {
  using namespace tessera;
  return test::on_device(ranks, concat(branch(relu()), branch()), add(branch(), branch(relu())),
                         multiply(branch(), branch(avg_pool3d<16>(), scaled_tanh())));
}
