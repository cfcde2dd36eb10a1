// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "../../examples/cosmoflow/cosmology.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "../../examples/cosmoflow/philox.hpp"

namespace {

using namespace cosmoflow;
using Words = std::array<std::uint32_t, 4>;

// The known answers that Random123 (Salmon et al. 2011) ships for philox4x32 with 10 rounds.
static_assert(philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(philox4x32({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
              Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

constexpr Words words(std::uint64_t seed, std::uint64_t index, Stream stream, std::uint64_t block) {
  return UniverseRandom{seed, index}.words(stream, block);
}
constexpr Words reference = words(1, 2, Stream::white_noise, 3);
static_assert(reference == words(1, 2, Stream::white_noise, 3));
static_assert(reference != words(2, 2, Stream::white_noise, 3));
static_assert(reference != words(1 + (std::uint64_t{1} << 32), 2, Stream::white_noise, 3));
static_assert(reference != words(1, 3, Stream::white_noise, 3));
static_assert(reference != words(1, 2 + (std::uint64_t{1} << 32), Stream::white_noise, 3));
static_assert(reference != words(1, 2, Stream::parameters, 3));
static_assert(reference != words(1, 2, Stream::white_noise, 4));
static_assert(reference != words(1, 2, Stream::white_noise, 3 + (std::uint64_t{1} << 32)));

// Tolerances below are five standard deviations of the estimate.
TEST_CASE("normal numbers have the moments of a normal distribution and do not correlate") {
  constexpr int blocks = 1 << 16;
  UniverseRandom const random{3, 4};
  std::array<double, 4> moment{};
  double pairs = 0;
  double squares = 0;
  for (int b = 0; b < blocks; ++b) {
    auto const g = random.normal(Stream::white_noise, static_cast<std::uint64_t>(b));
    for (double const x : g) {
      double power = 1;
      for (double& m : moment) m += (power *= x);
    }
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t j = i + 1; j < 4; ++j) {
        pairs += g[i] * g[j];
        squares += (g[i] * g[i] - 1) * (g[j] * g[j] - 1);
      }
  }
  double const n = 4.0 * blocks;
  CHECK(std::abs(moment[0] / n) < 5 / std::sqrt(n));
  CHECK(std::abs(moment[1] / n - 1) < 5 * std::sqrt(2 / n));
  CHECK(std::abs(moment[2] / n) < 5 * std::sqrt(15 / n));
  CHECK(std::abs(moment[3] / n - 3) < 5 * std::sqrt(96 / n));
  CHECK(std::abs(pairs) < 5 * std::sqrt(6.0 * blocks));
  CHECK(std::abs(squares) < 5 * std::sqrt(24.0 * blocks));  // each square less 1 has variance 2
}

TEST_CASE("parameters are uniform within 30 % of their centres and the targets are the same scaled") {
  constexpr int universes = 4096;
  std::array<double, 4> sum{};
  std::array<double, 4> square{};
  for (std::uint64_t i = 0; i < universes; ++i) {
    auto const [c, target] = draw_truth({11, i});
    std::array const scaled{(c.omega_m / 0.3089 - 1) / 0.3, (c.sigma_8 / 0.8159 - 1) / 0.3, (c.n_s / 0.9667 - 1) / 0.3,
                            (c.h / 0.6774 - 1) / 0.3};
    for (std::size_t p = 0; p < 4; ++p) {
      REQUIRE(std::abs(target[p]) <= 1);
      REQUIRE(scaled[p] == doctest::Approx(static_cast<double>(target[p])).epsilon(1e-6));
      sum[p] += scaled[p];
      square[p] += scaled[p] * scaled[p];
    }
  }
  for (std::size_t p = 0; p < 4; ++p) {
    CHECK(std::abs(sum[p] / universes) < 5 * std::sqrt(1.0 / 3 / universes));
    CHECK(std::abs(square[p] / universes - 1.0 / 3) < 5 * std::sqrt(4.0 / 45 / universes));
  }
}

TEST_CASE("the power spectrum is that of another code") {
  // Colossus 1.4.0 (Diemer 2018), model eisenstein98_zb, T_cmb 2.7255 K, Omega_b 0.0486, no relativistic species.
  constexpr std::array k{0.001, 0.01, 0.05, 0.1, 0.3, 1.0};
  struct Case {
    Cosmology cosmology;
    std::array<double, 6> power;
  };
  std::array const cases{Case{{0.3089, 0.8159, 0.9667, 0.6774}, {3772.07, 21905.5, 13006.3, 5831.02, 888.235, 65.8058}},
                         Case{{0.22, 1.0, 1.2, 0.5}, {10718.0, 68553.9, 23505.6, 8897.5, 1254.34, 102.702}},
                         Case{{0.4, 0.6, 0.7, 0.87}, {2181.18, 8490.4, 6181.35, 3078.14, 499.673, 32.9276}}};
  for (auto const& [cosmology, power] : cases) {
    PowerSpectrum const ours{cosmology};
    for (std::size_t i = 0; i < k.size(); ++i) CHECK(ours(k[i]) == doctest::Approx(power[i]).epsilon(1e-4));
  }
}

TEST_CASE("the power spectrum has its sigma_8") {
  for (Cosmology const& cosmology : {Cosmology{}, Cosmology{0.22, 1.06, 1.25, 0.48}, Cosmology{0.4, 0.6, 0.68, 0.88}}) {
    // By another rule and in another variable than top_hat_variance: midpoints, in k.
    PowerSpectrum const power{cosmology};
    double sum = 0;
    double const step = 2e-4;
    for (double k = step / 2; k < 10; k += step) {
      double const x = 8 * k;
      double const window = 3 * (std::sin(x) / x - std::cos(x)) / (x * x);
      sum += k * k * power(k) * window * window * step;
    }
    CHECK(std::sqrt(sum / 2) / std::numbers::pi == doctest::Approx(cosmology.sigma_8).epsilon(1e-3));
  }
}

TEST_CASE("growth") {
  for (double const omega_m : {0.22, 0.3089, 0.4, 1.0}) CHECK(linear_growth(omega_m, 0) == 1);

  SUBCASE("of a universe of matter alone (Einstein-de Sitter) is 1 / (1 + z)") {
    for (double const z : {0.0, 0.5, 1.5, 3.0, 20.0}) {
      CHECK(linear_growth(1, z) == doctest::Approx(1 / (1 + z)).epsilon(1e-9));
      CHECK(second_order_growth(1, z) == doctest::Approx(-3.0 / 7 / ((1 + z) * (1 + z))).epsilon(1e-9));
    }
  }
  SUBCASE("agrees with the fit of Carroll, Press and Turner (1992) to its 2 %") {
    auto const fit = [](double omega_m, double z) {
      double const m = matter_fraction(omega_m, z);
      double const v = 1 - m;
      return 2.5 * m / (std::pow(m, 4.0 / 7) - v + (1 + m / 2) * (1 + v / 70)) / (1 + z);
    };
    for (double const omega_m : {0.22, 0.3089, 0.4})
      for (double const z : {0.5, 1.5, 3.0})
        CHECK(linear_growth(omega_m, z) == doctest::Approx(fit(omega_m, z) / fit(omega_m, 0)).epsilon(0.02));
  }
  SUBCASE("agrees with Colossus 1.4.0") {
    CHECK(linear_growth(0.3089, 0.5) == doctest::Approx(0.7706386).epsilon(1e-4));
    CHECK(linear_growth(0.3089, 3) == doctest::Approx(0.3167748).epsilon(1e-4));
    CHECK(linear_growth(0.22, 1.5) == doctest::Approx(0.5321402).epsilon(1e-4));
    CHECK(linear_growth(0.4, 1.5) == doctest::Approx(0.4730754).epsilon(1e-4));
  }
  SUBCASE("of second order") {
    double const matter = 0.3089 * 8 / (0.3089 * 8 + 0.6911);
    CHECK(matter_fraction(0.3089, 1) == doctest::Approx(matter));
    double const d1 = linear_growth(0.3089, 1);
    CHECK(second_order_growth(0.3089, 1) == doctest::Approx(-3.0 / 7 * d1 * d1 * std::pow(matter, -1.0 / 143)));
  }
}

}  // namespace
