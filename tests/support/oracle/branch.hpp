// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "support/host_tensor.hpp"

/// What joins branches, on whole tensors, cell by cell.
namespace tessera::test::oracle {

namespace detail {

template <class Visit>
void for_each_index(Shape const& s, Visit visit) {
  for (std::int64_t n = 0; n < s.sample; ++n)
    for (std::int64_t d = 0; d < s.depth; ++d)
      for (std::int64_t h = 0; h < s.height; ++h)
        for (std::int64_t w = 0; w < s.width; ++w)
          for (std::int64_t c = 0; c < s.channel; ++c) visit(n, d, h, w, c);
}

/// The cell of a tensor that stands for an index of a larger one.
inline double& repeated(HostTensor& x, std::int64_t n, std::int64_t d, std::int64_t h, std::int64_t w, std::int64_t c) {
  return x.at(n, x.shape.depth == 1 ? 0 : d, x.shape.height == 1 ? 0 : h, x.shape.width == 1 ? 0 : w, c);
}

}  // namespace detail

inline HostTensor concat(std::vector<HostTensor> const& parts) {
  Shape shape = parts.front().shape;
  shape.channel = 0;
  for (HostTensor const& part : parts) shape.channel += part.shape.channel;
  HostTensor y(shape);
  std::int64_t first = 0;
  for (HostTensor const& part : parts) {
    detail::for_each_index(part.shape, [&](auto n, auto d, auto h, auto w, auto c) {
      y.at(n, d, h, w, first + c) = part.at(n, d, h, w, c);
    });
    first += part.shape.channel;
  }
  return y;
}

/// `count` channels from `first` on: the error of one part of a concatenation.
inline HostTensor channels(HostTensor const& y, std::int64_t first, std::int64_t count) {
  HostTensor part(y.shape.with_channels(count));
  detail::for_each_index(part.shape, [&](auto n, auto d, auto h, auto w, auto c) {
    part.at(n, d, h, w, c) = y.at(n, d, h, w, first + c);
  });
  return part;
}

/// The product; an extent of 1 in space is repeated.
inline HostTensor multiply(HostTensor a, HostTensor b) {
  Shape shape = a.shape;
  if (b.shape.depth > shape.depth) shape.depth = b.shape.depth;
  if (b.shape.height > shape.height) shape.height = b.shape.height;
  if (b.shape.width > shape.width) shape.width = b.shape.width;
  HostTensor y(shape);
  detail::for_each_index(shape, [&](auto n, auto d, auto h, auto w, auto c) {
    y.at(n, d, h, w, c) = detail::repeated(a, n, d, h, w, c) * detail::repeated(b, n, d, h, w, c);
  });
  return y;
}

/// The gradient of the factor whose shape is `of`, when the other factor is `other`.
inline HostTensor multiply_backward(Shape const& of, HostTensor other, HostTensor const& dy) {
  HostTensor gradient(of);
  detail::for_each_index(dy.shape, [&](auto n, auto d, auto h, auto w, auto c) {
    detail::repeated(gradient, n, d, h, w, c) += dy.at(n, d, h, w, c) * detail::repeated(other, n, d, h, w, c);
  });
  return gradient;
}

}  // namespace tessera::test::oracle
