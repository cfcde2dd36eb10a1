// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/core/error.hpp"
#include "tessera/partition/interval.hpp"

namespace tessera {

/// What one output cell reads along one axis: taps j of y[o] = sum_j w[j] x[o * stride - low + dilation * j].
/// All values are run-time values; pads may be negative (cropping).
struct Window {
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  std::int64_t low = 0;   ///< cells of padding before the first one
  std::int64_t high = 0;  ///< cells of padding after the last one

  /// The extent that the dilated kernel covers.
  TESSERA_HD constexpr std::int64_t span() const { return dilation * (kernel - 1) + 1; }

  /// The number of outputs from n inputs, 0 when the window does not fit: see checked_outputs.
  TESSERA_HD constexpr std::int64_t outputs(std::int64_t n) const {
    std::int64_t const room = n + low + high - span();
    return room < 0 ? 0 : room / stride + 1;
  }

  /// The inputs that outputs `out` read, padding cells included: tight at both ends, but a hull.
  TESSERA_HD constexpr Interval required(Interval out) const {
    if (out.empty()) return {};
    return {out.begin * stride - low, (out.end - 1) * stride - low + span()};
  }

  /// The outputs that inputs `in` contribute to, as if outputs extended without bound: a superset when the dilation
  /// exceeds the input's size, and possibly empty in the gaps of a stride.
  TESSERA_HD constexpr Interval touch(Interval in) const {
    if (in.empty()) return {};
    return {ceil_div(in.begin + low - span() + 1, stride), floor_div(in.end - 1 + low, stride) + 1};
  }

  /// The outputs all of whose taps lie in `in`, as if outputs extended without bound.
  TESSERA_HD constexpr Interval interior(Interval in) const {
    if (in.empty()) return {};
    return {ceil_div(in.begin + low, stride), floor_div(in.end - span() + low, stride) + 1};
  }

  TESSERA_HD constexpr bool pointwise() const { return kernel == 1 && stride == 1 && low == 0 && high == 0; }

  friend constexpr bool operator==(Window const&, Window const&) = default;
};

/// The window whose padding makes ceil(n / stride) outputs, as TensorFlow (and, for stride 1, PyTorch) defines "same".
constexpr Window same_window(std::int64_t n, std::int64_t kernel, std::int64_t stride, std::int64_t dilation) {
  Window window{kernel, stride, dilation, 0, 0};
  std::int64_t const total = larger(0, window.span() - (n % stride != 0 ? n % stride : stride));
  window.low = total / 2;
  window.high = total - window.low;
  return window;
}

/// Fails, naming the axis, if the window is not valid.
constexpr void check_window(Window const& window, std::string_view who, std::string_view axis) {
  require(window.kernel >= 1 && window.stride >= 1 && window.dilation >= 1, who,
          "kernel, stride and dilation must be at least 1, but along ", axis, " they are ", window.kernel, ", ",
          window.stride, ", ", window.dilation);
}

/// outputs(n), or an error that names the axis when the window is not valid or does not fit.
constexpr std::int64_t checked_outputs(Window const& window, std::int64_t n, std::string_view who,
                                       std::string_view axis) {
  check_window(window, who, axis);
  require(n + window.low + window.high >= window.span(), who, "the kernel must fit into the padded input, but along ",
          axis, " it covers ", window.span(), " cells of ", n, " + ", window.low, " + ", window.high,
          "; use a smaller kernel or more padding");
  return window.outputs(n);
}

}  // namespace tessera
