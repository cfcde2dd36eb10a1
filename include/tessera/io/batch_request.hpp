// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "tessera/io/stored.hpp"
#include "tessera/io/symmetry.hpp"

namespace tessera::io {

/// What the ranks want of a micro-batch: the same on every rank. Sample n of the boxes is sample `samples[n]` of the
/// source.
struct BatchRequest {
  std::vector<std::int64_t> samples;
  std::optional<std::uint64_t> epoch;  ///< of training; without one nothing is augmented
  std::function<Box(std::int64_t rank)> input, target;

  Box box(Part part, std::int64_t rank) const { return part == Part::input ? input(rank) : target(rank); }
};

/// A source that brings the cells of whole micro-batches to the ranks, and may be told which come next. After `fetch`,
/// `cells(part, n)` are those that become this rank's box of sample n: those of the box's original under `symmetry(n)`,
/// in the field's type and order.
template <class S>
concept BatchSource = requires(S& source, Part part, std::int64_t n, BatchRequest const& request,
                               std::function<BatchRequest(std::int64_t)> const& next) {
  { source.size() } -> std::convertible_to<std::int64_t>;
  { source.field(part) } -> std::convertible_to<StoredField>;
  source.expect(n, next);
  source.fetch(request);
  { source.cells(part, n) } -> std::convertible_to<std::byte const*>;
  { source.symmetry(part, n) } -> std::convertible_to<Symmetry>;
};

}  // namespace tessera::io
