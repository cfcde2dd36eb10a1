// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/io/batch.hpp"
#include "tessera/io/source.hpp"
#include "tessera/io/stored.hpp"

namespace tessera::io {

/// What share of the samples is kept from training, and the seed of the draw.
struct SplitRule {
  double validation = 0.1;
  double test = 0.0;
  std::uint64_t seed = 0;
};

/// Numbers of samples, each in ascending order; every sample is in one of the three.
struct SampleSplit {
  std::vector<std::int64_t> train, validation, test;
};

/// Draws who is in which set. The rule and the number of samples alone decide, never the ranks.
/// Fails: unless the shares lie in [0, 1] and leave something to train on.
inline SampleSplit split_samples(std::int64_t samples, SplitRule const& rule = {}) {
  bool const shares = rule.validation >= 0.0 && rule.test >= 0.0 && rule.validation + rule.test <= 1.0;
  require(shares, "split_samples", "the shares must be at least 0 and at most 1 together, but validation is ",
          rule.validation, " and test ", rule.test);
  auto const part = [&](double share) {
    return static_cast<std::int64_t>(std::llround(share * static_cast<double>(samples)));
  };
  std::int64_t const test = part(rule.test), kept = test + std::min(part(rule.validation), samples - test);
  require(kept < samples, "split_samples", "a sample must be left for training, but of ", samples,
          " samples validation takes ", kept - test, " and test ", test, "; lower the shares");
  // An epoch that no training reaches: the draw has nothing to do with the order in which samples are taken.
  auto const order = shuffled(samples, rule.seed, ~std::uint64_t{0});
  auto const sorted = [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> set(order.begin() + begin, order.begin() + end);
    std::sort(set.begin(), set.end());
    return set;
  };
  return {sorted(kept, samples), sorted(test, kept), sorted(0, test)};
}

/// Folders with the samples of each set; an empty name where there is none.
struct FolderSplit {
  std::string train, validation, test;
};

/// The folders `train`, `validation` (or `valid`, `val`) and `test` of a folder.
/// Fails: if there is no folder `train`, or validation has two.
inline FolderSplit split_folders(std::string const& root) {
  auto const find = [&](std::initializer_list<char const*> names) {
    std::string found;
    for (char const* name : names) {
      std::string const path = root + '/' + name;
      std::error_code error;
      if (!std::filesystem::is_directory(path, error)) continue;
      require(found.empty(), "split_folders", "there must be one folder for validation, but there are '", found,
              "' and '", path, "'; rename one");
      found = path;
    }
    return found;
  };
  FolderSplit split{find({"train"}), find({"validation", "valid", "val"}), find({"test"})};
  require(!split.train.empty(), "split_folders", "the folder '", root,
          "' must hold a folder 'train', and may hold 'validation' and 'test'");
  return split;
}

/// Some samples of a source, as a source. The source must outlive it.
template <class Data>
class Subset {
 public:
  /// Fails: if a number is not that of a sample.
  Subset(Data& data, std::vector<std::int64_t> samples) : data_(&data), samples_(std::move(samples)) {
    for (std::int64_t const n : samples_)
      require(0 <= n && n < data.size(), "Subset", "the samples must be among the source's ", data.size(),
              ", but one is ", n);
  }

  std::int64_t size() const { return static_cast<std::int64_t>(samples_.size()); }
  std::vector<std::int64_t> const& samples() const { return samples_; }

  decltype(auto) field(Part part) const requires StoredSource<Data> { return data_->field(part); }
  void read_stored(Part part, std::int64_t sample, Box const& box, std::byte* cells) requires StoredSource<Data> {
    data_->read_stored(part, at(sample), box, cells);
  }

  Shape input_shape() const { return shape_of(*data_, Part::input); }
  Shape target_shape() const { return shape_of(*data_, Part::target); }
  template <class T>
  void read_input(std::int64_t sample, Box const& box, T* cells) requires Source<Data, T> {
    data_->read_input(at(sample), box, cells);
  }
  template <class T>
  void read_target(std::int64_t sample, Box const& box, T* cells) requires Source<Data, T> {
    data_->read_target(at(sample), box, cells);
  }

 private:
  std::int64_t at(std::int64_t sample) const { return samples_[static_cast<std::size_t>(sample)]; }

  Data* data_;
  std::vector<std::int64_t> samples_;
};

}  // namespace tessera::io
