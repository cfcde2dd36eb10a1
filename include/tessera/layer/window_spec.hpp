// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/op/geometry.hpp"
#include "tessera/partition/shape.hpp"

namespace tessera {

/// Options of convolutions and pools, written as words: `conv3d<3>(16, same, stride(2))`.
struct SamePadding {};
inline constexpr SamePadding same{};
struct NoBias {};
inline constexpr NoBias no_bias{};

namespace detail {

/// A word option: one number for all axes, or one per axis.
template <class Name>
struct AxisOption {
  std::array<std::int64_t, 3> value{};
  int given = 0;

  std::int64_t along(int axis, int rank, char const* word) const {
    require(given == 1 || given == rank, word, "takes one number, or one per spatial axis (", rank, "), but was given ",
            given);
    return value[static_cast<std::size_t>(given == 1 ? 0 : axis)];
  }
};

template <class Name, class... N>
constexpr AxisOption<Name> axis_option(N... n) {
  static_assert(1 <= sizeof...(N) && sizeof...(N) <= 3, "tessera: one number, or one per spatial axis");
  static_assert((std::is_integral_v<N> && ...), "tessera: options of windows are whole numbers");
  AxisOption<Name> option;
  option.given = static_cast<int>(sizeof...(N));
  int i = 0;
  ((option.value[static_cast<std::size_t>(i++)] = static_cast<std::int64_t>(n)), ...);
  return option;
}

struct KernelName {};
struct StrideName {};
struct DilationName {};
struct PaddingName {};
struct PaddingLowName {};
struct PaddingHighName {};
struct OutputPaddingName {};

template <class Spec, class Option>
concept TakesOption = requires(Spec& spec, Option const& option) {
  spec.set(option);
};

template <class Spec, class... Options>
Spec with_options(Spec spec, Options const&... options) {
  constexpr bool takes_all = (TakesOption<Spec, Options> && ...);
  static_assert(takes_all,
                "tessera: the layer does not take one of its options; docs/reference/layers lists those that it takes");
  if constexpr (takes_all) (spec.set(options), ...);
  return spec;
}

}  // namespace detail

/// Extents of a kernel at run time: `conv3d(16, kernel(3, 3, 1))`.
template <class... N>
constexpr auto kernel(N... n) {
  return detail::axis_option<detail::KernelName>(n...);
}
template <class... N>
constexpr auto stride(N... n) {
  return detail::axis_option<detail::StrideName>(n...);
}
template <class... N>
constexpr auto dilation(N... n) {
  return detail::axis_option<detail::DilationName>(n...);
}
/// The same padding on both sides of an axis.
template <class... N>
constexpr auto padding(N... n) {
  return detail::axis_option<detail::PaddingName>(n...);
}
template <class... N>
constexpr auto padding_low(N... n) {
  return detail::axis_option<detail::PaddingLowName>(n...);
}
template <class... N>
constexpr auto padding_high(N... n) {
  return detail::axis_option<detail::PaddingHighName>(n...);
}

/// Cells that a transposed convolution makes more than it must, at the high side.
template <class... N>
constexpr auto output_padding(N... n) {
  return detail::axis_option<detail::OutputPaddingName>(n...);
}

/// Windows as a user describes them, before the input's extents are known. Padding defaults to 0.
class WindowSpec {
 public:
  explicit WindowSpec(int rank) : rank_(rank) {}

  void set(detail::AxisOption<detail::KernelName> const& o) {
    each("kernel", o, [](Window& w, std::int64_t v) { w.kernel = v; });
  }
  void set(detail::AxisOption<detail::StrideName> const& o) {
    each("stride", o, [](Window& w, std::int64_t v) { w.stride = v; });
    stride_given_ = true;
  }
  void set(detail::AxisOption<detail::DilationName> const& o) {
    each("dilation", o, [](Window& w, std::int64_t v) { w.dilation = v; });
  }
  void set(detail::AxisOption<detail::PaddingName> const& o) {
    each("padding", o, [](Window& w, std::int64_t v) { w.low = w.high = v; });
    padding_given_ = true;
  }
  void set(detail::AxisOption<detail::PaddingLowName> const& o) {
    each("padding_low", o, [](Window& w, std::int64_t v) { w.low = v; });
    padding_given_ = true;
  }
  void set(detail::AxisOption<detail::PaddingHighName> const& o) {
    each("padding_high", o, [](Window& w, std::int64_t v) { w.high = v; });
    padding_given_ = true;
  }
  void set(SamePadding) { same_ = true; }

  bool stride_given() const { return stride_given_; }
  void stride_as_kernel() {
    for (Window& window : windows_.axis) window.stride = window.kernel;
  }

  /// The windows for an input of this shape.
  Windows on(Shape const& input) const {
    Windows windows = given();
    if (same_)
      for (int i = 3 - rank_; i < 3; ++i) {
        Window& w = windows.axis[i];
        if (w.kernel >= 1 && w.stride >= 1 && w.dilation >= 1)
          w = same_window(input[spatial_axes[static_cast<std::size_t>(i)]], w.kernel, w.stride, w.dilation);
      }
    return windows;
  }

  /// How many axes are in use, and whether the padding is for the windows to choose.
  int rank() const { return rank_; }
  bool is_same() const { return same_; }
  /// The windows as they were given, without the padding that `same` chooses.
  Windows const& given() const {
    require(!(same_ && padding_given_), "same", "chooses the padding itself; give either same or padding, not both");
    return windows_;
  }

  /// Kernel and the options that differ from their defaults, for people.
  std::string text() const {
    std::string out = per_axis([](Window const& w) { return w.kernel; });
    if (auto const s = per_axis([](Window const& w) { return w.stride; }); s != "1") out += " stride " + s;
    if (auto const d = per_axis([](Window const& w) { return w.dilation; }); d != "1") out += " dilation " + d;
    if (same_) return out + " same";
    auto const low = per_axis([](Window const&w) { return w.low; }),
               high = per_axis([](Window const&w) { return w.high; });
    if (low == high && low != "0") out += " padding " + low;
    if (low != high) out += " padding " + low + "/" + high;
    return out;
  }

 private:
  template <class Option, class Assign>
  void each(char const* word, Option const& option, Assign assign) {
    for (int i = 0; i < rank_; ++i) assign(windows_.axis[3 - rank_ + i], option.along(i, rank_, word));
  }

  template <class Get>
  std::string per_axis(Get get) const {
    std::string out;
    bool equal = true;
    for (int i = 3 - rank_; i < 3; ++i) {
      out += (out.empty() ? "" : "x") + std::to_string(get(windows_.axis[i]));
      equal = equal && get(windows_.axis[i]) == get(windows_.axis[2]);
    }
    return equal ? std::to_string(get(windows_.axis[2])) : out;
  }

  int rank_;
  Windows windows_;
  bool same_ = false;
  bool padding_given_ = false;
  bool stride_given_ = false;
};

namespace detail {

/// The shape of a weight as PyTorch has it, without the axes that a layer of fewer dimensions lacks.
inline std::vector<std::int64_t> weight_file_shape(int rank, std::int64_t first, std::int64_t second,
                                                   Windows const& windows) {
  std::vector<std::int64_t> shape{first, second};
  for (int i = 3 - rank; i < 3; ++i) shape.push_back(windows.axis[i].kernel);
  return shape;
}

template <int Rank, std::int64_t Kernel>
WindowSpec window_spec() {
  static_assert(Kernel >= 1, "tessera: a kernel extent must be at least 1");
  WindowSpec spec(Rank);
  spec.set(kernel(Kernel));
  return spec;
}

}  // namespace detail

}  // namespace tessera
