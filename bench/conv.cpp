// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The host convolutions beside oneDNN's (where it is installed), in its own best memory formats and without counting
// reorders. Without arguments: pairs of runs, one of each in turn, and a table of their medians. With Google
// Benchmark's arguments (--benchmark_filter=...): its own report. --threads <n> sets the threads of both, --pairs <n>
// the pairs.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#if defined(TESSERA_BENCH_ONEDNN)
#include <dnnl.hpp>
#endif

#include "tessera/op/conv.hpp"

namespace {

using namespace tessera;
using Space = Kokkos::DefaultHostExecutionSpace;

struct Layer {
  std::int64_t in_channels, out_channels, extent;
  std::string name() const {
    return std::to_string(in_channels) + "->" + std::to_string(out_channels) + " " + std::to_string(extent) + "^3";
  }
  double flops() const { return 2.0 * 27 * static_cast<double>(in_channels * out_channels * extent * extent * extent); }
};

/// Kernels 3 x 3 x 3, stride 1, same padding, one sample: the layers of a network from its input down.
constexpr Layer layers[] = {{4, 16, 64}, {16, 32, 64}, {32, 64, 32}, {64, 128, 16}, {128, 256, 8}};

enum class Pass { forward, backward_data, backward_filter };
constexpr Pass passes[] = {Pass::forward, Pass::backward_data, Pass::backward_filter};

char const* name(Pass pass) {
  switch (pass) {
    case Pass::forward: return "forward";
    case Pass::backward_data: return "backward data";
    case Pass::backward_filter: break;
  }
  return "backward filter";
}

std::vector<float> random_values(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::minstd_rand random(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (float& value : values) value = uniform(random);
  return values;
}

/// One pass of a layer, ready to run. Tensors lie in padded memory, as a layer holds them.
std::function<void()> ours(Layer const& layer, Pass pass) {
  struct Data {
    op::ConvGeometry geometry;
    Box box, held;
    std::vector<float> small, large, small_dy, weights, bias, dw, db;
    op::Workspace<float> workspace;
    Space space;
  };
  auto const data = std::make_shared<Data>();
  for (Window& window : data->geometry.windows.axis) window = {3, 1, 1, 1, 1};
  data->geometry.in_channels = layer.in_channels;
  data->geometry.out_channels = layer.out_channels;
  std::int64_t const n = layer.extent;
  std::fill_n(data->geometry.extent, 3, n);
  data->box = {{{0, 1}, {0, n}, {0, n}, {0, n}, {0, 1}}};
  data->held = {{{0, 1}, {-1, n + 1}, {-1, n + 1}, {-1, n + 1}, {0, 1}}};
  auto const with_channels = [](Box box, std::int64_t channels) {
    box[AxisId::channel] = {0, channels};
    return box;
  };
  Box const in = with_channels(data->box, layer.in_channels), in_held = with_channels(data->held, layer.in_channels);
  Box const out = with_channels(data->box, layer.out_channels),
            out_held = with_channels(data->held, layer.out_channels);
  data->weights = random_values(data->geometry.weights());
  data->bias = random_values(layer.out_channels);
  switch (pass) {
    case Pass::forward:
      data->large = random_values(in_held.volume());
      data->small = random_values(out.volume());
      return [=] {
        op::conv_forward(data->space, data->geometry, dense_tile<float const>(data->large.data(), in_held),
                         data->weights.data(), data->bias.data(), dense_tile(data->small.data(), out), out,
                         data->workspace);
      };
    case Pass::backward_data:
      data->large = random_values(out_held.volume());
      data->small = random_values(in.volume());
      return [=] {
        op::conv_backward_data(data->space, data->geometry, dense_tile<float const>(data->large.data(), out_held),
                               data->weights.data(), dense_tile(data->small.data(), in), in, Accumulate::write,
                               data->workspace);
      };
    case Pass::backward_filter: break;
  }
  data->large = random_values(in_held.volume());
  data->small = random_values(out.volume());
  return [=] {
    op::conv_backward_filter(data->space, data->geometry, dense_tile<float const>(data->large.data(), in_held),
                             dense_tile<float const>(data->small.data(), out), out, data->weights.data(),
                             data->bias.data(), data->workspace);
  };
}

#if defined(TESSERA_BENCH_ONEDNN)

constexpr bool has_onednn = true;

std::function<void()> onednn(Layer const& layer, Pass pass) {
  using namespace dnnl;
  using Dims = memory::dims;
  engine const device(engine::kind::cpu, 0);
  stream queue(device);
  auto const any = [](Dims const& dims) { return memory::desc(dims, memory::data_type::f32, memory::format_tag::any); };
  memory::dim const n = layer.extent;
  auto const src = any({1, layer.in_channels, n, n, n}), dst = any({1, layer.out_channels, n, n, n});
  auto const weights = any({layer.out_channels, layer.in_channels, 3, 3, 3});
  memory::desc const bias({layer.out_channels}, memory::data_type::f32, memory::format_tag::x);
  Dims const ones{1, 1, 1};
  convolution_forward::primitive_desc const forward(
      {prop_kind::forward_training, algorithm::convolution_direct, src, weights, bias, dst, ones, ones, ones}, device);
  auto const filled = [&](memory::desc const& desc) {
    memory memory(desc, device);
    auto const values = random_values(static_cast<std::int64_t>(desc.get_size() / sizeof(float)));
    std::memcpy(memory.get_data_handle(), values.data(), desc.get_size());
    return memory;
  };
  primitive run;
  std::unordered_map<int, memory> arguments;
  switch (pass) {
    case Pass::forward:
      run = convolution_forward(forward);
      arguments = {{DNNL_ARG_SRC, filled(forward.src_desc())},
                   {DNNL_ARG_WEIGHTS, filled(forward.weights_desc())},
                   {DNNL_ARG_BIAS, filled(forward.bias_desc())},
                   {DNNL_ARG_DST, filled(forward.dst_desc())}};
      break;
    case Pass::backward_data: {
      convolution_backward_data::primitive_desc const desc(
          {algorithm::convolution_direct, src, weights, dst, ones, ones, ones}, device, forward);
      run = convolution_backward_data(desc);
      arguments = {{DNNL_ARG_DIFF_DST, filled(desc.diff_dst_desc())},
                   {DNNL_ARG_WEIGHTS, filled(desc.weights_desc())},
                   {DNNL_ARG_DIFF_SRC, filled(desc.diff_src_desc())}};
      break;
    }
    case Pass::backward_filter: {
      convolution_backward_weights::primitive_desc const desc(
          {algorithm::convolution_direct, src, weights, bias, dst, ones, ones, ones}, device, forward);
      run = convolution_backward_weights(desc);
      arguments = {{DNNL_ARG_SRC, filled(desc.src_desc())},
                   {DNNL_ARG_DIFF_DST, filled(desc.diff_dst_desc())},
                   {DNNL_ARG_DIFF_WEIGHTS, filled(desc.diff_weights_desc())},
                   {DNNL_ARG_DIFF_BIAS, filled(desc.diff_bias_desc())}};
      break;
    }
  }
  return [=]() mutable {
    run.execute(queue, arguments);
    queue.wait();
  };
}

#else

constexpr bool has_onednn = false;

std::function<void()> onednn(Layer const&, Pass) {
  return [] {};
}

#endif

/// With one thread, the time that the thread ran, so that a busy machine disturbs less; with several, the time that
/// passed.
double now(int threads) {
  timespec time{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds(std::function<void()> const& run, int threads, int times = 1) {
  double const begin = now(threads);
  for (int i = 0; i < times; ++i) run();
  return (now(threads) - begin) / times;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// What one core reaches when every operand is in the first cache, in GFLOP/s: the ceiling of the kernels.
double peak() {
  auto const kernels = op::cpu::tile_kernels<float>(op::cpu::isa());
  auto const& kernel = kernels.kernels[1][0];
  std::vector<float> values(256, 0.5F), sums(1024);
  float const* x[op::cpu::max_tile_rows];
  float* y[op::cpu::max_tile_rows];
  for (int r = 0; r < kernel.rows; ++r) {
    x[r] = values.data() + r;
    y[r] = sums.data() + r * 2 * kernels.lanes;
  }
  op::Segment const segment{0, 20'000};
  op::cpu::TileJob<float> job;
  job.x = x;
  job.y = y;
  job.segments = &segment;
  job.segment_count = 1;
  job.x_step = 0;
  job.packed = values.data();
  job.start = values.data();
  job.live = kernel.rows;
  job.columns = 2 * kernels.lanes;
  double best = 1e9;
  for (int i = 0; i < 200; ++i) best = std::min(best, seconds([&] { kernel.run(job); }, 1));
  return 2e-9 * static_cast<double>(segment.length) * kernel.rows * job.columns / best;
}

bool trains(Layer const& layer, Pass pass) { return pass != Pass::backward_data || &layer != &layers[0]; }

void compare(int threads, int pairs) {
  double const ceiling = peak() * threads;
  std::printf("float, %d thread%s, %s, fused multiply-adds from the first cache: %.0f GFLOP/s\n", threads,
              threads == 1 ? "" : "s", name(op::cpu::isa()).data(), ceiling);
  std::printf("%-14s %-16s %9s %9s %7s %7s\n", "layer", "pass", "tessera", "oneDNN", "ratio", "peak");
  double least = 1e9;
  for (Layer const& layer : layers)
    for (Pass const pass : passes) {
      if (!trains(layer, pass)) continue;
      auto const mine = ours(layer, pass), theirs = onednn(layer, pass);
      mine();
      theirs();
      int const times = std::max(1, static_cast<int>(0.02 / seconds(mine, threads)));
      std::vector<double> my_times, their_times;
      for (int i = 0; i < pairs; ++i) {
        my_times.push_back(seconds(mine, threads, times));
        their_times.push_back(seconds(theirs, threads, times));
      }
      double const my_rate = 1e-9 * layer.flops() / median(my_times);
      double const their_rate = 1e-9 * layer.flops() / median(their_times);
      std::printf("%-14s %-16s %9.1f", layer.name().c_str(), name(pass), my_rate);
      if (has_onednn) {
        least = std::min(least, my_rate / their_rate);
        std::printf(" %9.1f %7.2f", their_rate, my_rate / their_rate);
      } else {
        std::printf(" %9s %7s", "-", "-");
      }
      std::printf(" %6.0f%%\n", 100 * my_rate / ceiling);
      std::fflush(stdout);
    }
  if (has_onednn)
    std::printf("bench_conv: min_ratio=%.2f\n", least);
  else
    std::printf("bench_conv: min_ratio=none\n");
}

void report(int& argc, char** argv) {
  for (Layer const& layer : layers)
    for (Pass const pass : passes) {
      if (!trains(layer, pass)) continue;
      for (bool const own : {true, false}) {
        if (!own && !has_onednn) continue;
        std::string const title = std::string(own ? "tessera" : "oneDNN") + "/" + name(pass) + "/" + layer.name();
        benchmark::RegisterBenchmark(title.c_str(), [=](benchmark::State& state) {
          auto const run = own ? ours(layer, pass) : onednn(layer, pass);
          for (auto _ : state) run();
          state.counters["FLOP/s"] = benchmark::Counter(layer.flops(), benchmark::Counter::kIsIterationInvariantRate);
        })->UseRealTime();
      }
    }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 1, pairs = 15;
  bool google = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--threads") == 0 && i + 1 < argc) threads = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--pairs") == 0 && i + 1 < argc) pairs = std::atoi(argv[i + 1]);
    google = google || std::strncmp(argv[i], "--benchmark", 11) == 0;
  }
  setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 1);
  Kokkos::ScopeGuard const kokkos(Kokkos::InitializationSettings().set_num_threads(threads).set_disable_warnings(true));
  if (google)
    report(argc, argv);
  else
    compare(threads, pairs);
}
