// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/core/config.hpp"

namespace tessera {

/// Four words of Philox4x32-10, a counter-based generator: a pure function of counter and key.
/// Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11.
struct PhiloxBlock {
  std::uint32_t word[4];
};

TESSERA_HD constexpr PhiloxBlock philox(std::uint64_t counter_low, std::uint64_t counter_high, std::uint64_t key) {
  std::uint32_t x0 = static_cast<std::uint32_t>(counter_low), x1 = static_cast<std::uint32_t>(counter_low >> 32),
                x2 = static_cast<std::uint32_t>(counter_high), x3 = static_cast<std::uint32_t>(counter_high >> 32),
                k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    std::uint64_t const p0 = std::uint64_t{0xD2511F53u} * x0, p1 = std::uint64_t{0xCD9E8D57u} * x2;
    x0 = static_cast<std::uint32_t>(p1 >> 32) ^ x1 ^ k0;
    x1 = static_cast<std::uint32_t>(p1);
    x2 = static_cast<std::uint32_t>(p0 >> 32) ^ x3 ^ k1;
    x3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{x0, x1, x2, x3}};
}

/// Names a stream of random words: equal keys and indices give equal words on every rank, whatever the decomposition.
struct RandomStream {
  std::uint64_t key = 0;
  std::uint64_t step = 0;

  /// The word that belongs to a global logical index.
  TESSERA_HD constexpr std::uint32_t word(std::int64_t index) const {
    auto const i = static_cast<std::uint64_t>(index);
    return philox(i / 4, step, key).word[i % 4];
  }

  /// Uniform in [-bound, bound), with 24 random bits.
  TESSERA_HD constexpr double uniform(std::int64_t index, double bound) const {
    return bound * (2.0 * (static_cast<double>(word(index) >> 8) * 0x1p-24) - 1.0);
  }
};

/// The stream of a seed and a name (64-bit FNV-1a of the name, mixed with the seed).
constexpr RandomStream random_stream(std::uint64_t seed, std::string_view name, std::uint64_t step = 0) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (char const letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  PhiloxBlock const mixed = philox(seed, hash, 0x7465737365726121u);
  return {std::uint64_t{mixed.word[1]} << 32 | mixed.word[0], step};
}

}  // namespace tessera
