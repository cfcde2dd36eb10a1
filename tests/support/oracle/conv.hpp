// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "support/border.hpp"
#include "support/host_tensor.hpp"
#include "tessera/partition/shape.hpp"
#include "tessera/partition/window.hpp"

/// The convolution and its gradients as plain loops over whole tensors, from the definition
///
///     y[o][co] = bias[co] + sum over taps j and the channels ci of co's group
///                           of w[j][ci in the group][co] x[source(o * stride - low + dilation * j)][ci]
///
/// where a cell beyond the border has the source that the padding mode says, or none. Independent of the library but
/// for its Window and Shape. With `magnitude`, every product and summand is taken by its absolute value: the sums that
/// bound the rounding error.
namespace tessera::test::oracle {

struct Conv {
  Window window[3];  ///< depth, height, width
  std::int64_t in_channels = 1;
  std::int64_t out_channels = 1;
  std::int64_t groups = 1;
  Padding padding = Padding::zeros;

  std::int64_t taps() const { return window[0].kernel * window[1].kernel * window[2].kernel; }
  std::int64_t group_inputs() const { return in_channels / groups; }
  std::size_t weights() const { return static_cast<std::size_t>(taps() * group_inputs() * out_channels); }

  Shape output(Shape const& x) const {
    return {x.sample, window[0].outputs(x.depth), window[1].outputs(x.height), window[2].outputs(x.width),
            out_channels};
  }
};

namespace detail {

/// Calls product(n, output d, h, w, input d, h, w, tap number) for every tap of every output that has a source in x.
template <class Product>
void for_each_tap(Conv const& conv, Shape const& x, Product product) {
  Shape const y = conv.output(x);
  auto const [a, b, c] = conv.window;
  auto const at = [](Window const& window, std::int64_t o, std::int64_t j) {
    return o * window.stride - window.low + window.dilation * j;
  };
  for (std::int64_t n = 0; n < y.sample; ++n)
    for (std::int64_t od = 0; od < y.depth; ++od)
      for (std::int64_t oh = 0; oh < y.height; ++oh)
        for (std::int64_t ow = 0; ow < y.width; ++ow)
          for (std::int64_t jd = 0; jd < a.kernel; ++jd)
            for (std::int64_t jh = 0; jh < b.kernel; ++jh)
              for (std::int64_t jw = 0; jw < c.kernel; ++jw) {
                auto const d = source_of(conv.padding, at(a, od, jd), x.depth),
                           h = source_of(conv.padding, at(b, oh, jh), x.height),
                           w = source_of(conv.padding, at(c, ow, jw), x.width);
                if (d && h && w) product(n, od, oh, ow, *d, *h, *w, (jd * b.kernel + jh) * c.kernel + jw);
              }
}

/// Calls product(input channel, output channel, number of the weight) for one tap.
template <class Product>
void for_each_channel_pair(Conv const& conv, std::int64_t tap, Product product) {
  std::int64_t const ins = conv.group_inputs(), outs = conv.out_channels / conv.groups;
  for (std::int64_t co = 0; co < conv.out_channels; ++co)
    for (std::int64_t i = 0; i < ins; ++i)
      product(co / outs * ins + i, co, static_cast<std::size_t>((tap * ins + i) * conv.out_channels + co));
}

inline double maybe_absolute(double value, bool magnitude) { return magnitude ? std::abs(value) : value; }

}  // namespace detail

/// y; an empty bias is none.
inline HostTensor conv_forward(Conv const& conv, HostTensor const& x, std::vector<double> const& weights,
                               std::vector<double> const& bias, bool magnitude = false) {
  HostTensor y(conv.output(x.shape));
  if (!bias.empty())
    for (std::size_t i = 0; i < y.values.size(); ++i)
      y.values[i] = detail::maybe_absolute(bias[i % bias.size()], magnitude);
  detail::for_each_tap(conv, x.shape, [&](auto n, auto od, auto oh, auto ow, auto d, auto h, auto w, auto tap) {
    detail::for_each_channel_pair(conv, tap, [&](auto ci, auto co, auto weight) {
      y.at(n, od, oh, ow, co) += detail::maybe_absolute(x.at(n, d, h, w, ci) * weights[weight], magnitude);
    });
  });
  return y;
}

/// dx for inputs of shape `x`.
inline HostTensor conv_backward_data(Conv const& conv, Shape const& x, std::vector<double> const& weights,
                                     HostTensor const& dy, bool magnitude = false) {
  HostTensor dx(x);
  detail::for_each_tap(conv, x, [&](auto n, auto od, auto oh, auto ow, auto d, auto h, auto w, auto tap) {
    detail::for_each_channel_pair(conv, tap, [&](auto ci, auto co, auto weight) {
      dx.at(n, d, h, w, ci) += detail::maybe_absolute(dy.at(n, od, oh, ow, co) * weights[weight], magnitude);
    });
  });
  return dx;
}

/// dw, laid out as the weights are.
inline std::vector<double> conv_backward_filter(Conv const& conv, HostTensor const& x, HostTensor const& dy,
                                                bool magnitude = false) {
  std::vector<double> dw(conv.weights());
  detail::for_each_tap(conv, x.shape, [&](auto n, auto od, auto oh, auto ow, auto d, auto h, auto w, auto tap) {
    detail::for_each_channel_pair(conv, tap, [&](auto ci, auto co, auto weight) {
      dw[weight] += detail::maybe_absolute(x.at(n, d, h, w, ci) * dy.at(n, od, oh, ow, co), magnitude);
    });
  });
  return dw;
}

/// db: the sum of dy over all but the channels.
inline std::vector<double> conv_backward_bias(HostTensor const& dy, bool magnitude = false) {
  std::vector<double> db(static_cast<std::size_t>(dy.shape.channel));
  for (std::size_t i = 0; i < dy.values.size(); ++i)
    db[i % db.size()] += detail::maybe_absolute(dy.values[i], magnitude);
  return db;
}

}  // namespace tessera::test::oracle
