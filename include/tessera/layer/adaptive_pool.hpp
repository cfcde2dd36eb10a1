// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/layer/global_pool.hpp"
#include "tessera/layer/window_layer.hpp"
#include "tessera/op/adaptive_pool.hpp"
#include "tessera/op/pool.hpp"

namespace tessera {

template <class T, class Space>
class AdaptiveAveragePoolOp {
 public:
  explicit AdaptiveAveragePoolOp(op::AdaptiveGeometry const& geometry) : geometry_(geometry) {}

  Reaches reaches(Shape const&) const {
    Reaches reaches;
    for (int i = 0; i < 3; ++i)
      reaches[static_cast<std::size_t>(i)] = {geometry_.outputs[i],
                                              [g = geometry_, i](Interval out) { return g.required(i, out); },
                                              [g = geometry_, i](Interval in) { return g.touch(i, in); }};
    return reaches;
  }
  void forward(ForwardPass<T, Space> const& p) const {
    for_each_position("tessera::adaptive_avg_pool", p.space, p.box,
                      op::AveragePool<T, op::AdaptiveGeometry>{geometry_, p.x, p.y});
  }
  void backward(BackwardPass<T, Space> const& p) const {
    using Adjoint = op::AveragePoolAdjoint<T, op::AdaptiveGeometry>;
    for_each_position("tessera::adaptive_avg_pool", p.space, p.box,
                      op::SumOverReaders<T, Adjoint>{{geometry_, p.dy}, p.dx, p.accumulate});
  }
  std::string name() const {
    std::int64_t const* m = geometry_.outputs;
    return detail::text("adaptive_avg_pool to ", m[0], "x", m[1], "x", m[2]);
  }

 private:
  op::AdaptiveGeometry geometry_;
};

/// An average onto a given number of outputs as a value; see adaptive_avg_pool3d.
struct AdaptiveAveragePoolSpec {
  static constexpr char const* kind = "adaptive_avg_pool";
  int rank;
  std::array<std::int64_t, 3> outputs;  ///< along the last `rank` spatial axes; the others stay as they are

  op::AdaptiveGeometry geometry(Shape const& input, std::string const& who) const {
    op::AdaptiveGeometry geometry;
    for (int i = 0; i < 3; ++i) {
      AxisId const axis = spatial_axes[static_cast<std::size_t>(i)];
      geometry.extent[i] = input[axis];
      geometry.outputs[i] = i < 3 - rank ? input[axis] : outputs[static_cast<std::size_t>(i - (3 - rank))];
      require(geometry.outputs[i] >= 1, who, "the number of outputs must be at least 1, but along ", name(axis),
              " it is ", geometry.outputs[i]);
    }
    return geometry;
  }

  template <class T, class Space, PartitionPolicy Policy>
  std::unique_ptr<Layer<T, Space>> bind(RankGrid<Policy> const& ranks, Shape const& input, std::string name) const {
    op::AdaptiveGeometry const g = geometry(input, name);
    if (g.outputs[0] * g.outputs[1] * g.outputs[2] == 1)  // one rank would gather all cells
      return std::make_unique<GlobalAveragePool<T, Space>>(ranks, std::move(name));
    using Op = AdaptiveAveragePoolOp<T, Space>;
    return std::make_unique<WindowLayer<T, Space, Op>>(ranks, input, Op(g), std::move(name));
  }
};

/// The mean over windows of which there are as many as given: output o of m along an axis of n cells reads cells
/// floor(o n / m) to ceil((o + 1) n / m) - 1. There may be more outputs than cells.
/// Shape: (N, D, H, W, C) -> (N, d, h, w, C). Moves: the halo of x forward, of dy backward; onto a single output as
/// global_avg_pool. Fails: a number of outputs below 1. Source: PyTorch's AdaptiveAvgPool3d.
inline AdaptiveAveragePoolSpec adaptive_avg_pool3d(std::array<std::int64_t, 3> const& outputs) { return {3, outputs}; }
/// The same over height and width.
inline AdaptiveAveragePoolSpec adaptive_avg_pool2d(std::array<std::int64_t, 2> const& outputs) {
  return {2, {outputs[0], outputs[1]}};
}
/// The same over width.
inline AdaptiveAveragePoolSpec adaptive_avg_pool1d(std::int64_t outputs) { return {1, {outputs}}; }

}  // namespace tessera
