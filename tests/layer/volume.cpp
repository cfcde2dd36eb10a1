// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What the layers that mix channels move, in plans and by their own account.

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "support/distributed_property.hpp"
#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "support/mixing_cases.hpp"
#include "support/volume.hpp"
#include "tessera/layer/mixing_binding.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

/// What a layer moves, over all ranks, by plan: inputs forward, partial outputs forward, errors backward. What is
/// folded back is what came.
struct Moved {
  Flow x, y, dy;
  bool folds = false, moves_outputs = false;
};

/// The channels that block i of the layer needs, from what is said of the choices.
Needs channel_reads(MixingCase const& c, ChannelRoles const& roles, Partition const& out) {
  Blocks const ins = c.input.blocks(AxisId::channel), outs = out.blocks(AxisId::channel);
  std::int64_t const in_each = ins.extent() / c.groups, out_each = outs.extent() / c.groups;
  Needs needs;
  for (std::int64_t i = 0; i < ins.parts(); ++i) {
    std::set<std::int64_t> all;
    bool const inputs_stay = c.groups > 1 ? c.kind == Mixing::transposed : c.stationary == Stationary::x;
    if (inputs_stay) {
      for (std::int64_t g = ins[i].begin; g < ins[i].end; ++g) all.insert(g);
    } else if (c.groups > 1 || c.stationary == Stationary::y) {
      for (std::int64_t o = outs[i].begin; o < outs[i].end; ++o)
        for (std::int64_t k = 0; k < in_each; ++k) all.insert(o / out_each * in_each + k);
    } else {
      for (std::int64_t g = roles.reads(i).begin; g < roles.reads(i).end; ++g) all.insert(g);
    }
    needs.emplace_back(all.begin(), all.end());
  }
  return needs;
}
Needs channel_makes(MixingCase const& c, ChannelRoles const& roles, Partition const& out) {
  Blocks const ins = c.input.blocks(AxisId::channel), outs = out.blocks(AxisId::channel);
  std::int64_t const in_each = ins.extent() / c.groups, out_each = outs.extent() / c.groups;
  Needs needs;
  for (std::int64_t i = 0; i < ins.parts(); ++i) {
    std::set<std::int64_t> all;
    bool const outputs_stay = c.groups > 1 ? c.kind != Mixing::transposed : c.stationary == Stationary::y;
    if (outputs_stay) {
      for (std::int64_t g = outs[i].begin; g < outs[i].end; ++g) all.insert(g);
    } else if (c.groups > 1 || c.stationary == Stationary::x) {
      for (std::int64_t g = ins[i].begin; g < ins[i].end; ++g)
        for (std::int64_t k = 0; k < out_each; ++k) all.insert(g / in_each * out_each + k);
    } else {
      for (std::int64_t g = roles.makes(i).begin; g < roles.makes(i).end; ++g) all.insert(g);
    }
    needs.emplace_back(all.begin(), all.end());
  }
  return needs;
}

/// Every pair of channels of one group is some block's, and no one else's; blocks that hold weights both ways make
/// a grid of them.
void expect_shared_out(MixingCase const& c, ChannelRoles const& roles, std::int64_t ins, std::int64_t outs) {
  std::vector<int> done(static_cast<std::size_t>(ins * outs), 0);
  for (std::size_t i = 0; i < roles.all_reads().size(); ++i)
    for (std::int64_t g = roles.all_reads()[i].begin; g < roles.all_reads()[i].end; ++g)
      for (std::int64_t o = roles.all_makes()[i].begin; o < roles.all_makes()[i].end; ++o)
        ++done[static_cast<std::size_t>(g * outs + o)];
  for (std::int64_t g = 0; g < ins; ++g)
    for (std::int64_t o = 0; o < outs; ++o) {
      bool const same_group = g / (ins / c.groups) == o / (outs / c.groups);
      int const times = done[static_cast<std::size_t>(g * outs + o)];
      // With groups a block may read whole groups for the sake of some of their outputs: pairs of two groups are
      // skipped by the operation itself.
      expect(!same_group || times == 1,
             tessera::detail::text("channels ", g, " and ", o, " meet in ", times, " blocks"));
    }
}

/// By counting.
Moved expected(MixingCase const& c, Partition const& out, ChannelRoles const& roles) {
  Moved moved;
  bool const transposed = c.kind == Mixing::transposed;
  Needs const chosen_in = channel_reads(c, roles, out), chosen_out = channel_makes(c, roles, out);
  // Who has nothing to make of it reads nothing, and the reverse.
  Needs from = chosen_in, to = chosen_out;
  for (std::size_t i = 0; i < from.size(); ++i)
    if (chosen_in[i].empty() || chosen_out[i].empty()) from[i] = to[i] = {};
  bool const moves_inputs = from != owned(c.input.blocks(AxisId::channel));
  moved.moves_outputs = to != owned(out.blocks(AxisId::channel));
  moved.folds = c.padding != Padding::zeros || moves_inputs;

  AllNeeds x = owned(out), y = owned(out), dy = owned(c.input);
  for (std::size_t i = 0; i < 3; ++i) {
    AxisId const axis = space_in_order[i];
    Window const& w = c.windows[i];
    std::int64_t const n = c.input.shape()[axis], m = out.shape()[axis];
    for (Cells& cells : along(x, axis)) cells = transposed ? readers(w, cells, n) : reads(w, cells);
    for (Cells& cells : along(dy, axis)) cells = transposed ? reads(w, cells) : readers(w, cells, m);
    // Errors of what the rank made parts of come to it; beyond those, of what reads its inputs, unless these are
    // folded.
    Needs const own = owned(out.blocks(axis));
    for (std::size_t k = 0; k < own.size(); ++k) {
      Cells& cells = along(dy, axis)[k];
      if (moved.folds)
        cells = own[k];
      else if (moved.moves_outputs)
        cells = hull_of(cells, own[k]);
    }
  }
  along(x, AxisId::channel) = from;
  along(y, AxisId::channel) = along(dy, AxisId::channel) = to;
  moved.x = flow(c.input, x, c.padding);
  moved.y = flow(out, y, Padding::zeros);
  moved.dy = flow(out, dy, Padding::zeros);
  return moved;
}

void check_plans(MixingCase const& c, auto const& op) {
  Shape const in = c.input.shape();
  Reaches const reaches = op.mixing_reaches(in);
  std::int64_t const channels = op.channels(in.channel);
  Partition const out = MixingBinding::output(c.input, reaches, channels);
  ChannelRoles const roles = op.roles("layer", c.input, out);
  expect_shared_out(c, roles, in.channel, channels);
  Tally x, y, dy;
  for (std::int64_t rank = 0; rank < c.input.grid().size(); ++rank) {
    auto const bound = MixingBinding(static_cast<int>(rank), reaches, channels, op.padding(), roles).make(c.input);
    x.add(bound.x_plan);
    if (roles.moves_outputs()) y.add(bound.y_plan);
    dy.add(bound.dy_plan);
  }
  Moved const moved = expected(c, out, roles);
  x.expect_equal("x", moved.x.all());
  y.expect_equal("y", moved.y.all());
  dy.expect_equal("dy", moved.dy.all());
}

/// Channels alone are cut: `x_moved` channels of inputs and `y_moved` of outputs travel, at every position.
void check_stationary(Stationary kept, std::int64_t blocks, std::int64_t ins, std::int64_t outs, std::int64_t x_moved,
                      std::int64_t y_moved) {
  Shape const shape{3, 2, 4, 5, ins};
  Partition const input(Grid(Counts{.channel = blocks}), shape);
  ConvOp<double, Host> const op(conv3d(outs, kept), shape);
  Reaches const reaches = op.mixing_reaches(shape);
  Partition const out = MixingBinding::output(input, reaches, outs);
  ChannelRoles const roles = op.roles("conv", input, out);
  Tally x, y, dy;
  for (int rank = 0; rank < blocks; ++rank) {
    auto const bound = MixingBinding(rank, reaches, outs, Padding::zeros, roles).make(input);
    x.add(bound.x_plan);
    y.add(bound.y_plan);
    dy.add(bound.dy_plan);
  }
  std::int64_t const positions = 3 * 2 * 4 * 5;
  CHECK(x.received.cells == positions * x_moved);
  CHECK(y.sent.cells == positions * y_moved);
  CHECK(dy.received.cells == positions * y_moved);
}

}  // namespace

TEST_CASE("plans of layers that mix channels move what the formulas say, on up to 512 ranks") {
  if (world_ranks().size() > 1) return;
  property("volume of plans", [] {
    auto const kind = static_cast<Mixing>(larger(0, draw(-1, 2, "kind (to 0: conv, transposed, dense)")));
    std::int64_t const space = draw(1, 3, "spatial axes");
    Counts const counts = draw_counts(draw_ranks(), space, ChannelCuts::yes);
    MixingCase const c = draw_mixing(kind, counts, draw_large_shape(counts, space), space);
    c.with_spec([&](auto const& spec) {
      if constexpr (requires { spec.template op<double, Host>(c.input.shape()); })
        check_plans(c, spec.template op<double, Host>(c.input.shape()));
    });
  });
}

TEST_CASE("cut channels: what moves is own space times channels that are read or made but not owned") {
  // 4 blocks of 12 inputs and 8 outputs: each owns 3 and 2. Of x all but its own 3 come to each block, of y what 4
  // blocks made of all but their own 2 goes; weights in 2 x 2: blocks read 6 (own ones twice) and make 4, their own 2
  // among them.
  check_stationary(Stationary::y, 4, 12, 8, 4 * (12 - 3), 0);
  check_stationary(Stationary::x, 4, 12, 8, 0, 4 * (8 - 2));
  check_stationary(Stationary::w, 4, 12, 8, 2 * 6 + 2 * (6 - 3), 4 * (4 - 2));
  check_stationary(Stationary::y, 3, 7, 5, 3 * 7 - 7, 0);
  check_stationary(Stationary::x, 3, 7, 5, 0, 3 * 5 - 5);
  check_stationary(Stationary::y, 4, 3, 2, 2 * 3 - 2, 0);  // two blocks without an output read nothing
  check_stationary(Stationary::x, 1, 7, 5, 0, 0);
}

TEST_CASE("what layers say of their messages adds up to the formulas") {
  auto const world = world_ranks();
  Coverage coverage("described volumes", world.size());
  distributed_property(
      "described volume",
      [&] {
        auto const kind =
            static_cast<Mixing>(larger(0, draw(-1, 3, "kind (to 0: conv, transposed, dense, flattened)")));
        std::int64_t const space = draw(1, 3, "spatial axes");
        Counts const counts = draw_counts(world.size(), space, ChannelCuts::yes);
        MixingCase const c = draw_mixing(kind, counts, draw_shape(counts, space), space);
        bool const needs_dx = draw(0, 3, "a data gradient (1-3)") > 0;
        coverage.begin_case();
        coverage.count_decomposition(c.input, c.input);
        coverage.count("padding mode", c.padding != Padding::zeros);
        coverage.count("channels cut", cuts_channels(c.input), world.size() > 1);
        RankGrid<AnySplit> const ranks(world, counts);
        c.with_spec([&](auto const& spec) {
          Driver<double> driver(ranks, c.input, spec);
          std::vector<LayerInfo> info;
          driver.layer().describe(c.input, needs_dx, info);
          std::int64_t const there = info.at(0).halo_cells, back = info.at(0).halo_cells_back;
          std::int64_t const all_there = ranks.world().all_reduce(there), all_back = ranks.world().all_reduce(back);
          Partition const out = driver.layer().output(c.input);
          Coordinates const at = ranks.coordinates();
          std::int64_t forward = 0, backward = 0, all_forward = 0, all_backward = 0;
          if constexpr (requires { spec.template op<double, Host>(c.input.shape()); }) {
            auto const op = spec.template op<double, Host>(c.input.shape());
            Moved const moved = expected(c, out, op.roles("layer", c.input, out));
            forward = moved.x.received(at);
            all_forward = moved.x.all().cells;
            if (moved.moves_outputs) {
              forward += moved.y.received_back(at);
              all_forward += moved.y.all().cells;
            }
            if (needs_dx || moved.moves_outputs || c.kind == Mixing::transposed) {
              backward = moved.dy.received(at);
              all_backward = moved.dy.all().cells;
            }
            if (needs_dx && moved.folds) {
              backward += moved.x.received_back(at);
              all_backward += moved.x.all().cells;
            }
          } else {
            Grid const& grid = ranks.grid();
            std::int64_t const sharing = grid.size() / counts.sample, outputs = out.shape().channel;
            auto const makes = [&](std::int64_t rank) {
              Box const cells = c.input.owned(rank);
              return !cells.axis[1].empty() && !cells.axis[2].empty() && !cells.axis[3].empty() &&
                     !cells.axis[4].empty();
            };
            for (std::int64_t rank = 0; rank < grid.size(); ++rank) {
              // Who has cells makes parts of all outputs; rank i of those that share samples sums the i-th part.
              std::int64_t const first = rank / sharing * sharing, samples = c.input.owned(rank).axis[0].size();
              std::int64_t makers = 0;
              for (std::int64_t other = first; other < first + sharing; ++other)
                makers += makes(other) && other != rank ? 1 : 0;
              Interval const share = Blocks(outputs, sharing)[rank - first];
              Box const mine = out.owned(rank);
              bool const owns = !mine.axis[1].empty() && !mine.axis[2].empty() && !mine.axis[3].empty();
              Interval const own = owns ? mine.axis[4] : Interval{};
              std::int64_t const both = intersect(own, share).size();
              std::int64_t const comes = samples * (makers * share.size() + own.size() - both);
              std::int64_t const returns = samples * (share.size() - both + (makes(rank) ? outputs - share.size() : 0));
              all_forward += comes;
              all_backward += returns;
              if (rank == ranks.rank()) {
                forward = comes;
                backward = returns;
              }
            }
          }
          auto const text = [&](std::int64_t a, std::int64_t b, std::int64_t x, std::int64_t y) {
            return tessera::detail::text(a, " and ", b, " cells are said to move, expected ", x, " and ", y, "\n  in ",
                                         c.text());
          };
          together([&] {
            expect(there == forward && back == backward, "here: " + text(there, back, forward, backward));
            expect(all_there == all_forward && all_back == all_backward,
                   "in all: " + text(all_there, all_back, all_forward, all_backward));
          });
        });
      },
      MPI_COMM_WORLD);
  coverage.report(world.rank());
}
