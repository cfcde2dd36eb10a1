// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "support/host_tensor.hpp"
#include "support/linear_layer.hpp"
#include "tessera/partition/shape.hpp"
#include "tessera/partition/window.hpp"

/// The transposed convolution and its gradients as plain loops over whole tensors, from the definition
///
///     y[i * stride - low + dilation * j][co] += w[ci][co in the group][j] x[i][ci]
///
/// with weights in PyTorch's order (in, out / groups, d, h, w). Independent of the library but for Window and Shape.
namespace tessera::test::oracle {

struct TransposedConv {
  Window window[3];  ///< depth, height, width
  std::int64_t output_padding[3] = {};
  std::int64_t in_channels = 1;
  std::int64_t out_channels = 1;
  std::int64_t groups = 1;

  std::int64_t taps() const { return window[0].kernel * window[1].kernel * window[2].kernel; }
  std::int64_t weights() const { return taps() * in_channels * (out_channels / groups); }
  std::int64_t outputs(int axis, std::int64_t n) const {
    Window const& w = window[axis];
    return (n - 1) * w.stride - w.low - w.high + w.dilation * (w.kernel - 1) + 1 + output_padding[axis];
  }
  Shape output(Shape const& x) const {
    return {x.sample, outputs(0, x.depth), outputs(1, x.height), outputs(2, x.width), out_channels};
  }
};

inline LinearResult transposed_conv(TransposedConv const& conv, HostTensor const& x, std::vector<double> const& w,
                                    std::vector<double> const& b, HostTensor const& dy, bool magnitude) {
  auto const size = [&](double value) { return magnitude ? std::abs(value) : value; };
  Shape const in = x.shape, out = conv.output(in);
  LinearResult result{HostTensor(out), HostTensor(in), std::vector<double>(w.size()),
                      std::vector<double>(static_cast<std::size_t>(conv.out_channels))};
  for (std::size_t i = 0; i < dy.values.size(); ++i) {
    std::size_t const co = i % result.db.size();
    result.db[co] += size(dy.values[i]);
    if (!b.empty()) result.y.values[i] = size(b[co]);
  }
  std::int64_t const ins = conv.in_channels / conv.groups, outs = conv.out_channels / conv.groups;
  auto const& [a, e, f] = conv.window;
  auto const at = [](Window const& v, std::int64_t i, std::int64_t j) { return i * v.stride - v.low + v.dilation * j; };
  for (std::int64_t n = 0; n < in.sample; ++n)
    for (std::int64_t d = 0; d < in.depth; ++d)
      for (std::int64_t h = 0; h < in.height; ++h)
        for (std::int64_t v = 0; v < in.width; ++v)
          for (std::int64_t tap = 0; tap < conv.taps(); ++tap) {
            std::int64_t const od = at(a, d, tap / f.kernel / e.kernel), oh = at(e, h, tap / f.kernel % e.kernel),
                               ov = at(f, v, tap % f.kernel);
            if (od < 0 || oh < 0 || ov < 0 || od >= out.depth || oh >= out.height || ov >= out.width) continue;
            for (std::int64_t ci = 0; ci < conv.in_channels; ++ci)
              for (std::int64_t j = 0; j < outs; ++j) {
                std::int64_t const co = ci / ins * outs + j;
                auto const weight = static_cast<std::size_t>((ci * outs + j) * conv.taps() + tap);
                double const cell = x.at(n, d, h, v, ci), error = dy.at(n, od, oh, ov, co);
                result.y.at(n, od, oh, ov, co) += size(w[weight] * cell);
                result.dx.at(n, d, h, v, ci) += size(w[weight] * error);
                result.dw[weight] += size(cell * error);
              }
          }
  return result;
}

}  // namespace tessera::test::oracle
