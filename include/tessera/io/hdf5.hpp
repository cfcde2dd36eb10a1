// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/io/hdf5_file.hpp"
#include "tessera/io/source.hpp"
#include "tessera/model/model.hpp"

namespace tessera::io {

/// What is done to an input value after it was read in the file's own type.
enum class Transform {
  none,
  log1p  ///< log(1 + x): for counts that span decades
};

struct Hdf5Options {
  std::string input = "x";   ///< dataset (N, D, H, W, C) or, for one sample, (D, H, W, C)
  std::string target = "y";  ///< dataset (N, K) or (K)
  Transform transform = Transform::none;
};

/// Samples in one HDF5 file, channels-last: the form that MLPerf HPC's CosmoFlow uses. Every rank opens it and reads
/// just the boxes it owns; values keep the file's type until they are in memory.
///
/// Fails: naming file and dataset, when the file is missing, damaged or truncated, a dataset is missing or has another
/// rank, shape or type, or there are no samples.
class Hdf5Source {
 public:
  Hdf5Source(std::string const& path, Hdf5Options const& options = {})
      : input_("Hdf5Source", path, options.input),
        target_("Hdf5Source", path, options.target),
        transform_(options.transform) {
    std::vector<hsize_t> const &in = input_.extents(), &out = target_.extents();
    require(in.size() == 4 || in.size() == 5, "Hdf5Source", "dataset '", options.input, "' of '", path,
            "' must have the axes (sample, depth, height, width, channel) or, for one sample, (depth, height, width, "
            "channel), "
            "but its shape is ",
            detail::shape_text(in));
    leading_ = in.size() == 5;
    require(out.size() == (leading_ ? 2u : 1u), "Hdf5Source", "dataset '", options.target, "' of '", path,
            "' must have the axes ", leading_ ? "(sample, value)" : "(value)", ", but its shape is ",
            detail::shape_text(out));
    std::size_t const first = leading_ ? 1 : 0;
    size_ = leading_ ? static_cast<std::int64_t>(in[0]) : 1;
    auto const extent = [](hsize_t n) { return static_cast<std::int64_t>(n); };
    input_shape_ = {1, extent(in[first]), extent(in[first + 1]), extent(in[first + 2]), extent(in[first + 3])};
    target_shape_ = {1, 1, 1, 1, extent(out.back())};
    require(!leading_ || out[0] == in[0], "Hdf5Source", "datasets '", options.input, "' and '", options.target,
            "' of '", path, "' must have the same number of samples, but their shapes are ", detail::shape_text(in),
            " and ", detail::shape_text(out));
    require(size_ > 0 && input_shape_.volume() > 0 && target_shape_.volume() > 0, "Hdf5Source", "datasets '",
            options.input, "' and '", options.target, "' of '", path, "' must hold samples, but their shapes are ",
            detail::shape_text(in), " and ", detail::shape_text(out));
  }

  std::int64_t size() const { return size_; }
  Shape input_shape() const { return input_shape_; }
  Shape target_shape() const { return target_shape_; }
  SampleShape<3> sample_shape() const {
    return {.channels = input_shape_.channel, .space = {input_shape_.depth, input_shape_.height, input_shape_.width}};
  }

  /// Cells of a box (depth, height, width, channel) of one sample, converted to T.
  template <class T>
  void read_input(std::int64_t sample, Box const& box, T* cells) {
    if (box.empty()) return;
    std::vector<hsize_t> start, count;
    if (leading_) push(start, count, {sample, sample + 1});
    for (int axis = 1; axis < axis_count; ++axis) push(start, count, box.axis[axis]);
    bool const log = transform_ == Transform::log1p;
    read(input_, start, count, cells,
         [log](auto value) { return log ? static_cast<T>(std::log1p(static_cast<T>(value))) : static_cast<T>(value); });
  }

  template <class T>
  void read_target(std::int64_t sample, Box const& box, T* cells) {
    if (box.empty()) return;
    std::vector<hsize_t> start, count;
    if (leading_) push(start, count, {sample, sample + 1});
    push(start, count, box.axis[4]);
    read(target_, start, count, cells, [](auto value) { return static_cast<T>(value); });
  }

  /// What this rank has read so far.
  std::int64_t bytes_read() const { return bytes_read_; }

 private:
  static void push(std::vector<hsize_t>& start, std::vector<hsize_t>& count, Interval cells) {
    start.push_back(static_cast<hsize_t>(cells.begin));
    count.push_back(static_cast<hsize_t>(cells.size()));
  }

  template <class T, class Convert>
  void read(Hdf5Dataset const& set, std::vector<hsize_t> const& start, std::vector<hsize_t> const& count, T* cells,
            Convert convert) {
    std::size_t elements = 1;
    for (hsize_t const n : count) elements *= static_cast<std::size_t>(n);
    buffer_.resize(elements * set.element_bytes());
    set.read(start, count, buffer_.data());
    bytes_read_ += static_cast<std::int64_t>(buffer_.size());
    detail::with_type(set.type(), [&](auto example) {
      auto const* values = reinterpret_cast<decltype(example) const*>(buffer_.data());
      for (std::size_t i = 0; i < elements; ++i) cells[i] = convert(values[i]);
    });
  }

  Hdf5Dataset input_, target_;
  Transform transform_;
  bool leading_ = true;
  std::int64_t size_ = 0;
  Shape input_shape_, target_shape_;
  std::vector<std::byte> buffer_;
  std::int64_t bytes_read_ = 0;
};

}  // namespace tessera::io
