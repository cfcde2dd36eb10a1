// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/io/batch_request.hpp"
#include "tessera/io/stored.hpp"
#include "tessera/partition/box.hpp"
#include "tessera/partition/shape.hpp"

namespace tessera::io {

/// Where samples come from, in its simple form. `read_input` and `read_target` give the cells of a box (depth, height,
/// width, channel) of one sample, densely, converted to T. A rank reads what it owns, and what its loss needs of the
/// target besides; a box may be empty.
template <class S, class T>
concept Source = requires(S& source, std::int64_t sample, Box const& box, T* cells) {
  { source.size() } -> std::convertible_to<std::int64_t>;
  { source.input_shape() } -> std::convertible_to<Shape>;
  { source.target_shape() } -> std::convertible_to<Shape>;
  source.read_input(sample, box, cells);
  source.read_target(sample, box, cells);
};

/// What training, evaluation and prediction take: a Source; a StoredSource, whose cells are converted where the model
/// computes; or a BatchSource, such as a SampleStore. What is more than a Source is not read as one.
template <class S, class T>
concept AnySource = BatchSource<S> || StoredSource<S> || Source<S, T>;

/// The shape of one sample's input or target.
template <class S>
Shape shape_of(S& source, Part part) {
  if constexpr (BatchSource<S> || StoredSource<S>)
    return StoredField(source.field(part)).shape;
  else
    return part == Part::input ? source.input_shape() : source.target_shape();
}

/// Fails: unless the source's samples have the shape of a network's input.
template <class S>
void check_input(char const* who, S& source, Shape const& input) {
  Shape const given = shape_of(source, Part::input);
  require(given == input.with_samples(1), who, "the source's samples must have the shape of the network's input, ",
          input.with_samples(1), ", but theirs is ", given);
}

/// Samples that every rank holds whole: for tests and small problems. Cells lie in the order (sample, d, h, w, c).
template <class T>
class MemorySource {
 public:
  MemorySource(Shape const& input, std::vector<T> inputs, Shape const& target, std::vector<T> targets)
      : input_(input.with_samples(1)),
        target_(target.with_samples(1)),
        inputs_(std::move(inputs)),
        targets_(std::move(targets)) {
    size_ = static_cast<std::int64_t>(inputs_.size()) / input_.volume();
    require(static_cast<std::int64_t>(inputs_.size()) == size_ * input_.volume() &&
                static_cast<std::int64_t>(targets_.size()) == size_ * target_.volume(),
            "MemorySource", "inputs and targets must hold the same whole number of samples, but they have ",
            inputs_.size(), " and ", targets_.size(), " elements for samples of ", input_.volume(), " and ",
            target_.volume());
  }

  std::int64_t size() const { return size_; }
  Shape input_shape() const { return input_; }
  Shape target_shape() const { return target_; }

  template <class U>
  void read_input(std::int64_t sample, Box const& box, U* cells) const {
    cut(inputs_, input_, sample, box, cells);
  }
  template <class U>
  void read_target(std::int64_t sample, Box const& box, U* cells) const {
    cut(targets_, target_, sample, box, cells);
  }

 private:
  template <class U>
  static void cut(std::vector<T> const& from, Shape const& shape, std::int64_t sample, Box const& box, U* cells) {
    if (box.empty()) return;
    for (std::int64_t d = box.axis[1].begin; d < box.axis[1].end; ++d)
      for (std::int64_t h = box.axis[2].begin; h < box.axis[2].end; ++h)
        for (std::int64_t w = box.axis[3].begin; w < box.axis[3].end; ++w)
          for (std::int64_t c = box.axis[4].begin; c < box.axis[4].end; ++c)
            *cells++ = static_cast<U>(from[static_cast<std::size_t>(
                (((sample * shape.depth + d) * shape.height + h) * shape.width + w) * shape.channel + c)]);
  }

  Shape input_, target_;
  std::vector<T> inputs_, targets_;
  std::int64_t size_ = 0;
};

}  // namespace tessera::io
