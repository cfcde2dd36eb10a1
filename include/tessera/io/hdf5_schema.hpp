// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/io/stored.hpp"

namespace tessera::io {

/// The axes of a dataset for one sample. A file of several samples has one more axis, the first.
enum class Hdf5Axes {
  channels_last,   ///< (depth, height, width, channel)
  channels_first,  ///< (channel, depth, height, width)
  no_channel,      ///< (depth, height, width)
  values           ///< (value): what belongs to the whole sample
};

/// What an HDF5 file holds: the names of two datasets, their axes, and what their values become.
struct Hdf5Schema {
  std::string input = "x";
  std::string target = "y";
  Hdf5Axes input_axes = Hdf5Axes::channels_last;
  Hdf5Axes target_axes = Hdf5Axes::values;
  std::vector<Transform> transform = {};  ///< of the input: none, one for all channels, or one for each
  std::vector<Transform> target_transform = {};

  /// CosmoFlow of MLPerf HPC: counts `x` (D, H, W, C), taken as log(1 + x), and values `y`.
  static Hdf5Schema mlperf() { return {.transform = {Transform::log1p}}; }

  /// LBANN's CosmoFlow: `full` (C, D, H, W) and the values `unitPar`.
  static Hdf5Schema lbann() { return {.input = "full", .target = "unitPar", .input_axes = Hdf5Axes::channels_first}; }

  /// A volume and the labels of its cells: `volume` and `segmentation`, both with these axes.
  static Hdf5Schema segmentation(Hdf5Axes axes = Hdf5Axes::channels_first) {
    return {.input = "volume", .target = "segmentation", .input_axes = axes, .target_axes = axes};
  }
};

/// How files are read.
struct Hdf5Options {
  bool check_finite = false;  ///< refuse NaN and infinity, and what has no logarithm where one is taken
  std::int64_t cache_bytes = std::int64_t{64} << 20;  ///< on each rank, for decompressed chunks that reads share
  int open_files = 8;                                 ///< on each rank at a time
};

}  // namespace tessera::io
