// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What pools and upsampling move, in plans and by their own account.

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "support/distributed_property.hpp"
#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "support/oracle/separable.hpp"
#include "support/pool_window.hpp"
#include "support/volume.hpp"
#include "support/window_options.hpp"
#include "tessera/layer/adaptive_pool.hpp"
#include "tessera/layer/pool.hpp"
#include "tessera/layer/upsample.hpp"
#include "tessera/layer/window_binding.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

using Host = Kokkos::DefaultHostExecutionSpace;

enum class Kind { average, max, adaptive, nearest, nearest_exact, linear, linear_aligned };

/// A layer over all three axes, two of which may have one cell.
struct Case {
  Kind kind = Kind::average;
  std::array<Window, 3> windows;  ///< of a pool
  bool ceil = false;
  std::array<oracle::AxisMap, 3> maps;  ///< of the others
  Partition input;

  bool is_pool() const { return kind == Kind::average || kind == Kind::max; }
  bool is_linear() const { return kind == Kind::linear || kind == Kind::linear_aligned; }

  Shape output() const {
    Shape const x = input.shape();
    if (is_pool()) return oracle::Pool{windows, ceil}.output(x);
    return {x.sample, maps[0].m, maps[1].m, maps[2].m, x.channel};
  }

  std::string text() const {
    std::string all = tessera::detail::text("kind ", static_cast<int>(kind), ceil ? ", ceil" : "");
    for (std::size_t i = 0; i < 3; ++i) all += ", " + (is_pool() ? test::text(windows[i]) : std::to_string(maps[i].m));
    return all + " of " + test::text(input);
  }

  /// use(spec) with the layer as a user would write it.
  template <class Use>
  void with_spec(Use use) const {
    std::int64_t const d = maps[0].m, h = maps[1].m, w = maps[2].m;
    switch (kind) {
      case Kind::average: return use(with_windows(avg_pool3d()));
      case Kind::max: return use(with_windows(max_pool3d()));
      case Kind::adaptive: return use(adaptive_avg_pool3d({d, h, w}));
      case Kind::nearest: return use(upsample_nearest3d(tessera::size(d, h, w)));
      case Kind::nearest_exact: return use(upsample_nearest3d(tessera::size(d, h, w), nearest_exact));
      case Kind::linear: return use(upsample_linear3d(tessera::size(d, h, w)));
      case Kind::linear_aligned: return use(upsample_linear3d(tessera::size(d, h, w), align_corners));
    }
  }

 private:
  template <class Spec>
  Spec with_windows(Spec spec) const {
    set_windows(spec, windows);
    if (ceil) spec.set(ceil_mode);
    return spec;
  }
};

oracle::AxisMap axis_map(Kind kind, std::int64_t n, std::int64_t m) {
  if (kind == Kind::adaptive) return oracle::adaptive_axis(n, m);
  if (kind == Kind::nearest || kind == Kind::nearest_exact)
    return oracle::nearest_axis(n, m, kind == Kind::nearest_exact);
  return oracle::linear_axis(n, m, kind == Kind::linear_aligned);
}

Case draw_case(Counts const& counts, std::int64_t space, Shape const& shape) {
  Case c;
  c.kind = static_cast<Kind>(draw(0, 6, "kind"));
  c.ceil = c.is_pool() && draw(0, 2, "ceil mode (1, 2)") > 0;
  for (std::size_t i = 0; i < 3; ++i) {
    std::int64_t const n = shape[space_in_order[i]];
    if (static_cast<std::int64_t>(i) < 3 - space)
      c.maps[i] = oracle::identity_axis(n);
    else if (c.is_pool())
      c.windows[i] = draw_pool_window(n, c.ceil, false, c.kind == Kind::max);
    else  // two outputs at least, so that adaptive pools move cells
      c.maps[i] = axis_map(c.kind, n, draw(0, 1, "a multiple") == 1 ? n * draw(2, 3, "times") : draw(2, 20, "outputs"));
  }
  c.input = draw_partition(shape, counts);
  return c;
}

/// The hull of the columns that have a weight in one of the rows.
Cells columns_of(oracle::AxisMap const& map, Cells const& outputs) {
  Cells found;
  for (std::int64_t const o : outputs)
    for (std::int64_t i = 0; i < map.n; ++i)
      if (map.at(o, i) != 0) found = hull_of(found, {i});
  return found;
}
/// The hull of the rows that have a weight in one of the columns.
Cells rows_of(oracle::AxisMap const& map, Cells const& cells) {
  Cells found;
  for (std::int64_t const i : cells)
    for (std::int64_t o = 0; o < map.m; ++o)
      if (map.at(o, i) != 0) found = hull_of(found, {o});
  return found;
}

struct Moved {
  Flow x, dy;
};

Moved moved_by(Case const& c) {
  Partition const out = c.input.scaled_to(c.output());
  AllNeeds x = owned(out), dy = owned(c.input);
  for (std::size_t i = 0; i < 3; ++i) {
    AxisId const axis = space_in_order[i];
    for (Cells& cells : along(x, axis)) cells = c.is_pool() ? reads(c.windows[i], cells) : columns_of(c.maps[i], cells);
    for (Cells& cells : along(dy, axis))
      cells = c.is_pool() ? readers(c.windows[i], cells, out.shape()[axis]) : rows_of(c.maps[i], cells);
  }
  return {flow(c.input, x, Padding::zeros), flow(out, dy, Padding::zeros)};
}

}  // namespace

TEST_CASE("plans of pools and upsampling move what the formulas say, on up to 512 ranks") {
  if (world_ranks().size() > 1) return;
  Coverage coverage("volume of pools and upsampling", 512);
  property("volume of pools and upsampling", [&] {
    std::int64_t const space = draw(1, 3, "spatial axes");
    Counts const counts = draw_counts(draw_ranks(), space, ChannelCuts::yes);
    Case const c = draw_case(counts, space, draw_large_shape(counts, space));
    coverage.begin_case();
    coverage.count("ceil mode", c.ceil);
    coverage.count("max pool", c.kind == Kind::max);
    coverage.count("adaptive pool", c.kind == Kind::adaptive);
    coverage.count("linear upsampling", c.is_linear());
    coverage.count("channels cut", cuts_channels(c.input));
    Tally x, dy, notes;
    c.with_spec([&](auto const& spec) {
      Reaches reaches;
      if constexpr (requires { spec.template op<double, Host>(c.input.shape(), "layer"); })
        reaches = spec.template op<double, Host>(c.input.shape(), "layer").reaches(c.input.shape());
      else
        reaches = AdaptiveAveragePoolOp<double, Host>(spec.geometry(c.input.shape(), "layer")).reaches(c.input.shape());
      for (std::int64_t rank = 0; rank < counts.product(); ++rank) {
        WindowBinding binding(static_cast<int>(rank), reaches, false, 0);
        WindowBinding::Bound const& bound = binding.bind(c.input);
        x.add(bound.x_plan);
        dy.add(bound.dy_plan);
        notes.add(bound.notes_plan);
      }
    });
    Moved const moved = moved_by(c);
    x.expect_equal("x", moved.x.all());
    dy.expect_equal("dy", moved.dy.all());
    notes.expect_equal("notes", moved.dy.all());
  });
  coverage.report(0);
}

TEST_CASE("what pools and upsampling say of their messages adds up to the formulas") {
  auto const world = world_ranks();
  Coverage coverage("described volumes of pools and upsampling", world.size());
  distributed_property(
      "described volume of pools and upsampling",
      [&] {
        std::int64_t const space = draw(1, 3, "spatial axes");
        Counts const counts = draw_counts(world.size(), space, ChannelCuts::yes);
        Case const c = draw_case(counts, space, draw_shape(counts, space));
        bool const needs_dx = draw(0, 3, "a data gradient (1-3)") > 0;
        coverage.begin_case();
        coverage.count_decomposition(c.input, c.input);
        coverage.count("channels cut", cuts_channels(c.input), world.size() > 1);
        RankGrid<AnySplit> const ranks(world, counts);
        std::vector<LayerInfo> info;
        c.with_spec(
            [&](auto const& spec) { Driver<double>(ranks, c.input, spec).layer().describe(c.input, needs_dx, info); });
        Moved const moved = moved_by(c);
        std::int64_t const there = moved.x.received(ranks.coordinates());
        std::int64_t const cells_back = needs_dx ? moved.dy.received(ranks.coordinates()) : 0;
        std::int64_t const back = c.kind == Kind::max ? 2 * cells_back : cells_back;  // errors, and which cell won
        together([&] {
          expect(
              info.at(0).halo_cells == there && info.at(0).halo_cells_back == back,
              tessera::detail::text(info.at(0).halo_cells, " and ", info.at(0).halo_cells_back,
                                    " cells are said to move, expected ", there, " and ", back, "\n  in ", c.text()));
        });
      },
      MPI_COMM_WORLD);
  coverage.report(world.rank());
}
