// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fftw3.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>

namespace cosmoflow {

/// A real field on a periodic cube of `cells`^3 (even), or its Fourier modes: one buffer, transformed in place, so that
/// rows of the real field are padded to cells + 2.
class PeriodicField {
 public:
  explicit PeriodicField(std::int64_t cells)
      : cells_{cells}, data_{fftw_alloc_real(static_cast<std::size_t>(cells * cells * (cells + 2)))} {
    if (!data_) throw std::bad_alloc{};
  }

  [[nodiscard]] std::int64_t cells() const { return cells_; }
  [[nodiscard]] double* row(std::int64_t x, std::int64_t y) { return data_.get() + (x * cells_ + y) * (cells_ + 2); }
  [[nodiscard]] double const* row(std::int64_t x, std::int64_t y) const {
    return data_.get() + (x * cells_ + y) * (cells_ + 2);
  }
  [[nodiscard]] double* values() { return data_.get(); }
  [[nodiscard]] std::complex<double>* modes() { return reinterpret_cast<std::complex<double>*>(data_.get()); }
  [[nodiscard]] std::complex<double> const* modes() const {
    return reinterpret_cast<std::complex<double> const*>(data_.get());
  }

 private:
  struct Free {
    void operator()(double* p) const { fftw_free(p); }
  };
  std::int64_t cells_;
  std::unique_ptr<double[], Free> data_;
};

/// Transforms of fields of one size. The modes are those of field(x) = sum over k of mode(k) exp(i k x): `to_values`
/// needs no factor, `to_modes` leaves out a division by cells^3.
class Fourier {
 public:
  explicit Fourier(std::int64_t cells) {
    PeriodicField scratch{cells};
    int const n = static_cast<int>(cells);
    auto* modes = reinterpret_cast<fftw_complex*>(scratch.modes());
    // Estimated, not measured: a measured plan may differ from run to run, and with it the last bits of a universe.
    forward_.reset(fftw_plan_dft_r2c_3d(n, n, n, scratch.values(), modes, FFTW_ESTIMATE));
    backward_.reset(fftw_plan_dft_c2r_3d(n, n, n, modes, scratch.values(), FFTW_ESTIMATE));
    if (!forward_ || !backward_) throw std::bad_alloc{};
  }

  void to_modes(PeriodicField& field) const {
    fftw_execute_dft_r2c(forward_.get(), field.values(), reinterpret_cast<fftw_complex*>(field.modes()));
  }
  void to_values(PeriodicField& field) const {
    fftw_execute_dft_c2r(backward_.get(), reinterpret_cast<fftw_complex*>(field.modes()), field.values());
  }

 private:
  struct Destroy {
    void operator()(fftw_plan p) const { fftw_destroy_plan(p); }
  };
  std::unique_ptr<std::remove_pointer_t<fftw_plan>, Destroy> forward_;
  std::unique_ptr<std::remove_pointer_t<fftw_plan>, Destroy> backward_;
};

/// Calls f(position in modes(), mx, my, mz) for every stored mode; the wave vector is (mx, my, mz) 2 pi / box.
/// A Nyquist component is +cells/2.
template <class Function>
void for_each_mode(std::int64_t cells, Function f) {
  std::int64_t const half = cells / 2;
  std::int64_t at = 0;
  for (std::int64_t x = 0; x < cells; ++x) {
    std::int64_t const mx = x <= half ? x : x - cells;
    for (std::int64_t y = 0; y < cells; ++y) {
      std::int64_t const my = y <= half ? y : y - cells;
      for (std::int64_t mz = 0; mz <= half; ++mz) f(at++, mx, my, mz);
    }
  }
}

}  // namespace cosmoflow
