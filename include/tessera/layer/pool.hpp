// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "tessera/layer/conv.hpp"
#include "tessera/layer/window_layer.hpp"
#include "tessera/layer/window_spec.hpp"
#include "tessera/op/pool.hpp"

namespace tessera {

namespace detail {

inline op::PoolGeometry pool_geometry(char const* who, Windows const& windows, Shape const& input, bool count_padding) {
  op::PoolGeometry geometry;
  geometry.windows = windows;
  geometry.count_padding = count_padding;
  for (int i = 0; i < 3; ++i) {
    AxisId const axis = spatial_axes[static_cast<std::size_t>(i)];
    geometry.extent[i] = input[axis];
    geometry.outputs[i] = checked_outputs(windows.axis[i], input[axis], who, tessera::name(axis));
  }
  return geometry;
}

inline void check_pool(char const* who, Windows const& windows) {
  for (AxisId axis : spatial_axes) {
    Window const w = windows[axis];
    require(w.dilation == 1, who, "a window must not be dilated, but along ", tessera::name(axis), " the dilation is ",
            w.dilation);
    require(0 <= w.low && 0 <= w.high && 2 * w.low <= w.kernel && 2 * w.high <= w.kernel, who,
            "padding must be between 0 and half the kernel, so that every window holds a cell, but along ",
            tessera::name(axis), " kernel ", w.kernel, " has padding ", w.low, " and ", w.high);
  }
}

}  // namespace detail

template <class T, class Space>
class AveragePoolOp {
 public:
  static constexpr Border border = Border::clipped;

  AveragePoolOp(WindowSpec spec, bool count_padding, Shape const& input)
      : spec_(std::move(spec)), geometry_(detail::pool_geometry("avg_pool", spec_.on(input), input, count_padding)) {}

  Windows windows(Shape const&) const { return geometry_.windows; }
  void check(Shape const&) const { detail::check_pool("avg_pool", geometry_.windows); }
  void forward(ForwardPass<T, Space> const& p) const {
    for_each_position("tessera::avg_pool", p.space, p.box, op::AveragePool<T>{geometry_, p.x, p.y});
  }
  void backward(BackwardPass<T, Space> const& p) const {
    for_each_position("tessera::avg_pool", p.space, p.box,
                      op::AveragePoolBackward<T>{geometry_, p.dy, p.dx, p.accumulate});
  }
  std::string name() const { return "avg_pool " + spec_.text(); }

 private:
  WindowSpec spec_;
  op::PoolGeometry geometry_;
};

template <class T, class Space>
class MaxPoolOp {
 public:
  static constexpr Border border = Border::clipped;
  static constexpr bool keeps_notes = true;

  MaxPoolOp(WindowSpec spec, Shape const& input)
      : spec_(std::move(spec)), geometry_(detail::pool_geometry("max_pool", spec_.on(input), input, false)) {}

  Windows windows(Shape const&) const { return geometry_.windows; }
  void check(Shape const&) const { detail::check_pool("max_pool", geometry_.windows); }
  void forward(ForwardPass<T, Space> const& p) const {
    for_each_position("tessera::max_pool", p.space, p.box, op::MaxPool<T>{geometry_, p.x, p.y, p.notes});
  }
  void backward(BackwardPass<T, Space> const& p) const {
    for_each_position("tessera::max_pool", p.space, p.box,
                      op::MaxPoolBackward<T>{geometry_, p.dy, p.notes, p.dx, p.accumulate});
  }
  std::string name() const { return "max_pool " + spec_.text(); }

 private:
  WindowSpec spec_;
  op::PoolGeometry geometry_;
};

/// Options of an average: whether padding cells count in the divisor (they do by default, as in PyTorch).
struct ExcludePadding {};
inline constexpr ExcludePadding exclude_padding{};

struct AveragePoolSpec {
  static constexpr char const* kind = "avg_pool";
  WindowSpec windows;
  bool count_padding = true;

  void set(ExcludePadding) { count_padding = false; }
  template <class Option>
  void set(Option const& option) {
    windows.set(option);
  }
  template <class T, class Space>
  AveragePoolOp<T, Space> op(Shape const& input) const {
    return AveragePoolOp<T, Space>(windows, count_padding, input);
  }
};

struct MaxPoolSpec {
  static constexpr char const* kind = "max_pool";
  WindowSpec windows;

  template <class Option>
  void set(Option const& option) {
    windows.set(option);
  }
  template <class T, class Space>
  MaxPoolOp<T, Space> op(Shape const& input) const {
    return MaxPoolOp<T, Space>(windows, input);
  }
};

namespace detail {

template <class Spec, int Rank, std::int64_t Kernel, class... Options>
Spec pool_spec(Options const&... options) {
  Spec spec = with_options(Spec{window_spec<Rank, Kernel>()}, options...);
  if (!spec.windows.stride_given()) spec.windows.stride_as_kernel();
  return spec;
}

}  // namespace detail

/// The mean over windows. Options: kernel, stride (default: the kernel), padding, same, exclude_padding.
/// Shape: as conv3d, channels unchanged. Moves: the halo of x forward, of dy backward.
/// Fails: padding wider than half the kernel, dilation, a kernel that does not fit.
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

/// The largest cell of each window; padding never wins. Ties and NaN as in PyTorch. Options as avg_pool3d.
/// Moves: the halo of x forward, of dy and of the winners backward.
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
