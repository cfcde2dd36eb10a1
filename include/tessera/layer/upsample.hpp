// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/layer/window_layer.hpp"
#include "tessera/layer/window_spec.hpp"
#include "tessera/op/resample.hpp"

namespace tessera {

namespace detail {
struct SizeName {};
struct ScaleName {};
}  // namespace detail

/// Option of upsampling: the extents of the output, for all axes or one per axis.
template <class... N>
constexpr auto size(N... n) {
  return detail::axis_option<detail::SizeName>(n...);
}
/// Option of upsampling: by which whole numbers the extents grow.
template <class... N>
constexpr auto scale(N... n) {
  static_assert((true && ... && std::is_integral_v<N>), "tessera: scale takes whole numbers; give size for others");
  return detail::axis_option<detail::ScaleName>(n...);
}

/// Option of upsample_nearest: the cell that an output's centre lies in (PyTorch's "nearest-exact").
struct NearestExact {};
inline constexpr NearestExact nearest_exact{};
/// Option of upsample_linear: the centres of the first and last cells of input and output coincide.
struct AlignCorners {};
inline constexpr AlignCorners align_corners{};

template <class T, class Space>
class ResampleOp {
 public:
  ResampleOp(std::string text, op::ResampleGeometry const& geometry) : text_(std::move(text)), geometry_(geometry) {}

  Reaches reaches(Shape const&) const {
    Reaches reaches;
    for (std::size_t i = 0; i < 3; ++i) {
      op::ResampledAxis const axis = geometry_.axis[i];
      reaches[i] = {axis.m, [axis](Interval out) { return axis.required(out); },
                    [axis](Interval in) { return axis.touch(in); }};
    }
    return reaches;
  }
  void forward(ForwardPass<T, Space> const& p) const {
    for_each_position("tessera::upsample", p.space, p.box, op::Interpolate<T>{geometry_, p.x, p.y});
  }
  void backward(BackwardPass<T, Space> const& p) const {
    using Adjoint = op::InterpolateAdjoint<T>;
    for_each_position("tessera::upsample", p.space, p.box,
                      op::SumOverReaders<T, Adjoint>{{geometry_, p.dy}, p.dx, p.accumulate});
  }
  std::string name() const { return text_; }

 private:
  std::string text_;
  op::ResampleGeometry geometry_;
};

/// The extents after upsampling, before those of the input are known.
struct UpsampleExtents {
  int rank;
  detail::AxisOption<detail::SizeName> size;
  detail::AxisOption<detail::ScaleName> scale;

  op::ResampleGeometry geometry(std::string const& who, op::Resample rule, Shape const& input) const {
    require((size.given > 0) != (scale.given > 0), who, "needs either size or scale, and not both");
    op::ResampleGeometry geometry;
    for (int i = 0; i < 3; ++i) {
      AxisId const axis = spatial_axes[static_cast<std::size_t>(i)];
      op::ResampledAxis& along = geometry.axis[i];
      along = {rule, input[axis], input[axis]};
      int const own = i - (3 - rank);
      if (own < 0) continue;
      along.m = size.given > 0 ? size.along(own, rank, "size") : input[axis] * scale.along(own, rank, "scale");
      require(along.m >= 1, who, "size and scale must be at least 1, but along ", name(axis), " the output would have ",
              along.m, " cells");
    }
    return geometry;
  }
};

struct NearestUpsampleSpec {
  static constexpr char const* kind = "upsample_nearest";
  UpsampleExtents extents;
  op::Resample rule = op::Resample::nearest;

  void set(detail::AxisOption<detail::SizeName> const& option) { extents.size = option; }
  void set(detail::AxisOption<detail::ScaleName> const& option) { extents.scale = option; }
  void set(NearestExact) { rule = op::Resample::nearest_exact; }

  template <class T, class Space>
  ResampleOp<T, Space> op(Shape const& input, std::string const& name) const {
    return {rule == op::Resample::nearest ? "upsample nearest" : "upsample nearest exact",
            extents.geometry(name, rule, input)};
  }
};

struct LinearUpsampleSpec {
  static constexpr char const* kind = "upsample_linear";
  UpsampleExtents extents;
  op::Resample rule = op::Resample::linear;

  void set(detail::AxisOption<detail::SizeName> const& option) { extents.size = option; }
  void set(detail::AxisOption<detail::ScaleName> const& option) { extents.scale = option; }
  void set(AlignCorners) { rule = op::Resample::linear_aligned; }

  template <class T, class Space>
  ResampleOp<T, Space> op(Shape const& input, std::string const& name) const {
    return {rule == op::Resample::linear ? "upsample linear" : "upsample linear, corners aligned",
            extents.geometry(name, rule, input)};
  }
};

namespace detail {

template <class Spec, class... Options>
Spec upsample_spec(int rank, Options const&... options) {
  return with_options(Spec{{rank, {}, {}}}, options...);
}

}  // namespace detail

/// Each output is the cell of the input at its place: of m outputs along an axis of n cells, output o is cell
/// floor(o n / m), with the option nearest_exact floor((2 o + 1) n / (2 m)). In whole numbers, so that a large extent
/// rounds nothing. Options: size(...) or scale(...), one number or one per axis; sizes may be smaller than the input's.
/// Shape: (N, D, H, W, C) -> (N, d, h, w, C). Moves: the cells of x that a rank's outputs take and others own; backward
/// dy of the outputs that take its cells. Fails: unless exactly one of size and scale is given, and is at least 1.
template <class... Options>
NearestUpsampleSpec upsample_nearest3d(Options const&... options) {
  return detail::upsample_spec<NearestUpsampleSpec>(3, options...);
}
template <class... Options>
NearestUpsampleSpec upsample_nearest2d(Options const&... options) {
  return detail::upsample_spec<NearestUpsampleSpec>(2, options...);
}
template <class... Options>
NearestUpsampleSpec upsample_nearest1d(Options const&... options) {
  return detail::upsample_spec<NearestUpsampleSpec>(1, options...);
}

/// Each output lies between two cells along each axis and takes of both by its distance (linear, bilinear, trilinear):
/// of m outputs along an axis of n cells, output o lies at max(0, (2 o + 1) n - m) / (2 m), with the option
/// align_corners at o (n - 1) / (m - 1). Options, shape and what moves as upsample_nearest3d.
/// Fails: as upsample_nearest3d.
template <class... Options>
LinearUpsampleSpec upsample_linear3d(Options const&... options) {
  return detail::upsample_spec<LinearUpsampleSpec>(3, options...);
}
template <class... Options>
LinearUpsampleSpec upsample_linear2d(Options const&... options) {
  return detail::upsample_spec<LinearUpsampleSpec>(2, options...);
}
template <class... Options>
LinearUpsampleSpec upsample_linear1d(Options const&... options) {
  return detail::upsample_spec<LinearUpsampleSpec>(1, options...);
}

}  // namespace tessera
