// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include "tessera/op/conv.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <type_traits>
#include <vector>

#include "support/host_tensor.hpp"
#include "support/oracle/conv.hpp"
#include "support/property.hpp"

namespace {

using namespace tessera;
using test::HostTensor;
using test::property;
namespace oracle = test::oracle;
using op::cpu::Isa;
using Host = Kokkos::DefaultHostExecutionSpace;

/// A number from the whole range from the first case on, however small RapidCheck would begin.
std::int64_t draw(char const* name, std::int64_t least, std::int64_t most) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(least, most + 1)).as(name);
}

/// Restores the instruction set when a test ends, however it ends.
struct IsaGuard {
  Isa before = op::cpu::isa();
  ~IsaGuard() { op::cpu::force_isa(before); }
};

std::vector<Isa> isas() {
  std::vector<Isa> all;
  for (Isa const isa : {Isa::baseline, Isa::avx2, Isa::avx512})
    if (op::cpu::has(isa)) all.push_back(isa);
  return all;
}

/// One random convolution and the boxes that it is computed in.
struct Case {
  oracle::Conv conv;
  op::ConvGeometry geometry;
  Shape in, out;
  Box in_part, out_part;
  bool bias = false;
  Accumulate accumulate = Accumulate::write;
  std::uint64_t seed = 0;
};

Box draw_part(Box const& whole) {
  Box part;
  for (int a = 0; a < axis_count; ++a) {
    part.axis[a].begin = draw("part begin", whole.axis[a].begin, whole.axis[a].end - 1);
    part.axis[a].end = draw("part end", part.axis[a].begin + 1, whole.axis[a].end);
  }
  return part;
}

Case draw_case() {
  Case c;
  std::int64_t const rank = draw("rank", 1, 3);
  std::int64_t extent[3] = {1, 1, 1}, outputs[3] = {1, 1, 1};
  for (std::int64_t a = 3 - rank; a < 3; ++a) {
    Window& window = c.conv.window[a];
    extent[a] = draw("extent", 1, 12);
    window.kernel = draw("kernel", 1, 5);
    window.stride = draw("stride", 1, 4);
    window.dilation = draw("dilation", 1, 3);
    window.low = draw("low", -3, 5);
    window.high = larger(draw("high", -3, 5), window.span() - extent[a] - window.low);  // so that the kernel fits
    outputs[a] = window.outputs(extent[a]);
  }
  std::int64_t channels_in = draw("in channels", 1, 40), channels_out = draw("out channels", 1, 40);
  std::int64_t const samples = draw("samples", 1, 2);
  auto const work = [&] {
    return samples * outputs[0] * outputs[1] * outputs[2] * c.conv.window[0].kernel * c.conv.window[1].kernel *
           c.conv.window[2].kernel * channels_in * channels_out;
  };
  while (work() > 300'000 && channels_in * channels_out > 1)
    (channels_in > channels_out ? channels_in : channels_out) -= 1;
  c.conv.in_channels = channels_in;
  c.conv.out_channels = channels_out;
  c.geometry = {{{c.conv.window[0], c.conv.window[1], c.conv.window[2]}}, channels_in, channels_out, {}};
  if (*rc::gen::arbitrary<bool>().as("zeros beyond the border may be left out"))
    std::copy_n(extent, 3, c.geometry.extent);
  c.in = {samples, extent[0], extent[1], extent[2], channels_in};
  c.out = c.conv.output(c.in);
  c.in_part = draw_part(c.in.box());
  c.out_part = draw_part(c.out.box());
  c.bias = *rc::gen::arbitrary<bool>().as("bias");
  c.accumulate = *rc::gen::element(Accumulate::write, Accumulate::add).as("accumulate");
  c.seed = static_cast<std::uint64_t>(draw("seed", 0, 1'000'000));
  return c;
}

/// The box that a kernel may read along the spatial axes, with all channels.
Box required(Case const& c, Box out) {
  for (AxisId const a : spatial_axes) out[a] = c.geometry.windows[a].required(out[a]);
  out[AxisId::channel] = {0, c.in.channel};
  return out;
}

Box touched(Case const& c, Box in) {
  for (AxisId const a : spatial_axes) in[a] = c.geometry.windows[a].touch(in[a]);
  in[AxisId::channel] = {0, c.out.channel};
  return in;
}

/// A box of cells in memory with gaps between rows, planes and channels that hold NaN: whoever reads one shows it, and
/// whoever writes one is found out.
template <class T>
class Held {
 public:
  Held(Box const& box, std::int64_t gap) : box_(box) {
    tile.stride[3] = box.axis[4].size() + gap;
    for (int a = 2; a >= 0; --a) tile.stride[a] = tile.stride[a + 1] * box.axis[a + 1].size() + gap;
    for (int a = 0; a < axis_count; ++a) tile.origin[a] = box.axis[a].begin;
    memory_.assign(static_cast<std::size_t>(tile.stride[0] * box.axis[0].size() + 2 * gap),
                   std::numeric_limits<T>::quiet_NaN());
    tile.data = memory_.data() + gap;
  }
  Held(Held const&) = delete;
  Held& operator=(Held const&) = delete;

  /// Copies the cells of a whole tensor, zero outside it.
  void fill(HostTensor const& from) {
    for_each_cell(box_, [&](auto n, auto d, auto h, auto w, auto c) {
      tile(n, d, h, w, c) = static_cast<T>(from.padded(n, d, h, w, c));
    });
  }

  /// Whether every cell of `within` is a number and everything else in memory is still NaN.
  bool only(Box const& within) const {
    std::int64_t numbers = 0, inside = 0;
    for (T const value : memory_) numbers += std::isnan(value) ? 0 : 1;
    for_each_cell(within,
                  [&](auto n, auto d, auto h, auto w, auto c) { inside += std::isnan(tile(n, d, h, w, c)) ? 0 : 1; });
    return numbers == inside && inside == within.volume();
  }

  template <class Visit>
  static void for_each_cell(Box const& box, Visit visit) {
    for (auto n = box.axis[0].begin; n < box.axis[0].end; ++n)
      for (auto d = box.axis[1].begin; d < box.axis[1].end; ++d)
        for (auto h = box.axis[2].begin; h < box.axis[2].end; ++h)
          for (auto w = box.axis[3].begin; w < box.axis[3].end; ++w)
            for (auto c = box.axis[4].begin; c < box.axis[4].end; ++c) visit(n, d, h, w, c);
  }

  Tile<T> tile;

 private:
  Box box_;
  std::vector<T> memory_;
};

template <class T>
bool same_bits(Box const& box, Tile<T> const& a, Tile<T> const& b) {
  bool same = true;
  Held<T>::for_each_cell(box, [&](auto n, auto d, auto h, auto w, auto c) {
    same = same && std::memcmp(&a(n, d, h, w, c), &b(n, d, h, w, c), sizeof(T)) == 0;
  });
  return same;
}

/// The bound on the difference between two ways to sum n terms whose magnitudes add up to `magnitude`: each is off by
/// at most gamma_n = n u / (1 - n u), whatever its order (Higham, Accuracy and Stability, 3.1).
template <class T>
double bound(std::int64_t terms, double magnitude) {
  double const nu = static_cast<double>(terms) * std::numeric_limits<T>::epsilon() / 2;
  return 2 * nu / (1 - nu) * magnitude;
}

template <class T>
void require_close(double got, double exact, std::int64_t terms, double magnitude) {
  double const error = std::abs(got - exact), allowed = bound<T>(terms, magnitude);
  if (!(error <= allowed)) RC_FAIL("error " + std::to_string(error / allowed) + " times the bound");
}

/// The random values of a case, exact in T, so that the oracle computes on the same numbers.
template <class T>
struct Values {
  HostTensor x, dy, dx_before;
  std::vector<double> weights, bias, dw_before, db_before;

  explicit Values(Case const& c) : x(c.in), dy(c.out), dx_before(c.in) {
    weights.resize(c.conv.weights());
    dw_before.resize(c.conv.weights());
    bias.resize(static_cast<std::size_t>(c.out.channel));
    db_before.resize(bias.size());
    std::mt19937_64 random(c.seed);
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (auto* values : {&x.values, &dy.values, &dx_before.values, &weights, &bias, &dw_before, &db_before})
      for (double& value : *values) value = static_cast<double>(static_cast<T>(uniform(random)));
  }

  static std::vector<T> rounded(std::vector<double> const& values) {
    std::vector<T> all(values.size());
    std::transform(values.begin(), values.end(), all.begin(), [](double value) { return static_cast<T>(value); });
    return all;
  }
};

/// The three passes as functions, by the kernels of type Kernels.
template <class T, class Kernels>
struct Passes {
  Host space;
  op::Workspace<T> workspace;
  op::NoPoll poll;

  void forward(Case const& c, Values<T> const& values, Box const& out, Held<T>& y, std::int64_t gap) {
    Held<T> x(required(c, out), gap);
    x.fill(values.x);
    auto const weights = values.rounded(values.weights), bias = values.rounded(values.bias);
    op::conv_forward<Host, T, op::NoPoll, Kernels>(space, c.geometry, x.tile, weights.data(),
                                                   c.bias ? bias.data() : nullptr, y.tile, out, workspace, poll);
  }

  void backward_data(Case const& c, Values<T> const& values, Box const& in, Held<T>& dx, std::int64_t gap) {
    Held<T> dy(touched(c, in), gap);
    dy.fill(values.dy);
    auto const weights = values.rounded(values.weights);
    op::conv_backward_data<Host, T, op::NoPoll, Kernels>(space, c.geometry, dy.tile, weights.data(), dx.tile, in,
                                                         c.accumulate, workspace, poll);
  }

  void backward_filter(Case const& c, Values<T> const& values, Box const& out, std::vector<T>& dw, T* db,
                       std::int64_t gap) {
    Held<T> x(required(c, out), gap), dy(out, gap);
    x.fill(values.x);
    dy.fill(values.dy);
    op::conv_backward_filter<Host, T, op::NoPoll, Kernels>(space, c.geometry, x.tile, dy.tile, out, dw.data(), db,
                                                           workspace, poll);
  }
};

template <class T, class Kernels>
void check_forward(Case const& c, Values<T> const& values, Passes<T, Kernels>& passes) {
  std::vector<double> const no_bias;
  auto const& bias = c.bias ? values.bias : no_bias;
  HostTensor const exact = oracle::conv_forward(c.conv, values.x, values.weights, bias);
  HostTensor const size = oracle::conv_forward(c.conv, values.x, values.weights, bias, true);
  std::int64_t const terms = c.geometry.windows.taps() * c.in.channel + 1;
  Held<T> whole(c.out.box(), 3), part(c.out.box(), 0);
  passes.forward(c, values, c.out.box(), whole, 5);
  passes.forward(c, values, c.out_part, part, 0);
  RC_ASSERT(whole.only(c.out.box()));
  RC_ASSERT(part.only(c.out_part));
  RC_ASSERT(same_bits(c.out_part, whole.tile, part.tile));
  Held<T>::for_each_cell(c.out.box(), [&](auto n, auto d, auto h, auto w, auto co) {
    require_close<T>(static_cast<double>(whole.tile(n, d, h, w, co)), exact.at(n, d, h, w, co), terms,
                     size.at(n, d, h, w, co));
  });
}

template <class T, class Kernels>
void check_backward_data(Case const& c, Values<T> const& values, Passes<T, Kernels>& passes) {
  bool const add = c.accumulate == Accumulate::add;
  HostTensor const exact = oracle::conv_backward_data(c.conv, c.in, values.weights, values.dy);
  HostTensor const size = oracle::conv_backward_data(c.conv, c.in, values.weights, values.dy, true);
  std::int64_t const terms = c.geometry.windows.taps() * c.out.channel + 1;
  Held<T> whole(c.in.box(), 3), part(c.in_part, 1);
  if (add) {
    whole.fill(values.dx_before);
    part.fill(values.dx_before);
  }
  passes.backward_data(c, values, c.in.box(), whole, 5);
  passes.backward_data(c, values, c.in_part, part, 0);
  RC_ASSERT(whole.only(c.in.box()));
  RC_ASSERT(part.only(c.in_part));
  RC_ASSERT(same_bits(c.in_part, whole.tile, part.tile));
  Held<T>::for_each_cell(c.in.box(), [&](auto n, auto d, auto h, auto w, auto ci) {
    double const before = add ? values.dx_before.at(n, d, h, w, ci) : 0;
    require_close<T>(static_cast<double>(whole.tile(n, d, h, w, ci)), before + exact.at(n, d, h, w, ci), terms,
                     std::abs(before) + size.at(n, d, h, w, ci));
  });
}

/// The part's gradient is that of the whole with dy zero elsewhere; all input channels of its output channels.
template <class T, class Kernels>
void check_backward_filter(Case const& c, Values<T> const& values, Passes<T, Kernels>& passes) {
  for (Box const& box : {c.out.box(), c.out_part}) {
    HostTensor dy(c.out);
    Held<T>::for_each_cell(
        box, [&](auto n, auto d, auto h, auto w, auto co) { dy.at(n, d, h, w, co) = values.dy.at(n, d, h, w, co); });
    auto const exact = oracle::conv_backward_filter(c.conv, values.x, dy);
    auto const size = oracle::conv_backward_filter(c.conv, values.x, dy, true);
    auto const exact_bias = oracle::conv_backward_bias(dy), bias_size = oracle::conv_backward_bias(dy, true);
    auto dw = values.rounded(values.dw_before), db = values.rounded(values.db_before);
    passes.backward_filter(c, values, box, dw, c.bias ? db.data() : nullptr, 2);
    std::int64_t const terms = box.volume() / box.axis[4].size() + 1;
    for (std::size_t i = 0; i < dw.size(); ++i)
      require_close<T>(static_cast<double>(dw[i]), values.dw_before[i] + exact[i], terms,
                       std::abs(values.dw_before[i]) + size[i]);
    for (std::size_t i = 0; i < db.size(); ++i)
      require_close<T>(static_cast<double>(db[i]), values.db_before[i] + (c.bias ? exact_bias[i] : 0), terms,
                       std::abs(values.db_before[i]) + bias_size[i]);
  }
}

template <class T, class Kernels>
void check_all(Case const& c, Passes<T, Kernels>& passes) {
  Values<T> const values(c);
  check_forward(c, values, passes);
  check_backward_data(c, values, passes);
  check_backward_filter(c, values, passes);
}

template <class T>
std::string const precision = sizeof(T) == 4 ? " in float" : " in double";

TEST_CASE_TEMPLATE("the host kernels of every instruction set are the convolution and its gradients", T, float,
                   double) {
  IsaGuard const guard;
  for (Isa const isa : isas()) {
    op::cpu::force_isa(isa);
    Passes<T, op::cpu::ConvKernels> passes;
    property(std::string(name(isa)) + precision<T>, [&] { check_all(draw_case(), passes); });
  }
}

TEST_CASE_TEMPLATE("the generic kernels are the convolution and its gradients", T, float, double) {
  Passes<T, op::generic::ConvKernels> passes;
  property("generic" + precision<T>, [&] { check_all(draw_case(), passes); });
}

/// A case large enough that work is shared between workers, with several blocks of channels and parts of positions.
Case large_case() {
  Case c;
  for (Window& window : c.conv.window) window = {3, 1, 1, 1, 1};
  c.conv.in_channels = 5;
  c.conv.out_channels = 70;
  c.geometry = {{{c.conv.window[0], c.conv.window[1], c.conv.window[2]}}, 5, 70, {}};
  c.in = {1, 12, 20, 24, 5};
  c.geometry.extent[0] = 12;
  c.geometry.extent[1] = 20;
  c.out = c.conv.output(c.in);
  c.bias = true;
  return c;
}

TEST_CASE_TEMPLATE("any number of threads gives the same bits", T, float, double) {
  Case const c = large_case();
  Values<T> const values(c);
  Box const out = c.out.box(), in = c.in.box();
  auto const weights = values.rounded(values.weights), bias = values.rounded(values.bias);
  Held<T> x(required(c, out), 0), dy(touched(c, in), 0);
  x.fill(values.x);
  dy.fill(values.dy);
  std::int64_t polls = 0;
  auto const poll = [&] { ++polls; };
  auto const launch = [](std::int64_t count, op::cpu::Tasks::Worker worker) {
    std::vector<std::thread> threads;
    for (std::int64_t i = 0; i < count; ++i) threads.emplace_back([=] { worker(i); });
    for (std::thread& thread : threads) thread.join();
  };
  auto const kernels = op::cpu::tile_kernels<T>(op::cpu::isa());

  auto const run = [&](std::int64_t workers, Held<T>& y, Held<T>& dx, std::vector<T>& dw, std::vector<T>& db) {
    op::Workspace<T> workspace;
    op::cpu::Tasks const tasks(workers, launch, poll);
    Tile<T const> const x_read = x.tile, dy_read = dy.tile;
    op::cpu::host_conv_forward(kernels, c.geometry, x_read, weights.data(), bias.data(), y.tile, out, Accumulate::write,
                               workspace, tasks);
    op::cpu::host_conv_backward_data(kernels, c.geometry, dy_read, weights.data(), dx.tile, in, Accumulate::write,
                                     workspace, tasks);
    op::cpu::host_conv_backward_filter(kernels, c.geometry, x_read, dy_read, out, dw.data(), db.data(), workspace,
                                       tasks);
  };
  Held<T> y(out, 0), dx(in, 0);
  auto dw = values.rounded(values.dw_before), db = values.rounded(values.db_before);
  run(1, y, dx, dw, db);
  CHECK(polls > 20);
  for (std::int64_t const workers : {2, 5}) {
    Held<T> other_y(out, 0), other_dx(in, 0);
    auto other_dw = values.rounded(values.dw_before), other_db = values.rounded(values.db_before);
    run(workers, other_y, other_dx, other_dw, other_db);
    CHECK(same_bits(out, y.tile, other_y.tile));
    CHECK(same_bits(in, dx.tile, other_dx.tile));
    CHECK(dw == other_dw);
    CHECK(db == other_db);
  }
}

TEST_CASE("a case of several parts, blocks and tasks is the convolution and its gradients") {
  Case c = large_case();
  c.out_part = {{{0, 1}, {3, 7}, {0, 20}, {5, 6}, {10, 60}}};
  c.in_part = {{{0, 1}, {0, 12}, {19, 20}, {2, 24}, {1, 5}}};
  Passes<float, op::cpu::ConvKernels> passes;
  CHECK(test::counterexample([&] { check_all(c, passes); }, {.cases = 1}) == "");
}

TEST_CASE("a thin box in the large case has the bits of the whole") {
  Case c = large_case();
  Values<float> const values(c);
  Passes<float, op::cpu::ConvKernels> passes;
  Held<float> y(c.out.box(), 0), dx(c.in.box(), 0);
  passes.forward(c, values, c.out.box(), y, 0);
  passes.backward_data(c, values, c.in.box(), dx, 0);
  for (int a = 1; a <= 3; ++a) {
    c.out_part = c.out.box();
    c.out_part.axis[a].begin = c.out_part.axis[a].end - 1;
    c.in_part = c.in.box();
    c.in_part.axis[a].end = 2;
    Held<float> thin_y(c.out_part, 0), thin_dx(c.in_part, 0);
    passes.forward(c, values, c.out_part, thin_y, 0);
    passes.backward_data(c, values, c.in_part, thin_dx, 0);
    CHECK(same_bits(c.out_part, y.tile, thin_y.tile));
    CHECK(same_bits(c.in_part, dx.tile, thin_dx.tile));
  }
}

TEST_CASE("empty boxes touch nothing") {
  Host const space;
  op::Workspace<float> workspace;
  op::ConvGeometry const geometry;
  Tile<float> const nowhere;
  op::conv_forward(space, geometry, nowhere, nullptr, nullptr, nowhere, Box{}, workspace);
  op::conv_backward_data(space, geometry, nowhere, nullptr, nowhere, Box{}, Accumulate::write, workspace);
  op::conv_backward_filter(space, geometry, nowhere, nowhere, Box{}, nullptr, nullptr, workspace);
  CHECK(workspace.bytes() == 0);
}

TEST_CASE("the workspace grows once and is aligned") {
  op::Workspace<double> workspace;
  double* const first = workspace.values(100);
  CHECK(reinterpret_cast<std::uintptr_t>(first) % 64 == 0);
  CHECK(workspace.values(10) == first);
  CHECK(workspace.values(100) == first);
  CHECK(workspace.bytes() == 800);
  CHECK(reinterpret_cast<std::uintptr_t>(workspace.values(1000)) % 64 == 0);
}

TEST_CASE("the environment may ask for an instruction set") {
  CHECK(op::cpu::requested_isa(nullptr) == op::cpu::best_isa());
  CHECK(op::cpu::requested_isa("") == op::cpu::best_isa());
  CHECK(op::cpu::requested_isa(name(Isa::baseline).data()) == Isa::baseline);
  CHECK_THROWS_WITH_AS(op::cpu::requested_isa("mmx"),
                       doctest::Contains("TESSERA_ISA: the value must be avx512, avx2 or"), Error);
  for (Isa const isa : {Isa::avx2, Isa::avx512}) {
    if (op::cpu::has(isa)) {
      CHECK(op::cpu::requested_isa(name(isa).data()) == isa);
    } else {
      CHECK_THROWS_WITH_AS(op::cpu::requested_isa(name(isa).data()),
                           doctest::Contains("this machine must have the instruction set"), Error);
      CHECK_THROWS_WITH_AS(op::cpu::force_isa(isa), doctest::Contains("force_isa: this machine must have"), Error);
    }
  }
}

}  // namespace
