// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// How much the layers move: all ranks together receive prod_a(sum N_a) - prod_a(sum O_a) cells, where N counts, per
// axis and coordinate, the cells that are needed and O those of them that the rank owns itself. They arrive in
// prod_a(sum Q_a) - prod_a(sum Qs_a) boxes, Q counting pairs of owner and piece (piece: the part within the border, or
// one beyond it), Qs those with the rank itself. A message carries all boxes between two ranks, so that in the number
// of messages Q counts owners alone. N, O and Q are counted here cell by cell, without the library's formulas.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/border.hpp"
#include "support/distributed_property.hpp"
#include "support/layer_cases.hpp"
#include "support/layer_harness.hpp"
#include "support/mixing_cases.hpp"
#include "tessera/layer/mixing_binding.hpp"
#include "tessera/layer/pool.hpp"
#include "tessera/layer/window_binding.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

struct Volume {
  std::int64_t cells = 0, boxes = 0, messages = 0;
  friend bool operator==(Volume const&, Volume const&) = default;
  std::string text() const {
    return tessera::detail::text(cells, " cells in ", boxes, " boxes and ", messages, " messages");
  }
};

using Cells = std::vector<std::int64_t>;
/// What the blocks along one axis need, one after the other.
using Needs = std::vector<Cells>;

/// Of one block along one axis: needed cells and those of them that are its own, the cells of its own that all blocks
/// need, boxes and owners.
struct Counted {
  std::int64_t needed = 0, own = 0, given = 0, boxes = 0, own_boxes = 0, owners = 0, own_owners = 0;
};

std::vector<Counted> count(Blocks const& blocks, Needs const& needs, Padding padding) {
  std::int64_t const n = blocks.extent();
  std::vector<std::int64_t> owner(static_cast<std::size_t>(n), -1);
  for (std::int64_t i = 0; i < blocks.parts(); ++i)
    for (std::int64_t g = blocks[i].begin; g < blocks[i].end; ++g) owner[static_cast<std::size_t>(g)] = i;
  std::vector<Counted> all(needs.size());
  for (std::size_t i = 0; i < needs.size(); ++i) {
    auto const self = static_cast<std::int64_t>(i);
    std::set<std::pair<std::int64_t, std::int64_t>> boxes;
    std::set<std::int64_t> owners;
    for (std::int64_t const g : needs[i]) {
      auto const from = source_of(padding, g, n);
      if (!from) continue;
      std::int64_t const who = owner[static_cast<std::size_t>(*from)];
      std::int64_t const piece = padding == Padding::circular ? (g - *from) / n : g < 0 ? -1 : g < n ? 0 : 1;
      bool const begins = boxes.insert({who, piece}).second;
      owners.insert(who);
      // The cell that is repeated beyond the border travels once.
      if (padding == Padding::replicate && piece != 0 && !begins) continue;
      ++all[i].needed;
      all[i].own += who == self ? 1 : 0;
      ++all[static_cast<std::size_t>(who)].given;
    }
    all[i].boxes = static_cast<std::int64_t>(boxes.size());
    all[i].own_boxes = std::count_if(boxes.begin(), boxes.end(), [&](auto const& box) { return box.first == self; });
    all[i].owners = static_cast<std::int64_t>(owners.size());
    all[i].own_owners = owners.contains(self) ? 1 : 0;
  }
  return all;
}

Cells range(std::int64_t begin, std::int64_t end) {
  Cells cells;
  for (std::int64_t g = begin; g < end; ++g) cells.push_back(g);
  return cells;
}

/// What every block owns.
Needs owned(Blocks const& blocks) {
  Needs needs;
  for (std::int64_t i = 0; i < blocks.parts(); ++i) needs.push_back(range(blocks[i].begin, blocks[i].end));
  return needs;
}

/// Needs per axis, in the order of rank_order.
using AllNeeds = std::array<Needs, axis_count>;
Needs& along(AllNeeds& needs, AxisId axis) { return needs[static_cast<std::size_t>(axis)]; }

AllNeeds owned(Partition const& partition) {
  AllNeeds needs;
  for (AxisId axis : rank_order) along(needs, axis) = owned(partition.blocks(axis));
  return needs;
}

/// An exchange, as it is counted.
struct Flow {
  std::array<std::vector<Counted>, axis_count> axes;

  Volume all() const {
    std::int64_t const own = product(&Counted::own), own_boxes = product(&Counted::own_boxes),
                       own_owners = product(&Counted::own_owners);
    return {product(&Counted::needed) - own, product(&Counted::boxes) - own_boxes,
            product(&Counted::owners) - own_owners};
  }
  /// What one rank receives, and what it receives when the exchange runs backwards.
  std::int64_t received(Coordinates const& at) const {
    return product(at, &Counted::needed) - product(at, &Counted::own);
  }
  std::int64_t received_back(Coordinates const& at) const {
    return product(at, &Counted::given) - product(at, &Counted::own);
  }

 private:
  std::int64_t product(std::int64_t Counted::*what) const {
    std::int64_t all = 1;
    for (auto const& blocks : axes) {
      std::int64_t sum = 0;
      for (Counted const& block : blocks) sum += block.*what;
      all *= sum;
    }
    return all;
  }
  std::int64_t product(Coordinates const& at, std::int64_t Counted::*what) const {
    std::int64_t all = 1;
    for (std::size_t a = 0; a < axes.size(); ++a) all *= axes[a][static_cast<std::size_t>(at.at[a])].*what;
    return all;
  }
};

Flow expected(Partition const& has, AllNeeds const& needs, Padding padding) {
  Flow flow;
  for (AxisId axis : rank_order) {
    auto const a = static_cast<std::size_t>(axis);
    flow.axes[a] = count(has.blocks(axis), needs[a], padding);
  }
  return flow;
}

/// The hull of the cells that outputs [b, e) of a window read, tap by tap.
Cells reads(Window const& w, Cells const& outputs) {
  if (outputs.empty()) return {};
  std::int64_t least = std::numeric_limits<std::int64_t>::max(), most = std::numeric_limits<std::int64_t>::min();
  for (std::int64_t const o : outputs)
    for (std::int64_t j = 0; j < w.kernel; ++j) {
      std::int64_t const g = o * w.stride - w.low + w.dilation * j;
      least = smaller(least, g);
      most = larger(most, g);
    }
  return range(least, most + 1);
}

/// Those of m outputs whose windows, as far as they span, meet the cells.
Cells readers(Window const& w, Cells const& cells, std::int64_t m) {
  Cells found;
  for (std::int64_t o = 0; o < m && !cells.empty(); ++o) {
    std::int64_t const first = o * w.stride - w.low;
    if (first <= cells.back() && cells.front() < first + w.dilation * (w.kernel - 1) + 1) found.push_back(o);
  }
  return found;
}

Cells hull_of(Cells const& a, Cells const& b) {
  if (a.empty() || b.empty()) return a.empty() ? b : a;
  return range(smaller(a.front(), b.front()), larger(a.back(), b.back()) + 1);
}

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
  moved.x = expected(c.input, x, c.padding);
  moved.y = expected(out, y, Padding::zeros);
  moved.dy = expected(out, dy, Padding::zeros);
  return moved;
}

/// A sum over the plans of all ranks.
struct Tally {
  Volume received, sent;
  void add(ExchangePlan const& plan) {
    auto const boxes = [&](std::vector<Transfer> const& list) {
      return std::count_if(list.begin(), list.end(), [&](Transfer const& t) { return t.peer != plan.rank; });
    };
    received.cells += plan.received_cells();
    received.boxes += boxes(plan.receives);
    received.messages += plan.messages_received();
    sent.cells += plan.sent_cells();
    sent.boxes += boxes(plan.sends);
    sent.messages += plan.messages_sent();
  }
  void expect_equal(std::string const& what, Volume const& volume) const {
    expect(received == volume,
           tessera::detail::text(what, ": received are ", received.text(), ", expected ", volume.text()));
    expect(sent == volume, tessera::detail::text(what, ": sent are ", sent.text(), ", expected ", volume.text()));
  }
};

/// Any number of ranks up to 512, small ones as likely as large ones.
std::int64_t draw_ranks() {
  std::int64_t const most = std::int64_t{1} << draw(0, 9, "ranks, at most 2^");
  return draw((most + 1) / 2, most, "ranks");
}

/// Extents that leave blocks with several cells along the axes that are cut.
Shape draw_large_shape(Counts const& counts, std::int64_t space) {
  Shape shape = draw_shape(counts, space);
  std::int64_t* const extents[] = {&shape.depth, &shape.height, &shape.width};
  for (std::size_t i = static_cast<std::size_t>(3 - space); i < 3; ++i)
    if (draw(0, 1, "a longer axis") == 1)
      *extents[i] += counts[space_in_order[i]] * draw(0, 3, "more cells for each block");
  return shape;
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

TEST_CASE("plans of pools move what the formulas say, on up to 512 ranks") {
  if (world_ranks().size() > 1) return;
  property("volume of pools", [] {
    std::int64_t const space = draw(1, 3, "spatial axes");
    Counts const counts = draw_counts(draw_ranks(), space, ChannelCuts::yes);
    MixingCase c;
    Shape const shape = draw_large_shape(counts, space);
    for (std::size_t i = static_cast<std::size_t>(3 - space); i < 3; ++i) {
      draw_window(c, i, shape[space_in_order[i]]);
      Window& w = c.windows[i];
      w.dilation = 1;
      w.low = w.high = smaller(larger(w.low, 0), w.kernel / 2);
      while (w.outputs(shape[space_in_order[i]]) < 1) --w.kernel, w.low = w.high = smaller(w.low, w.kernel / 2);
    }
    Partition const input = draw_partition(shape, counts);
    Windows const windows{{c.windows[0], c.windows[1], c.windows[2]}};
    Tally x, dy;
    Partition out;
    for (std::int64_t rank = 0; rank < counts.product(); ++rank) {
      WindowBinding const binding(static_cast<int>(rank), reaches_of(windows, Border::clipped, shape), false, 0);
      out = binding.output(input);
      x.add(binding.input_plan(input, Placement::around_owned));
      dy.add(binding.error_plan(input, Placement::elsewhere));
    }
    AllNeeds x_needs = owned(out), dy_needs = owned(input);
    for (std::size_t i = 0; i < 3; ++i) {
      AxisId const axis = space_in_order[i];
      for (Cells& cells : along(x_needs, axis)) cells = reads(c.windows[i], cells);
      for (Cells& cells : along(dy_needs, axis)) cells = readers(c.windows[i], cells, out.shape()[axis]);
    }
    x.expect_equal("x", expected(input, x_needs, Padding::zeros).all());
    dy.expect_equal("dy", expected(out, dy_needs, Padding::zeros).all());
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
          } else {  // every block with cells makes parts of all outputs of its samples
            AllNeeds makes = owned(out);
            for (AxisId axis : {AxisId::depth, AxisId::height, AxisId::width, AxisId::channel}) {
              Needs const cells = owned(c.input.blocks(axis));
              for (std::size_t i = 0; i < cells.size(); ++i)
                along(makes, axis)[i] = cells[i].empty() ? Cells{} : range(0, out.shape()[axis]);
            }
            Flow const partial = expected(out, makes, Padding::zeros);
            forward = partial.received_back(at);
            backward = partial.received(at);
            all_forward = all_backward = partial.all().cells;
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
