// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "philox.hpp"

namespace cosmoflow {

/// A flat universe with a cosmological constant. Lengths are in Mpc/h, wave numbers in h/Mpc.
struct Cosmology {
  double omega_m = 0.3089;
  double sigma_8 = 0.8159;
  double n_s = 0.9667;
  double h = 0.6774;
};

inline constexpr std::array<char const*, 4> parameter_names{"omega_m", "sigma_8", "n_s", "h"};
inline constexpr double parameter_spread = 0.3;  ///< Parameters lie within this fraction of Cosmology's defaults.

// Not varied. Planck Collaboration XIII, A&A 594, A13 (2016); Fixsen, ApJ 707, 916 (2009).
inline constexpr double omega_b = 0.0486;
inline constexpr double cmb_kelvin = 2.7255;

/// What a network is to learn about one universe: its parameters, and the same scaled to [-1, 1].
struct Truth {
  Cosmology cosmology;
  std::array<float, 4> target;
};

[[nodiscard]] inline Truth draw_truth(UniverseRandom const& random) {
  auto u = random.uniform(Stream::parameters, 0);
  for (double& x : u) x = 2 * x - 1;
  auto const scaled = [&](double centre, std::size_t i) { return centre * (1 + parameter_spread * u[i]); };
  Cosmology const c;
  return {.cosmology = {scaled(c.omega_m, 0), scaled(c.sigma_8, 1), scaled(c.n_s, 2), scaled(c.h, 3)},
          .target = {static_cast<float>(u[0]), static_cast<float>(u[1]), static_cast<float>(u[2]),
                     static_cast<float>(u[3])}};
}

/// Variance of a field of power spectrum `power` averaged in spheres of `radius`:
/// integral of dk k^2 / (2 pi^2) P(k) W(k radius)^2, W(x) = 3 (sin x - x cos x) / x^3.
template <class Power>
[[nodiscard]] double top_hat_variance(Power const& power, double radius) {
  constexpr int steps = 2048;  // in ln k, from 1e-5 to 1e2 over the radius; the integrand vanishes at both ends
  double const first = std::log(1e-5 / radius);
  double const step = (std::log(1e2 / radius) - first) / steps;
  double sum = 0;
  for (int i = 0; i <= steps; ++i) {
    double const k = std::exp(first + step * i);
    double const x = k * radius;
    double const window = x < 1e-2 ? 1 - x * x / 10 : 3 * (std::sin(x) - x * std::cos(x)) / (x * x * x);
    sum += k * k * k * power(k) * window * window;
  }
  return sum * step / (2 * std::numbers::pi * std::numbers::pi);
}

/// Linear matter power spectrum today in (Mpc/h)^3: A k^n_s T(k)^2, with A such that the variance in spheres of
/// 8 Mpc/h is sigma_8^2. T is the fit without wiggles of Eisenstein and Hu, ApJ 496, 605 (1998).
class PowerSpectrum {
 public:
  explicit PowerSpectrum(Cosmology const& cosmology) : cosmology_{cosmology} {
    double const matter = cosmology.omega_m * cosmology.h * cosmology.h;
    double const baryon = omega_b * cosmology.h * cosmology.h;
    double const fraction = omega_b / cosmology.omega_m;
    // Sound horizon in Mpc, equation 26; the paper's k is in 1/Mpc, hence the factor h.
    sound_ = cosmology.h * 44.5 * std::log(9.83 / matter) / std::sqrt(1 + 10 * std::pow(baryon, 0.75));
    // Equation 31.
    alpha_ = 1 - 0.328 * std::log(431 * matter) * fraction + 0.38 * std::log(22.3 * matter) * fraction * fraction;
    amplitude_ = cosmology.sigma_8 * cosmology.sigma_8 / top_hat_variance(*this, 8.0);
  }

  [[nodiscard]] double operator()(double k) const {
    double const t = transfer(k);
    return amplitude_ * std::pow(k, cosmology_.n_s) * t * t;
  }

  /// Equations 28 to 30.
  [[nodiscard]] double transfer(double k) const {
    double const x = 0.43 * k * sound_;
    double const gamma = cosmology_.omega_m * cosmology_.h * (alpha_ + (1 - alpha_) / (1 + x * x * x * x));
    double const theta = cmb_kelvin / 2.7;
    double const q = k * theta * theta / gamma;
    double const l = std::log(2 * std::numbers::e + 1.8 * q);
    double const c = 14.2 + 731 / (1 + 62.5 * q);
    return l / (l + c * q * q);
  }

 private:
  Cosmology cosmology_;
  double sound_ = 0;
  double alpha_ = 0;
  double amplitude_ = 1;
};

/// Omega_m(z).
[[nodiscard]] inline double matter_fraction(double omega_m, double redshift) {
  double const matter = omega_m * std::pow(1 + redshift, 3);
  return matter / (matter + 1 - omega_m);
}

/// Growth factor D1(z) of linear perturbations, 1 today: H(a) times the integral of da / (a H)^3.
/// Source: Heath, MNRAS 179, 351 (1977).
[[nodiscard]] inline double linear_growth(double omega_m, double redshift) {
  auto const growth = [omega_m](double a) {
    // With a = t^2 the integrand 2 t^4 / (Omega_m + Omega_Lambda t^6)^(3/2) is smooth, as Simpson's rule needs.
    constexpr int steps = 128;
    double const step = std::sqrt(a) / steps;
    double sum = 0;
    for (int i = 0; i <= steps; ++i) {
      double const t = step * i;
      double const weight = i == 0 || i == steps ? 1 : (i % 2 == 1 ? 4 : 2);
      sum += weight * 2 * std::pow(t, 4) / std::pow(omega_m + (1 - omega_m) * std::pow(t, 6), 1.5);
    }
    return std::sqrt(omega_m / (a * a * a) + 1 - omega_m) * sum * step / 3;
  };
  return growth(1 / (1 + redshift)) / growth(1);
}

/// Second-order growth factor D2(z) = -3/7 D1^2 Omega_m(z)^(-1/143).
/// Source: Bouchet, Colombi, Hivon and Juszkiewicz, A&A 296, 575 (1995).
[[nodiscard]] inline double second_order_growth(double omega_m, double redshift) {
  double const d1 = linear_growth(omega_m, redshift);
  return -3.0 / 7.0 * d1 * d1 * std::pow(matter_fraction(omega_m, redshift), -1.0 / 143.0);
}

}  // namespace cosmoflow
