// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A training run that fails as its arguments say; throws.py runs it and judges how the job ends.
//   throws places                    prints the kinds of places, one a line
//   throws <rank> <kind> <nth>       that rank throws when it comes to a place of that kind for the nth time, from 1
//   throws none                      nothing fails

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/environment.hpp"
#include "tessera/io/source.hpp"
#include "tessera/layer/activation.hpp"
#include "tessera/layer/conv.hpp"
#include "tessera/layer/dense.hpp"
#include "tessera/layer/flatten.hpp"
#include "tessera/layer/pool.hpp"
#include "tessera/layer/redistribute.hpp"
#include "tessera/model/model.hpp"
#include "tessera/model/residual.hpp"
#include "tessera/train/trainer.hpp"

namespace {

using namespace tessera::axes;
using Spatial = tessera::Distribution<Sample, Depth>;
using Whole = tessera::Distribution<Sample>;

/// Every rank comes to each of these at least three times.
constexpr char const* kinds[] = {
    "read_input", "read_target",   "forward conv",   "forward residual",  "forward moved", "forward flat",
    "loss",       "backward flat", "backward moved", "backward residual", "backward conv", "gradient",
    "schedule",   "update",        "on_step",        "on_epoch",          "validation"};

struct Failure {
  std::string kind;
  int nth = 0;
  int passed = 0;
};
Failure failure;  // empty on the ranks that go on

void at_a_place(std::string const& kind) {
  if (kind == failure.kind && ++failure.passed == failure.nth)
    throw tessera::Error("throws: '" + kind + "' must not be reached; this is meant");
}

/// Passes its input on, and comes to places named after where it stands.
struct Probe {
  static constexpr bool pointwise = true;
  std::string where;

  tessera::Windows windows(tessera::Shape const&) const { return {}; }
  template <class T, class Space>
  void forward(tessera::ForwardPass<T, Space> const& p) const {
    at_a_place("forward " + where);
    tessera::copy<T, T>(p.space, p.x, p.y, p.box);
  }
  template <class T, class Space>
  void backward(tessera::BackwardPass<T, Space> const& p) const {
    at_a_place("backward " + where);
    if (p.accumulate == tessera::Accumulate::add)
      tessera::add<T>(p.space, p.dy, p.dx, p.box);
    else
      tessera::copy<T, T>(p.space, p.dy, p.dx, p.box);
  }
};

/// A scale that does nothing but own a parameter.
struct GradientProbe : Probe {
  std::vector<tessera::ParameterSpec> parameters(tessera::Shape const&) const {
    return {{"unused", {1}, {0}, tessera::Initial::value(1.0)}};
  }
  template <class T, class Space>
  void backward_parameters(tessera::ParameterPass<T, Space> const&) const {
    at_a_place("gradient");
  }
};

struct Loss : tessera::MeanSquaredError {
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) const {
    at_a_place("loss");
    return tessera::MeanSquaredError::operator()(std::forward<Arguments>(arguments)...);
  }
};

struct Method : tessera::Sgd {
  template <class T, class Space, class... More>
  void update(Space const& space, tessera::Parameter<T, Space> const& p, More const&... more) const {
    at_a_place("update");
    tessera::Sgd::update<T, Space>(space, p, more...);
  }
};

struct Data : tessera::io::MemorySource<float> {
  std::string input_kind, target_kind;

  Data(std::string input, std::string target)
      : MemorySource({1, 4, 3, 3, 2}, std::vector<float>(6 * 72, 0.5f), {1, 1, 1, 1, 1}, std::vector<float>(6, 1.0f)),
        input_kind(std::move(input)),
        target_kind(std::move(target)) {}
  void read_input(std::int64_t sample, tessera::Box const& box, float* cells) const {
    at_a_place(input_kind);
    MemorySource::read_input(sample, box, cells);
  }
  void read_target(std::int64_t sample, tessera::Box const& box, float* cells) const {
    at_a_place(target_kind);
    MemorySource::read_target(sample, box, cells);
  }
};

void train(tessera::Communicator<tessera::Mpi> const& world) {
  using namespace tessera;
  RankGrid<Spatial> const ranks(world, {.sample = 2, .depth = 2});
  auto const net = sequential<float>(ranks, SampleShape<3>{.channels = 2, .space = {4, 3, 3}},             //
                                     conv3d<3>(3, same), Probe{"conv"},                                    //
                                     residual(conv3d<3>(3, same), Probe{"residual"}, conv3d<3>(3, same)),  //
                                     GradientProbe{{"scale"}}, redistribute<Whole>(), Probe{"moved"},      //
                                     flatten(), Probe{"flat"}, dense(1));
  Trainer trainer{net, Method{{.rate = 1e-3}}, Loss{}};
  Data data("read_input", "read_target"), validation("validation", "validation target");
  FitOptions options{.epochs = 3, .batch = 6};
  options.schedule = [](std::int64_t) {
    at_a_place("schedule");
    return 1.0;
  };
  options.on_step = [](StepReport const&) { at_a_place("on_step"); };
  options.on_epoch = [](EpochReport const&) { at_a_place("on_epoch"); };
  trainer.fit(data, validation, options);
}

}  // namespace

int main(int argc, char** argv) {
  std::string const first = argc > 1 ? argv[1] : "none";
  if (first == "places") {
    for (char const* kind : kinds) std::puts(kind);
    return 0;
  }
  tessera::Environment const env(argc, argv);
  if (argc > 3 && std::atoi(argv[1]) == env.world().rank()) failure = {argv[2], std::atoi(argv[3])};
  train(env.world());
  env.world().barrier();
  return 0;
}
