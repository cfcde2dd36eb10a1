// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/layer/window_layer.hpp"
#include "tessera/layer/window_spec.hpp"
#include "tessera/op/pool.hpp"

namespace tessera {

/// Option of pools: a last window that the input, with its padding, ends within counts too (it does not by default).
struct CeilMode {};
inline constexpr CeilMode ceil_mode{};

/// Option of an average: padding cells do not count in the divisor (they do by default, as in PyTorch).
struct ExcludePadding {};
inline constexpr ExcludePadding exclude_padding{};

/// Option of an average: what every sum is divided by, whatever the window holds.
struct Divisor {
  std::int64_t value;
};
constexpr Divisor divisor(std::int64_t value) { return {value}; }

/// The windows of a pool, before the input's extents are known.
struct PoolWindows {
  WindowSpec windows;
  bool ceil = false;

  void set(CeilMode) { ceil = true; }
  template <class Option>
  requires detail::TakesOption<WindowSpec, Option>
  void set(Option const& option) { windows.set(option); }
  std::string text() const { return windows.text() + (ceil ? " ceil" : ""); }
};

namespace detail {

/// How many outputs a pool makes of n cells. A window that begins beyond the cells and their padding before them does
/// not count in ceil mode either.
inline std::int64_t pool_outputs(Window const& window, std::int64_t n, bool ceil, std::string const& who,
                                 std::string_view axis) {
  if (!ceil) return checked_outputs(window, n, who, axis);
  std::int64_t m = ceil_div(n + window.low + window.high - window.span(), window.stride) + 1;
  if ((m - 1) * window.stride >= n + window.low) --m;
  require(m >= 1, who, "the kernel may overhang the padded input by less than its stride, but along ", axis,
          " it covers ", window.span(), " cells of ", n, " + ", window.low, " + ", window.high, " with stride ",
          window.stride, "; use a smaller kernel or more padding");
  return m;
}

/// Every output must read a cell; with dilation, all taps of a window may miss the input.
inline void check_taps(op::PoolGeometry const& geometry, int i, std::string const& who, std::string_view axis) {
  Window const& w = geometry.windows.axis[i];
  if (w.dilation == 1) return;  // padding of at most half the kernel leaves a tap within
  for (std::int64_t o = 0; o < geometry.outputs[i]; ++o)
    require(!geometry.taps(i, o).empty(), who, "every window must hold a cell, but along ", axis, " that of output ", o,
            " steps over all ", geometry.extent[i], " with kernel ", w.kernel, ", stride ", w.stride, ", dilation ",
            w.dilation, ", padding ", w.low, " and ", w.high, "; use less dilation or less padding");
}

inline op::PoolGeometry pool_geometry(std::string const& who, PoolWindows const& spec, Shape const& input,
                                      bool may_dilate) {
  op::PoolGeometry geometry;
  geometry.windows = spec.windows.on(input);
  for (int i = 0; i < 3; ++i) {
    Window const& w = geometry.windows.axis[i];
    AxisId const id = spatial_axes[static_cast<std::size_t>(i)];
    std::string_view const axis = tessera::name(id);
    check_window(w, who, axis);
    require(may_dilate || w.dilation == 1, who, "a window must not be dilated, but along ", axis, " the dilation is ",
            w.dilation);
    require(0 <= w.low && 0 <= w.high && 2 * w.low <= w.kernel && 2 * w.high <= w.kernel, who,
            "padding must be between 0 and half the kernel, so that every window holds a cell, but along ", axis,
            " kernel ", w.kernel, " has padding ", w.low, " and ", w.high);
    geometry.extent[i] = input[id];
    geometry.outputs[i] = pool_outputs(w, input[id], spec.ceil, who, axis);
    check_taps(geometry, i, who, axis);
  }
  return geometry;
}

inline Reaches pool_reaches(op::PoolGeometry const& geometry) {
  Reaches reaches;
  for (std::size_t i = 0; i < 3; ++i) {
    reaches[i] = reach_of(geometry.windows.axis[i], geometry.extent[i]);
    reaches[i].outputs = geometry.outputs[i];
    reaches[i] = clipped(reaches[i], geometry.extent[i]);
  }
  return reaches;
}

}  // namespace detail

template <class T, class Space>
class AveragePoolOp {
 public:
  AveragePoolOp(std::string const& name, PoolWindows const& windows, bool count_padding, std::int64_t divisor,
                Shape const& input)
      : text_(windows.text()), geometry_(detail::pool_geometry(name, windows, input, false)) {
    require(divisor >= 0, name, "the divisor must be at least 1, it is ", divisor);
    geometry_.count_padding = count_padding;
    geometry_.fixed_divisor = divisor;
  }

  Reaches reaches(Shape const&) const { return detail::pool_reaches(geometry_); }
  void forward(ForwardPass<T, Space> const& p) const {
    for_each_position("tessera::avg_pool", p.space, p.box, op::AveragePool<T, op::PoolGeometry>{geometry_, p.x, p.y});
  }
  void backward(BackwardPass<T, Space> const& p) const {
    using Adjoint = op::AveragePoolAdjoint<T, op::PoolGeometry>;
    for_each_position("tessera::avg_pool", p.space, p.box,
                      op::SumOverReaders<T, Adjoint>{{geometry_, p.dy}, p.dx, p.accumulate});
  }
  std::string name() const { return "avg_pool " + text_; }

 private:
  std::string text_;
  op::PoolGeometry geometry_;
};

template <class T, class Space>
class MaxPoolOp {
 public:
  static constexpr bool keeps_notes = true;

  MaxPoolOp(std::string const& name, PoolWindows const& windows, Shape const& input)
      : text_(windows.text()), geometry_(detail::pool_geometry(name, windows, input, true)) {}

  Reaches reaches(Shape const&) const { return detail::pool_reaches(geometry_); }
  void forward(ForwardPass<T, Space> const& p) const {
    for_each_position("tessera::max_pool", p.space, p.box, op::MaxPool<T>{geometry_, p.x, p.y, p.notes});
  }
  void backward(BackwardPass<T, Space> const& p) const {
    using Adjoint = op::MaxPoolAdjoint<T>;
    for_each_position("tessera::max_pool", p.space, p.box,
                      op::SumOverReaders<T, Adjoint>{{geometry_, p.dy, p.notes}, p.dx, p.accumulate});
  }
  std::string name() const { return "max_pool " + text_; }

 private:
  std::string text_;
  op::PoolGeometry geometry_;
};

struct AveragePoolSpec {
  static constexpr char const* kind = "avg_pool";
  PoolWindows pool;
  bool count_padding = true;
  std::int64_t divisor = 0;  ///< 0: what the window holds

  void set(ExcludePadding) { count_padding = false; }
  void set(Divisor const& option) {
    require(option.value >= 1, "divisor", "must be at least 1, it is ", option.value);
    divisor = option.value;
  }
  template <class Option>
  requires detail::TakesOption<PoolWindows, Option>
  void set(Option const& option) { pool.set(option); }
  template <class T, class Space>
  AveragePoolOp<T, Space> op(Shape const& input, std::string const& name) const {
    return AveragePoolOp<T, Space>(name, pool, count_padding, divisor, input);
  }
};

struct MaxPoolSpec {
  static constexpr char const* kind = "max_pool";
  PoolWindows pool;

  template <class Option>
  requires detail::TakesOption<PoolWindows, Option>
  void set(Option const& option) { pool.set(option); }
  template <class T, class Space>
  MaxPoolOp<T, Space> op(Shape const& input, std::string const& name) const {
    return MaxPoolOp<T, Space>(name, pool, input);
  }
};

namespace detail {

template <class Spec, int Rank, std::int64_t Kernel, class... Options>
Spec pool_spec(Options const&... options) {
  Spec spec = with_options(Spec{{window_spec<Rank, Kernel>()}}, options...);
  if (!spec.pool.windows.stride_given()) spec.pool.windows.stride_as_kernel();
  return spec;
}

}  // namespace detail

/// The mean over windows. Options: kernel, stride (default: the kernel), padding (at most half the kernel), same,
/// ceil_mode, exclude_padding, divisor. What overhangs the padding in ceil mode never counts in the divisor.
/// Shape: as conv3d, channels unchanged; in ceil mode D' is rounded up, less a window that would begin beyond the
/// input. Moves: the halo of x forward, of dy backward.
/// Fails: padding wider than half the kernel, dilation, a kernel that does not fit, a divisor below 1.
template <std::int64_t Kernel = 1, class... Options>
AveragePoolSpec avg_pool3d(Options const&... options) {
  return detail::pool_spec<AveragePoolSpec, 3, Kernel>(options...);
}
template <std::int64_t Kernel = 1, class... Options>
AveragePoolSpec avg_pool2d(Options const&... options) {
  return detail::pool_spec<AveragePoolSpec, 2, Kernel>(options...);
}
template <std::int64_t Kernel = 1, class... Options>
AveragePoolSpec avg_pool1d(Options const&... options) {
  return detail::pool_spec<AveragePoolSpec, 1, Kernel>(options...);
}

/// The largest cell of each window; padding never wins. Ties and NaN as in PyTorch. Options: kernel, stride (default:
/// the kernel), dilation, padding (at most half the kernel before dilation), same, ceil_mode.
/// Shape: as avg_pool3d. Moves: the halo of x forward, of dy and of the winners backward.
/// Fails: padding wider than half the kernel, a kernel that does not fit, dilation that makes a window miss all cells.
template <std::int64_t Kernel = 1, class... Options>
MaxPoolSpec max_pool3d(Options const&... options) {
  return detail::pool_spec<MaxPoolSpec, 3, Kernel>(options...);
}
template <std::int64_t Kernel = 1, class... Options>
MaxPoolSpec max_pool2d(Options const&... options) {
  return detail::pool_spec<MaxPoolSpec, 2, Kernel>(options...);
}
template <std::int64_t Kernel = 1, class... Options>
MaxPoolSpec max_pool1d(Options const&... options) {
  return detail::pool_spec<MaxPoolSpec, 1, Kernel>(options...);
}

}  // namespace tessera
