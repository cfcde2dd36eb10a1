// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "support/layer_cases.hpp"
#include "support/linear_layer.hpp"
#include "support/window_options.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/layer/dense.hpp"
#include "tessera/layer/flat_dense.hpp"
#include "tessera/layer/transposed_conv.hpp"

/// Any of the linear layers that mix channels, drawn at random.
namespace tessera::test {

enum class Mixing { conv, transposed, dense, flattened };

constexpr char const* name(Mixing kind) {
  constexpr char const* names[] = {"conv", "transposed conv", "dense", "flattened dense"};
  return names[static_cast<int>(kind)];
}

struct MixingCase {
  Mixing kind = Mixing::conv;
  std::array<Window, 3> windows;
  std::array<std::int64_t, 3> more{};  ///< output padding
  std::int64_t out_channels = 1;
  std::int64_t groups = 1;
  Padding padding = Padding::zeros;
  Stationary stationary = Stationary::automatic;
  bool bias = false;
  Partition input;

  std::string text() const {
    std::string all = tessera::detail::text(test::name(kind), " to ", out_channels, " channels");
    for (std::size_t i = 0; i < 3; ++i) all += ", " + test::text(windows[i]) + " +" + std::to_string(more[i]);
    return tessera::detail::text(all, ", ", groups, " groups, ", tessera::name(padding), ", stationary ",
                                 static_cast<int>(stationary), " of ", test::text(input));
  }

  /// use(spec) with the layer as a user would write it.
  template <class Use>
  void with_spec(Use use) const {
    if (kind == Mixing::conv) {
      ConvSpec spec = conv3d(out_channels);
      set_windows(spec);
      spec.bias = bias;
      spec.set(padding);
      use(spec);
    } else if (kind == Mixing::transposed) {
      TransposedConvSpec spec = transposed_conv3d(out_channels, output_padding(more[0], more[1], more[2]));
      set_windows(spec);
      spec.bias = bias;
      use(spec);
    } else {
      DenseSpec spec = dense(out_channels, stationary);
      spec.bias = bias;
      if (kind == Mixing::dense)
        use(spec);
      else
        use(FlatDenseSpec{spec});
    }
  }

 private:
  template <class Spec>
  void set_windows(Spec& spec) const {
    test::set_windows(spec, windows);
    spec.set(tessera::groups(groups));
    spec.set(stationary);
  }
};

/// A window along an axis of n cells; the pads grow or shrink until there is an output, and the mode can supply them.
inline void draw_window(MixingCase& c, std::size_t axis, std::int64_t n) {
  Window& w = c.windows[axis];
  w.kernel = draw(1, draw_one_in(3, "a wide kernel") ? 7 : 4, "kernel");
  w.stride = draw(0, 1, "strided") == 0 ? 1 : draw(2, 4, "stride");
  w.dilation = draw_one_in(3, "dilated") ? draw(2, 3, "dilation") : 1;
  w.low = draw(-1, larger(2, w.span() - 1), "low");
  w.high = draw(-1, larger(2, w.span() - 1), "high");
  if (c.kind == Mixing::transposed) {
    c.more[axis] = draw(0, larger(w.stride, w.dilation) - 1, "output padding");
    w.high -= larger(0, 1 - ((n - 1) * w.stride - w.low - w.high + w.span() + c.more[axis]));
    return;
  }
  if (c.padding == Padding::reflect) {
    w.low = smaller(w.low, n - 1);
    w.high = smaller(w.high, n - 1);
    while (w.kernel > 1 && w.span() > n + w.low + w.high) --w.kernel;
    if (w.span() > n + w.low + w.high) w.low = w.high = 0;
  }
  w.high = larger(w.high, w.span() - n - w.low);
}

/// A layer on an input of about this shape: its channels follow from the groups.
inline MixingCase draw_mixing(Mixing kind, Counts const& counts, Shape shape, std::int64_t space) {
  MixingCase c;
  c.kind = kind;
  c.out_channels = draw(1, larger(8, 2 * counts.channel), "output channels");
  bool const windowed = kind == Mixing::conv || kind == Mixing::transposed;
  if (windowed && draw_one_in(3, "groups")) {
    c.groups = draw(2, larger(3, counts.channel), "number of groups");
    shape.channel = c.groups * draw(1, 3, "inputs of a group");
    c.out_channels = c.groups * draw(1, 3, "outputs of a group");
  } else {
    c.stationary = static_cast<Stationary>(draw(0, 3, "stationary (automatic, x, y, w)"));
    bool product = false;
    for (std::int64_t i = 2; i < counts.channel; ++i) product = product || counts.channel % i == 0;
    if (c.stationary == Stationary::w && counts.channel > 1 && !product) c.stationary = Stationary::automatic;
  }
  if (kind == Mixing::conv)  // zeros half as often as each of the others
    c.padding = static_cast<Padding>((draw(0, 6, "mode (0: zeros, 1: circular, 3: reflect, 5: replicate)") + 1) / 2);
  if (windowed)
    for (std::size_t i = static_cast<std::size_t>(3 - space); i < 3; ++i) draw_window(c, i, shape[space_in_order[i]]);
  c.bias = draw(0, 1, "bias") == 1;
  c.input = draw_partition(shape, counts);
  return c;
}

}  // namespace tessera::test
