// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/exchange/exchange.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <cstdint>
#include <iostream>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "support/distributed_property.hpp"
#include "support/exchange_case.hpp"
#include "tessera/comm/rank_grid.hpp"

using namespace tessera;
using namespace tessera::axes;
using namespace tessera::test;

namespace {

using Host = Kokkos::DefaultHostExecutionSpace;
using All = Distribution<Sample, Channel, Depth, Height, Width>;

RankGrid<All> world_on_width() {
  auto const world = Communicator<Mpi>::borrow(MPI_COMM_WORLD);
  return {world, Counts{.width = world.size()}};
}

/// What no cell of a case holds: it was there before, or came after.
template <class T>
constexpr T stale = static_cast<T>(-1);
template <class T>
constexpr T overwritten = static_cast<T>(-2);

/// Each cell encodes its index, as well as T can.
template <class T>
T value_of(Shape const& shape, Cell const& g) {
  auto const number = static_cast<std::int64_t>(offset_in(shape.box(), g));
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(number % 113);
  else
    return static_cast<T>(number + 1);
}

/// Small whole numbers, another one for each rank and needed cell.
template <class T>
T weight_of(std::int64_t rank, Cell const& g) {
  std::int64_t const mixed = 31 * rank + 7 * g[0] + 5 * g[1] + 11 * g[2] + 3 * g[3] + 13 * g[4];
  return static_cast<T>(floor_mod(mixed, 7));
}

template <class T>
struct Cells {
  Box box;
  std::vector<T> memory;
  Cells(Box const& over, T value) : box(over), memory(static_cast<std::size_t>(over.volume()), value) {}
  T& operator[](Cell const& g) { return memory[offset_in(box, g)]; }
  Tile<T> tile() { return dense_tile(memory.data(), box); }
};

/// One rank's side of an exchange under way, step by step, and what was wrong with what it brought.
template <class T>
class Flight {
 public:
  Flight(Case const& c, int rank)
      : case_(c),
        rank_(rank),
        plan_(make_plan(c.has, c.needs, rank, c.padding, c.placement)),
        source_({}, T(0)),
        target_({}, T(0)) {}

  void start(Exchange<T, Host>& exchange) {
    bool const in_place = case_.placement == Placement::around_owned;
    Box const held = in_place ? hull(plan_.has, plan_.needs) : plan_.has;
    source_ = Cells<T>(held, stale<T>);
    target_ = Cells<T>(plan_.needs, stale<T>);
    for_each_cell(plan_.has, [&](Cell const& g) { source_[g] = value_of<T>(case_.has.shape(), g); });
    exchange.start(plan_, source_.tile());
    // The tensor is the caller's again: nothing of this may reach anybody.
    for_each_cell(plan_.has, [&](Cell const& g) { source_[g] = overwritten<T>; });
  }

  void finish(Exchange<T, Host>& exchange) {
    bool const in_place = case_.placement == Placement::around_owned;
    Cells<T>& to = in_place ? source_ : target_;
    exchange.finish(to.tile());
    for_each_cell(to.box, [&](Cell const& g) {
      T expected = stale<T>;
      if (plan_.needs.contains(cell_box(g))) expected = supplied(g);
      if (in_place && plan_.has.contains(cell_box(g))) expected = overwritten<T>;
      expect("cell", g, to[g], expected);
      if (travels(rank_, g)) forward_ += static_cast<double>(to[g]) * static_cast<double>(weight_of<T>(rank_, g));
    });
  }

  void start_add(Exchange<T, Host>& exchange) {
    Box const held = case_.placement == Placement::around_owned ? hull(plan_.has, plan_.needs) : plan_.needs;
    target_ = Cells<T>(held, stale<T>);
    for_each_cell(plan_.needs, [&](Cell const& g) { target_[g] = weight_of<T>(rank_, g); });
    exchange.start_add(plan_, target_.tile());
    for (T& cell : target_.memory) cell = overwritten<T>;
  }

  void finish_add(Exchange<T, Host>& exchange) {
    T const before = 3;
    source_ = Cells<T>(plan_.has, before);
    exchange.finish_add(source_.tile());
    Cells<T> expected(plan_.has, before);
    for (std::int64_t rank = 0; rank < case_.ranks(); ++rank)
      for_each_cell(case_.needs.box(rank), [&](Cell const& g) {
        auto const from = source_of(case_, g);
        if (from && plan_.has.contains(cell_box(*from)) && travels(rank, g))
          expected[*from] = static_cast<T>(expected[*from] + weight_of<T>(rank, g));
      });
    for_each_cell(plan_.has, [&](Cell const& g) {
      expect("sum", g, source_[g], expected[g]);
      adjoint_ += static_cast<double>(source_[g] - before) * static_cast<double>(value_of<T>(case_.has.shape(), g));
    });
  }

  double forward() const { return forward_; }  ///< this rank's part of <A x, y>
  double adjoint() const { return adjoint_; }  ///< and of <x, A' y>
  std::string const& wrong() const { return wrong_; }

 private:
  static Box cell_box(Cell const& g) {
    Box box;
    for (std::size_t a = 0; a < axis_count; ++a) box.axis[a] = {g[a], g[a] + 1};
    return box;
  }

  T supplied(Cell const& g) const {
    auto const from = source_of(case_, g);
    return from ? value_of<T>(case_.has.shape(), *from) : T(0);
  }

  /// Whether the plan moves needed cell g of a rank: not if it is there already.
  bool travels(std::int64_t rank, Cell const& g) const {
    if (!case_.needs.box(rank).contains(cell_box(g))) return false;
    return case_.placement == Placement::elsewhere || !case_.has.owned(rank).contains(cell_box(g));
  }

  void expect(char const* what, Cell const& g, T got, T expected) {
    if (got == expected || !wrong_.empty()) return;
    std::ostringstream out;
    out << what << ' ' << cell_box(g) << " is " << +got << " instead of " << +expected << "; ";
    explain(out, plan_);
    wrong_ = out.str();
  }

  Case const& case_;
  int rank_;
  ExchangePlan plan_;
  Cells<T> source_, target_;
  double forward_ = 0, adjoint_ = 0;
  std::string wrong_;
};

/// The order of two exchanges in flight.
struct Order {
  bool crossed = false;  ///< odd ranks start the second one first: messages are told apart by tag, not by order
  bool swapped = false;  ///< the second one is finished first
};

/// Two exchanges in flight at once, forward and backward, each object used for both plans.
template <class T>
void fly(Ranks const& ranks, Case const& first, Case const& second, Order order) {
  Flight<T> a(first, ranks.rank()), b(second, ranks.rank());
  Exchange<T, Host> one(ranks), two(ranks);
  auto const both = [&](auto const& begin_a, auto const& begin_b, auto const& end_a, auto const& end_b) {
    bool const turned = order.crossed && ranks.rank() % 2 == 1;
    if (turned) begin_b();
    begin_a();
    one.request().test();
    if (!turned) begin_b();
    if (order.swapped) end_b();
    end_a();
    two.request().test();
    if (!order.swapped) end_b();
  };
  both([&] { a.start(one); }, [&] { b.start(two); }, [&] { a.finish(one); }, [&] { b.finish(two); });
  both([&] { a.start_add(one); }, [&] { b.start_add(two); }, [&] { a.finish_add(one); }, [&] { b.finish_add(two); });
  double sums[] = {a.forward(), a.adjoint(), b.forward(), b.adjoint()};
  both([&] { a.start_add(two); }, [&] { b.start(one); }, [&] { a.finish_add(two); }, [&] { b.finish(one); });
  ranks.world().all_reduce(sums, 4);
  RC_ASSERT(a.wrong() == std::string());
  RC_ASSERT(b.wrong() == std::string());
  if constexpr (!std::is_integral_v<T>) {  // integers may have wrapped
    RC_ASSERT(sums[0] == sums[1]);
    RC_ASSERT(sums[2] == sums[3]);
  }
}

/// How often the cases had what makes them worth running.
struct Coverage {
  int cases = 0, empty_shard = 0, multi_hop = 0, two_axes = 0, by_user = 0;

  void add(Case const& c) {
    Traits const traits = traits_of(c);
    ++cases;
    empty_shard += traits.empty_shard ? 1 : 0;
    multi_hop += traits.multi_hop ? 1 : 0;
    two_axes += traits.two_axes ? 1 : 0;
    by_user += traits.by_user ? 1 : 0;
  }

  /// Prints the table, and asks for a tenth of the cases wherever the number of ranks allows any.
  void check(Ranks const& ranks, char const* title) const {
    if (ranks.rank() == 0)
      std::cout << "coverage of " << title << " on " << ranks.size() << " ranks: " << cases << " cases, empty shards "
                << empty_shard << ", multi-hop " << multi_hop << ", two or more split axes " << two_axes
                << ", user boundaries " << by_user << std::endl;
    if (cases < 100) return;  // too few to ask for shares
    if (ranks.size() >= 2) CHECK(empty_shard * 10 >= cases);
    if (ranks.size() >= 2) CHECK(by_user * 10 >= cases);
    if (ranks.size() >= 3) CHECK(multi_hop * 10 >= cases);
    if (ranks.size() >= 4 && ranks.size() != 5 && ranks.size() != 7) CHECK(two_axes * 10 >= cases);
  }
};

using Types =
    std::tuple<float, double, std::int16_t, std::uint8_t, std::int8_t, std::uint16_t, std::int32_t, std::int64_t>;

template <std::size_t I = 0>
void fly_as(std::size_t type, Ranks const& ranks, Case const& first, Case const& second, Order order) {
  if constexpr (I < std::tuple_size_v<Types>) {
    if (type == I)
      fly<std::tuple_element_t<I, Types>>(ranks, first, second, order);
    else
      fly_as<I + 1>(type, ranks, first, second, order);
  }
}

}  // namespace

TEST_CASE("an exchange brings what the plan promises, and its adjoint takes it back") {
  auto const ranks = world_on_width();
  Coverage coverage;
  distributed_property(
      "two exchanges in flight",
      [&] {
        Case const first = draw_case(ranks.size()), second = draw_case(ranks.size());
        auto const type = static_cast<std::size_t>(draw(0, std::tuple_size_v<Types>, "type"));
        Order const order{draw(0, 2, "started in different orders") == 1,
                          draw(0, 2, "finished in the other order") == 1};
        coverage.add(first);
        fly_as(type, ranks, first, second, order);
      },
      MPI_COMM_WORLD);
  coverage.check(ranks, "exchanges");
}

TEST_CASE("an exchange is started once and finished once") {
  auto const ranks = world_on_width();
  Partition const partition(ranks.grid(), Shape{.width = 8});
  ExchangePlan const plan = make_plan(partition, Region(partition), ranks.rank());
  Shard<float, Host> const shard(partition, ranks.rank());
  fill(Host(), shard.tile(), shard.owned(), 1.0f);
  Exchange<float, Host> exchange(ranks);
  CHECK_THROWS_WITH_AS(exchange.finish(shard.tile()), "Exchange: finish was called without start", Error);
  exchange.start(plan, shard.tile());
  CHECK_THROWS_WITH_AS(exchange.start(plan, shard.tile()), "Exchange: start was called twice without finish", Error);
  exchange.finish(shard.tile());
}

TEST_CASE("an exchange runs with another plan when the batch changes") {
  auto const ranks = world_on_width();
  Exchange<double, Host> exchange(ranks);
  for (std::int64_t samples : {3, 5, 1}) {
    Partition const has(ranks.grid(), Shape{.sample = samples, .width = 9, .channel = 2});
    Region needs(has);
    needs.map(AxisId::width, [](Interval i) { return i.empty() ? i : Interval{i.begin - 2, i.end + 2}; });
    ExchangePlan const plan = make_plan(has, needs, ranks.rank(), Padding::circular, Placement::around_owned);
    Shard<double, Host> const shard(has, ranks.rank(), plan.needs);
    fill(Host(), shard.tile(), shard.held(), -1.0);
    for_each_cell(plan.has,
                  [&](Cell const& g) { shard(g[0], g[1], g[2], g[3], g[4]) = value_of<double>(has.shape(), g); });
    exchange(plan, shard);
    for_each_cell(plan.needs, [&](Cell const& g) {
      Cell const from{g[0], g[1], g[2], floor_mod(g[3], 9), g[4]};
      CHECK(shard(g[0], g[1], g[2], g[3], g[4]) == value_of<double>(has.shape(), from));
    });
  }
}
