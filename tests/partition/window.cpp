// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/partition/window.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "support/property.hpp"

namespace {

using tessera::checked_outputs;
using tessera::Error;
using tessera::Interval;
using tessera::same_window;
using tessera::Window;
using tessera::test::property;

std::int64_t draw(char const* name, std::int64_t least, std::int64_t most) {
  return *rc::gen::inRange<std::int64_t>(least, most + 1).as(name);
}

/// -4..8, shrinking towards 0: 0, 1, -1, 2, -2, 3, -3, 4, -4, 5, 6, 7, 8.
std::int64_t draw_pad(char const* name) {
  return *rc::gen::map(rc::gen::inRange<std::int64_t>(0, 13), [](std::int64_t i) {
            return i > 8 ? i - 4 : i % 2 == 1 ? (i + 1) / 2 : -i / 2;
          }).as(name);
}

Window draw_window() {
  Window window;
  window.kernel = draw("kernel", 1, 7);
  window.stride = draw("stride", 1, 5);
  window.dilation = draw("dilation", 1, 4);
  window.low = draw_pad("low");
  window.high = draw_pad("high");
  return window;
}

Interval draw_interval(std::int64_t least, std::int64_t most, std::int64_t longest) {
  std::int64_t const begin = draw("begin", least, most);
  return {begin, begin + draw("length", 0, longest)};
}

/// The inputs that output o reads, tap by tap.
std::vector<std::int64_t> taps(Window const& window, std::int64_t o) {
  std::vector<std::int64_t> cells;
  for (std::int64_t j = 0; j < window.kernel; ++j)
    cells.push_back(o * window.stride - window.low + window.dilation * j);
  return cells;
}

/// Every output that can read one of the inputs -30..100 lies in here.
constexpr Interval far{-200, 200};

/// The number of outputs, by placing one after the other until the last tap leaves the padded input.
std::int64_t outputs_by_placing(Window const& window, std::int64_t n) {
  std::int64_t o = 0;
  while (taps(window, o).back() < n + window.high) ++o;
  return o;
}

}  // namespace

TEST_CASE("Window: span and outputs") {
  property("span is the distance of the outermost taps, plus one", [] {
    Window const window = draw_window();
    auto const cells = taps(window, 0);
    RC_ASSERT(window.span() == cells.back() - cells.front() + 1);
  });
  property("outputs are as many as can be placed in the padded input", [] {
    Window const window = draw_window();
    std::int64_t const n = draw("n", 1, 40);
    RC_ASSERT(window.outputs(n) == outputs_by_placing(window, n));
  });
}

TEST_CASE("Window: required is tight") {
  property("required begins at the first tap of the first output and ends after the last tap of the last one", [] {
    Window const window = draw_window();
    Interval const out = draw_interval(-10, 40, 8), required = window.required(out);
    if (out.empty()) {
      RC_ASSERT(required.empty());
      return;
    }
    std::vector<std::int64_t> cells;
    for (std::int64_t o = out.begin; o < out.end; ++o)
      for (std::int64_t cell : taps(window, o)) cells.push_back(cell);
    RC_ASSERT(required.begin == *std::min_element(cells.begin(), cells.end()));
    RC_ASSERT(required.end == *std::max_element(cells.begin(), cells.end()) + 1);
  });
}

TEST_CASE("Window: touch finds every reader") {
  property("an output that reads the inputs is in touch; the converse holds unless dilation skips the inputs", [] {
    Window const window = draw_window();
    Interval const in = draw_interval(-10, 50, 12), touch = window.touch(in);
    bool const exact = window.kernel == 1 || in.size() >= window.dilation;
    for (std::int64_t o = far.begin; o < far.end; ++o) {
      auto const cells = taps(window, o);
      bool const reads = std::any_of(cells.begin(), cells.end(), [&](std::int64_t cell) { return in.contains(cell); });
      if (reads) RC_ASSERT(touch.contains(o));
      if (exact) RC_ASSERT(touch.contains(o) == reads);
    }
  });
  property("touch is the converse of required: an output is in it if its hull meets the inputs", [] {
    Window const window = draw_window();
    Interval const in = draw_interval(-10, 50, 12), touch = window.touch(in);
    for (std::int64_t o = far.begin; o < far.end; ++o) {
      bool meets = false;
      for (std::int64_t cell = taps(window, o).front(); cell <= taps(window, o).back(); ++cell)
        meets = meets || in.contains(cell);
      RC_ASSERT(touch.contains(o) == meets);
    }
    // Plans place an empty touch between two outputs, so that its ends meet.
    if (!in.empty()) RC_ASSERT(touch.begin <= touch.end);
  });
  property("the touched outputs of all blocks are those that read any input", [] {
    Window const window = draw_window();
    std::int64_t const n = draw("n", 1, 40), cut = draw("cut", 0, n);
    Interval const left = window.touch({0, cut}), right = window.touch({cut, n}), whole = window.touch({0, n});
    for (std::int64_t o = far.begin; o < far.end; ++o)
      RC_ASSERT(whole.contains(o) == (left.contains(o) || right.contains(o)));
  });
}

TEST_CASE("Window: interior is exactly the outputs that read nothing else") {
  property("an output is interior if all its taps lie in the inputs", [] {
    Window const window = draw_window();
    Interval const in = draw_interval(-10, 50, 40), interior = window.interior(in);
    for (std::int64_t o = far.begin; o < far.end; ++o) {
      auto const cells = taps(window, o);
      bool const inside = std::all_of(cells.begin(), cells.end(), [&](std::int64_t cell) { return in.contains(cell); });
      RC_ASSERT(interior.contains(o) == inside);
    }
  });
}

TEST_CASE("Window: pointwise reads exactly its own cell") {
  property("pointwise says whether output o reads input o alone, and there are as many", [] {
    Window const window =
        *rc::gen::arbitrary<bool>().as("plain") ? Window{.dilation = draw("dilation", 1, 4)} : draw_window();
    bool own = window.outputs(9) == 9;
    for (std::int64_t o = 0; o < 9; ++o) own = own && taps(window, o) == std::vector<std::int64_t>{o};
    RC_ASSERT(window.pointwise() == own);
  });
}

TEST_CASE("same_window: the least padding that makes ceil(n / stride) outputs, the odd cell after") {
  property("no smaller padding makes as many outputs", [] {
    std::int64_t const n = draw("n", 1, 40), kernel = draw("kernel", 1, 7), stride = draw("stride", 1, 5),
                       dilation = draw("dilation", 1, 4);
    std::int64_t wanted = 0;
    while (wanted * stride < n) ++wanted;
    std::int64_t total = 0;
    while (outputs_by_placing(Window{kernel, stride, dilation, 0, total}, n) < wanted) ++total;
    Window const window = same_window(n, kernel, stride, dilation);
    RC_ASSERT(window == (Window{kernel, stride, dilation, total / 2, total - total / 2}));
    RC_ASSERT(window.outputs(n) == wanted);
  });
}

TEST_CASE("checked_outputs: the number of outputs, or an error that names the axis") {
  property("it throws exactly when no output can be placed", [] {
    Window const window = draw_window();
    std::int64_t const n = draw("n", 1, 40), placed = outputs_by_placing(window, n);
    if (placed == 0)
      RC_ASSERT_THROWS_AS(checked_outputs(window, n, "conv", "depth"), Error);
    else
      RC_ASSERT(checked_outputs(window, n, "conv", "depth") == placed);
  });
  CHECK_THROWS_WITH_AS(checked_outputs(Window{.kernel = 3, .dilation = 2, .low = 1, .high = -1}, 4, "conv", "height"),
                       "conv: the kernel must fit into the padded input, but along height it covers 5 cells of 4 + 1 + "
                       "-1; use a smaller kernel or more padding",
                       Error);
  CHECK_THROWS_WITH_AS(checked_outputs(Window{.kernel = 0}, 4, "conv", "width"),
                       "conv: kernel, stride and dilation must be at least 1, but along width they are 0, 1, 1", Error);
  CHECK_THROWS_WITH_AS(checked_outputs(Window{.stride = 0}, 4, "pool", "depth"),
                       "pool: kernel, stride and dilation must be at least 1, but along depth they are 1, 0, 1", Error);
  CHECK_THROWS_WITH_AS(checked_outputs(Window{.dilation = -2}, 4, "conv", "width"),
                       "conv: kernel, stride and dilation must be at least 1, but along width they are 1, 1, -2",
                       Error);
}
