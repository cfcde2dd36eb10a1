// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstdint>

#include "tessera/partition/axis.hpp"
#include "tessera/partition/counts.hpp"

namespace tessera {

/// The count of a split axis that is only known at run time.
inline constexpr std::int64_t dynamic = -1;

/// Splits one axis into `Count` blocks; a bare axis tag in a Distribution means `Split<Axis, dynamic>`.
template <AxisTag Axis, std::int64_t Count = dynamic>
struct Split {
  static_assert(Count == dynamic || Count >= 1, "tessera::Split: the count must be at least 1, or tessera::dynamic");
  static constexpr AxisId id = Axis::id;
  static constexpr std::int64_t count = Count;
};

/// The canonical form behind every Distribution: a count per axis, 1 for a whole axis, `dynamic` for a run-time one.
template <std::int64_t Sample, std::int64_t Channel, std::int64_t Depth, std::int64_t Height, std::int64_t Width>
struct AxisSplits {
  static constexpr Counts counts{
      .sample = Sample, .channel = Channel, .depth = Depth, .height = Height, .width = Width};

  /// Whether the axis may be cut at all: false means that every rank of this policy sees it whole.
  static constexpr bool splits(AxisId axis) { return counts[axis] != 1; }
  static constexpr bool splits_space = Depth != 1 || Height != 1 || Width != 1;
  static constexpr bool splits_channel = Channel != 1;
  static constexpr int dynamic_axes =
      (Sample == dynamic) + (Channel == dynamic) + (Depth == dynamic) + (Height == dynamic) + (Width == dynamic);
};

namespace detail {

template <class Tag>
struct SplitOf {
  static_assert(AxisTag<Tag>, "tessera::Distribution: name axes, such as Sample and Depth, or Split<Depth, 4>");
  static constexpr AxisId id = Tag::id;
  static constexpr std::int64_t count = dynamic;
};
template <AxisTag Axis, std::int64_t Count>
struct SplitOf<Split<Axis, Count>> {
  static constexpr AxisId id = Axis::id;
  static constexpr std::int64_t count = Split<Axis, Count>::count;  // instantiates Split, whose assertion checks it
};

/// How often the tags name an axis, and the count they give it. Free functions, because a class is not complete, and
/// its members not yet callable, where Canonical needs them.
template <class... Tags>
consteval int times_named([[maybe_unused]] AxisId axis) {
  return (0 + ... + (SplitOf<Tags>::id == axis ? 1 : 0));
}
template <class... Tags>
consteval std::int64_t count_along([[maybe_unused]] AxisId axis) {
  std::int64_t found = 1;
  ((SplitOf<Tags>::id == axis ? void(found = SplitOf<Tags>::count) : void()), ...);
  return found;
}

template <class... Tags>
struct Canonical {
  static constexpr bool each_axis_once =
      times_named<Tags...>(AxisId::sample) <= 1 && times_named<Tags...>(AxisId::channel) <= 1 &&
      times_named<Tags...>(AxisId::depth) <= 1 && times_named<Tags...>(AxisId::height) <= 1 &&
      times_named<Tags...>(AxisId::width) <= 1;
  static_assert(each_axis_once, "tessera::Distribution: an axis may be named only once; remove the repeated one");
  using type = AxisSplits<count_along<Tags...>(AxisId::sample), count_along<Tags...>(AxisId::channel),
                          count_along<Tags...>(AxisId::depth), count_along<Tags...>(AxisId::height),
                          count_along<Tags...>(AxisId::width)>;
};

template <class Policy>
inline constexpr bool is_axis_splits = false;
template <std::int64_t S, std::int64_t C, std::int64_t D, std::int64_t H, std::int64_t W>
inline constexpr bool is_axis_splits<AxisSplits<S, C, D, H, W>> = true;

}  // namespace detail

/// Which axes are cut: `Distribution<Sample, Split<Depth, 4>>`. The order of the tags does not matter; an absent axis
/// is whole.
template <class... Tags>
using Distribution = typename detail::Canonical<Tags...>::type;

/// What a Distribution is. Functions constrain with it instead of deducing the tags.
template <class Policy>
concept PartitionPolicy = detail::is_axis_splits<Policy>;

}  // namespace tessera
