// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace cosmoflow {

/// Counter-based random numbers: the same (key, counter) gives the same four words, in any order, on any rank.
/// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (Philox4x32, 10 rounds).
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                                std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    std::uint64_t const a = std::uint64_t{0xD2511F53} * counter[0];
    std::uint64_t const b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

/// The independent sequences that one universe needs.
enum class Stream : std::uint32_t { parameters = 1, white_noise = 2 };

/// The random numbers of universe `index` under `seed`, in blocks of four.
class UniverseRandom {
 public:
  constexpr UniverseRandom(std::uint64_t seed, std::uint64_t index) : seed_{seed}, index_{index} {}

  [[nodiscard]] constexpr std::array<std::uint32_t, 4> words(Stream stream, std::uint64_t block) const {
    // A block number fits 56 bits (a grid of 2^58 cells), which leaves the counter's second word room for the stream.
    return philox4x32({low(block), high(block) ^ (static_cast<std::uint32_t>(stream) << 24), low(index_), high(index_)},
                      {low(seed_), high(seed_)});
  }

  /// Four numbers, uniform in the open interval (0, 1).
  [[nodiscard]] constexpr std::array<double, 4> uniform(Stream stream, std::uint64_t block) const {
    auto const w = words(stream, block);
    return {unit(w[0]), unit(w[1]), unit(w[2]), unit(w[3])};
  }

  /// Four independent standard normal numbers. Source: Box and Muller, Ann. Math. Statist. 29, 610 (1958).
  [[nodiscard]] std::array<double, 4> normal(Stream stream, std::uint64_t block) const {
    auto const u = uniform(stream, block);
    double const r0 = std::sqrt(-2 * std::log(u[0]));
    double const r1 = std::sqrt(-2 * std::log(u[2]));
    double const a0 = 2 * std::numbers::pi * u[1];
    double const a1 = 2 * std::numbers::pi * u[3];
    return {r0 * std::cos(a0), r0 * std::sin(a0), r1 * std::cos(a1), r1 * std::sin(a1)};
  }

 private:
  static constexpr std::uint32_t low(std::uint64_t v) { return static_cast<std::uint32_t>(v); }
  static constexpr std::uint32_t high(std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); }
  static constexpr double unit(std::uint32_t w) { return (static_cast<double>(w) + 0.5) * 0x1p-32; }

  std::uint64_t seed_;
  std::uint64_t index_;
};

}  // namespace cosmoflow
