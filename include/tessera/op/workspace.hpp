// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace tessera::op {

/// A run of equally spaced elements: where it starts, in elements from some base, how many there are, and how many rows
/// of the packed operand are left out before it.
struct Segment {
  std::int64_t offset = 0;
  std::int64_t length = 0;
  std::int64_t skip = 0;
};

/// A box of positions that read the same taps: the others lie in the zeros beyond the border.
struct Part {
  std::int64_t begin[2] = {};   ///< the first position along depth and height
  std::int64_t extent[4] = {};  ///< positions along sample, depth, height, width
  Segment const* segments = nullptr;
  std::int64_t segment_count = 0;
  std::int64_t first_chunk = 0;  ///< the number of the part's first task

  std::int64_t positions() const { return extent[0] * extent[1] * extent[2] * extent[3]; }
};

/// Scratch memory of the host kernels, owned by the caller. It only grows, so that a steady state allocates nothing,
/// and holds nothing from one call to the next; calls that may run at the same time need one each.
template <class T>
class Workspace {
 public:
  /// At least `count` elements at a 64-byte boundary. What an earlier call returned is no longer valid.
  T* values(std::int64_t count) {
    if (count > capacity_) {
      values_.reset();
      values_.reset(static_cast<T*>(::operator new(static_cast<std::size_t>(count) * sizeof(T), alignment)));
      capacity_ = count;
    }
    return values_.get();
  }

  /// At least `count` segments. What an earlier call returned is no longer valid.
  Segment* segments(std::int64_t count) {
    if (static_cast<std::size_t>(count) > segments_.size()) segments_.resize(static_cast<std::size_t>(count));
    return segments_.data();
  }

  /// An empty list, whose memory is kept.
  std::vector<Part>& parts() {
    parts_.clear();
    return parts_;
  }

  /// The memory held.
  std::int64_t bytes() const {
    return capacity_ * static_cast<std::int64_t>(sizeof(T)) +
           static_cast<std::int64_t>(segments_.size() * sizeof(Segment) + parts_.capacity() * sizeof(Part));
  }

 private:
  static constexpr std::align_val_t alignment{64};
  struct Free {
    void operator()(T* values) const { ::operator delete(static_cast<void*>(values), alignment); }
  };

  std::unique_ptr<T, Free> values_;
  std::int64_t capacity_ = 0;
  std::vector<Segment> segments_;
  std::vector<Part> parts_;
};

}  // namespace tessera::op
