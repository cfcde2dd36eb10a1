// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hdf5.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/io/hdf5_file.hpp"
#include "tessera/io/hdf5_schema.hpp"
#include "tessera/io/stored.hpp"
#include "tessera/partition/axis.hpp"

namespace tessera::io::detail {

inline std::string const& name_of(Hdf5Schema const& schema, Part part) {
  return part == Part::input ? schema.input : schema.target;
}
inline Hdf5Axes axes_of(Hdf5Schema const& schema, Part part) {
  return part == Part::input ? schema.input_axes : schema.target_axes;
}

/// The axes of one sample's dataset, as numbers of a Box's axes.
inline std::vector<int> box_axes(Hdf5Axes axes) {
  switch (axes) {
    case Hdf5Axes::channels_last: return {1, 2, 3, 4};
    case Hdf5Axes::channels_first: return {4, 1, 2, 3};
    case Hdf5Axes::no_channel: return {1, 2, 3};
    case Hdf5Axes::values: break;
  }
  return {4};
}

inline std::string axes_text(Hdf5Axes axes, bool leading) {
  std::string text = leading ? "(sample" : "(";
  for (int const axis : box_axes(axes)) {
    if (text.size() > 1) text += ", ";
    text += axes == Hdf5Axes::values ? "value" : tessera::detail::text(name(static_cast<AxisId>(axis)));
  }
  return text + ")";
}

/// An HDF5 file of one sample or of many, open for reading.
class Hdf5Samples {
 public:
  /// Fails: naming file and dataset, if the file or its datasets are not as the schema says.
  Hdf5Samples(std::string const& path, Hdf5Schema const& schema)
      : sets_{{"Hdf5Source", path, schema.input}, {"Hdf5Source", path, schema.target}} {
    std::vector<hsize_t> const &in = sets_[0].extents(), &out = sets_[1].extents();
    std::size_t const axes[] = {box_axes(schema.input_axes).size(), box_axes(schema.target_axes).size()};
    require(in.size() == axes[0] || in.size() == axes[0] + 1, "Hdf5Source", "dataset '", schema.input, "' of '", path,
            "' must have the axes ", axes_text(schema.input_axes, true), " or, for one sample, ",
            axes_text(schema.input_axes, false), ", but its shape is ", shape_text(in));
    leading_ = in.size() > axes[0];
    require(out.size() == axes[1] + (leading_ ? 1 : 0), "Hdf5Source", "dataset '", schema.target, "' of '", path,
            "' must have the axes ", axes_text(schema.target_axes, leading_), ", but its shape is ", shape_text(out));
    auto const both = [&](bool hold, char const* what) {
      require(hold, "Hdf5Source", "datasets '", schema.input, "' and '", schema.target, "' of '", path, "' must ", what,
              ", but their shapes are ", shape_text(in), " and ", shape_text(out));
    };
    both(!leading_ || out[0] == in[0], "have the same number of samples");
    double cells[2] = {1.0, 1.0};
    for (Part const part : parts)
      for (hsize_t const n : set(part).extents()) cells[index(part)] *= static_cast<double>(n);
    both(cells[0] > 0 && cells[1] > 0, "hold samples");
    both(cells[0] < 0x1p60 && cells[1] < 0x1p60, "have less than 2^60 cells");
    both(axes[0] < 3 || axes[1] < 3 || space(schema, Part::input) == space(schema, Part::target),
         "have the same depth, height and width");
  }

  std::int64_t size() const { return leading_ ? static_cast<std::int64_t>(sets_[0].extents()[0]) : 1; }

  /// The extents of one sample's dataset, in the order of its axes.
  std::vector<hsize_t> extents(Part part) const {
    std::vector<hsize_t> const& all = set(part).extents();
    return {all.begin() + (leading_ ? 1 : 0), all.end()};
  }
  CellType type(Part part) const { return sets_[index(part)].type(); }

  /// A box of one sample in the dataset's own axes.
  struct Selection {
    std::vector<hsize_t> start, count;
  };
  Selection select(Hdf5Axes axes, std::int64_t sample, Box const& box) const {
    Selection s;
    auto const push = [&s](Interval cells) {
      s.start.push_back(static_cast<hsize_t>(cells.begin));
      s.count.push_back(static_cast<hsize_t>(cells.size()));
    };
    if (leading_) push({sample, sample + 1});
    for (int const axis : box_axes(axes)) push(box.axis[axis]);
    return s;
  }
  void read(Part part, Selection const& s, std::byte* cells) const { set(part).read(s.start, s.count, cells); }

  /// The bytes of the compressed chunks that a box of such extents may touch, wherever it lies; 0 without compression.
  double bytes_to_unpack(Part part, Selection const& s) const {
    std::vector<hsize_t> const& chunk = set(part).compressed_chunk();
    if (chunk.empty()) return 0.0;
    double bytes = static_cast<double>(set(part).element_bytes());
    for (std::size_t a = 0; a < chunk.size(); ++a) {
      hsize_t const all = (set(part).extents()[a] + chunk[a] - 1) / chunk[a];
      bytes *= static_cast<double>(chunk[a] * std::min(all, (s.count[a] + chunk[a] - 2) / chunk[a] + 1));
    }
    return bytes;
  }

  /// Keeps up to so many bytes of decompressed chunks from read to read.
  void set_cache(Part part, std::int64_t bytes) {
    sets_[index(part)].set_cache(bytes);
    cache_[index(part)] = bytes;
  }
  std::int64_t cache(Part part) const { return cache_[index(part)]; }

 private:
  Hdf5Dataset const& set(Part part) const { return sets_[index(part)]; }

  /// Depth, height and width.
  std::vector<hsize_t> space(Hdf5Schema const& schema, Part part) const {
    std::vector<hsize_t> const all = extents(part);
    auto const begin = all.begin() + (axes_of(schema, part) == Hdf5Axes::channels_first ? 1 : 0);
    return {begin, begin + 3};
  }

  Hdf5Dataset sets_[2];
  std::int64_t cache_[2] = {0, 0};
  bool leading_ = false;
};

}  // namespace tessera::io::detail
