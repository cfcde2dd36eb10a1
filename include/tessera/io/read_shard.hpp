// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hdf5.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/io/hdf5_file.hpp"
#include "tessera/io/shards.hpp"
#include "tessera/layer/parameter.hpp"
#include "tessera/partition/interval.hpp"

namespace tessera::io::detail {

/// Reads a rank's parts of the floating-point datasets of one file, which must have the shapes of the network.
struct ShardReader {
  std::string who;
  std::string path;
  bool finite = false;  ///< refuses values that are not
  bool exact = false;   ///< refuses numbers of another precision than T

  /// A shard of a parameter, or of numbers like it, in PyTorch's order.
  template <class T, class Space>
  std::vector<T> shard(std::string const& name, Parameter<T, Space> const& p) const {
    if (auto const cells = without_ones(p); cells.size() == p.file_shape().size())
      return box<T>(name, p.file_shape(), cells);
    std::vector<T> part(static_cast<std::size_t>(p.count()));
    Hdf5Dataset const set = open<T>(name, p.file_shape());
    read_merged(set, p, part);
    check(name, part);
    return part;
  }

  /// A box of a dataset of that shape.
  template <class T>
  std::vector<T> box(std::string const& name, std::vector<std::int64_t> const& shape,
                     std::vector<Interval> const& cells) const {
    Hdf5Dataset const set = open<T>(name, shape);
    std::vector<T> part = read<T>(set, cells);
    check(name, part);
    return part;
  }

 private:
  /// The shard along the axes that the file has, if it lacks none but some with one cell.
  template <class T, class Space>
  static std::vector<Interval> without_ones(Parameter<T, Space> const& p) {
    std::vector<Interval> cells;
    for (std::size_t axis = 0; axis < p.shape().size(); ++axis)
      if (cells.size() < p.file_shape().size() && p.shape()[axis] == p.file_shape()[cells.size()])
        cells.push_back(p.shard()[axis]);
      else if (p.shape()[axis] != 1)
        return {};
    return cells;
  }

  template <class T>
  Hdf5Dataset open(std::string const& name, std::vector<std::int64_t> const& shape) const {
    Hdf5Dataset set(who, path, name);
    std::vector<hsize_t> const wanted(shape.begin(), shape.end());
    require(set.extents() == wanted, who, "dataset '", name, "' of '", path, "' must have the shape ",
            shape_text(wanted), " of this network, but its shape is ", shape_text(set.extents()),
            "; give weights that were saved from the same network");
    bool const is_float = set.type() == FileType::float32, is_double = set.type() == FileType::float64;
    require(is_float || is_double, who, "dataset '", name, "' of '", path,
            "' must hold float or double, but it holds integers; give weights that were saved from the same network");
    require(!exact || (std::is_same_v<T, float> ? is_float : is_double), who, "dataset '", name, "' of '", path,
            "' must hold ", std::is_same_v<T, float> ? "float" : "double", " as this network does, but it holds ",
            is_float ? "float" : "double", "; take its weights alone, with load_weights");
    return set;
  }

  template <class T>
  void check(std::string const& name, std::vector<T> const& values) const {
    if (!finite) return;
    bool const good = std::all_of(values.begin(), values.end(), [](T v) { return std::isfinite(v); });
    require(good, who, "dataset '", name, "' of '", path,
            "' must hold finite numbers alone; take a file from before the training went wrong");
  }

  template <class T>
  static std::vector<T> read(Hdf5Dataset const& set, std::vector<Interval> const& cells) {
    std::vector<hsize_t> start, count;
    std::size_t elements = 1;
    for (Interval const& part : cells) {
      start.push_back(static_cast<hsize_t>(part.begin));
      count.push_back(static_cast<hsize_t>(part.size()));
      elements *= static_cast<std::size_t>(part.size());
    }
    if (elements == 0) return {};
    std::vector<std::byte> raw(elements * set.element_bytes());
    set.read(start, count, raw.data());
    return with_type(set.type(), [&](auto example) {
      auto const* from = reinterpret_cast<decltype(example) const*>(raw.data());
      std::vector<T> values(elements);
      for (std::size_t i = 0; i < elements; ++i) values[i] = static_cast<T>(from[i]);
      return values;
    });
  }

  /// The file has all axes but the first as one, so that the shard is runs of columns there: read in pieces of a few
  /// megabytes that reach from one run to the next, and cut out.
  template <class T, class Space>
  static void read_merged(Hdf5Dataset const& set, Parameter<T, Space> const& p, std::vector<T>& part) {
    struct Run {
      std::int64_t begin, length, place;
    };
    std::vector<Run> runs;
    std::int64_t columns = 0;
    for_each_run({p.shape().begin() + 1, p.shape().end()}, {p.shard().begin() + 1, p.shard().end()},
                 [&](std::int64_t begin, std::int64_t length) {
                   runs.push_back({begin, length, columns});
                   columns += length;
                 });
    Interval const rows = p.shard()[0];
    if (runs.empty() || rows.empty()) return;
    constexpr std::int64_t most = std::int64_t{1} << 20;  // elements at a time
    std::int64_t const end = runs.back().begin + runs.back().length;
    std::int64_t const wide = std::min(end - runs.front().begin, most);
    std::int64_t const high = std::max(std::int64_t{1}, most / wide);
    std::size_t first = 0;
    for (std::int64_t left = runs.front().begin; left < end; left += wide) {
      Interval const across{left, std::min(left + wide, end)};
      while (runs[first].begin + runs[first].length <= across.begin) ++first;
      if (runs[first].begin >= across.end) continue;
      for (std::int64_t top = rows.begin; top < rows.end; top += high) {
        Interval const down{top, std::min(top + high, rows.end)};
        std::vector<T> const piece = read<T>(set, {down, across});
        for (std::int64_t row = down.begin; row < down.end; ++row)
          for (std::size_t i = first; i < runs.size() && runs[i].begin < across.end; ++i) {
            std::int64_t const from = std::max(runs[i].begin, across.begin),
                               to = std::min(runs[i].begin + runs[i].length, across.end);
            std::copy_n(piece.begin() + (row - down.begin) * across.size() + from - across.begin, to - from,
                        part.begin() + (row - rows.begin) * columns + runs[i].place + from - runs[i].begin);
          }
      }
    }
  }
};

}  // namespace tessera::io::detail
