// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/host_tensor.hpp"

/// What acts on each cell, or on the channels of each position, alone.
namespace tessera::test::oracle {

/// y with y[i] = f(x[i]).
template <class F>
HostTensor cell_by_cell(HostTensor const& x, F f) {
  HostTensor y = x;
  for (double& value : y.values) value = f(value);
  return y;
}
template <class F>
HostTensor cell_by_cell(HostTensor const& x, HostTensor const& z, F f) {
  HostTensor y = x;
  for (std::size_t i = 0; i < y.values.size(); ++i) y.values[i] = f(x.values[i], z.values[i]);
  return y;
}

/// Philox4x32-10 as Salmon et al. write it down: ten rounds on four words with two keys that grow between rounds.
inline std::vector<std::uint32_t> philox(std::vector<std::uint32_t> counter, std::vector<std::uint32_t> key) {
  for (int round = 0; round < 10; ++round) {
    if (round > 0) {
      key[0] += 0x9E3779B9u;
      key[1] += 0xBB67AE85u;
    }
    auto const high = [](std::uint64_t p) { return static_cast<std::uint32_t>(p >> 32); };
    auto const low = [](std::uint64_t p) { return static_cast<std::uint32_t>(p & 0xFFFFFFFFu); };
    std::uint64_t const a = std::uint64_t{0xD2511F53u} * counter[0], b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {high(b) ^ counter[1] ^ key[0], low(b), high(a) ^ counter[3] ^ key[1], low(a)};
  }
  return counter;
}

/// The word of cell number `index` of the whole tensor, counted from the batch's first sample.
inline std::uint32_t random_word(std::uint64_t key, std::uint64_t step, std::uint64_t index) {
  auto const low = [](std::uint64_t p) { return static_cast<std::uint32_t>(p & 0xFFFFFFFFu); };
  std::uint64_t const block = index / 4;
  return philox({low(block), low(block >> 32), low(step), low(step >> 32)}, {low(key), low(key >> 32)})[index % 4];
}

/// Cells in PyTorch's order: (n, d, h, w, c) to channel ((c D + d) H + h) W + w of a position.
inline HostTensor flatten(HostTensor const& x) {
  Shape const s = x.shape;
  HostTensor flat(Shape{s.sample, 1, 1, 1, s.channel * s.depth * s.height * s.width});
  for (std::int64_t n = 0; n < s.sample; ++n) {
    std::int64_t next = 0;
    for (std::int64_t c = 0; c < s.channel; ++c)
      for (std::int64_t d = 0; d < s.depth; ++d)
        for (std::int64_t h = 0; h < s.height; ++h)
          for (std::int64_t w = 0; w < s.width; ++w) flat.at(n, 0, 0, 0, next++) = x.at(n, d, h, w, c);
  }
  return flat;
}

}  // namespace tessera::test::oracle
