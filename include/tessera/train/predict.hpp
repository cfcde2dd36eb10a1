// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "tessera/comm/environment.hpp"
#include "tessera/io/batch.hpp"
#include "tessera/io/source.hpp"
#include "tessera/model/model.hpp"

namespace tessera {

/// Runs a model in inference mode over all samples of a source, `batch` at a time, and calls
/// use(first sample, number of samples, this rank's Shard of the outputs). Collective.
template <class T, class Space, class Data, class Use>
requires io::AnySource<Data, T>
void for_each_prediction(Model<T, Space> model, Data& data, std::int64_t batch, Use use) {
  require(batch >= 1, "for_each_prediction", "needs a batch of at least 1 sample, not ", batch);
  require(data.size() >= 1, "for_each_prediction", "the source holds no samples");
  std::int64_t const most = std::min(batch, data.size());
  model.allocate(std::max(most, model.capacity()));
  io::BatchReader<T, Space> reader;
  auto const request = [size = data.size(), most, model](std::int64_t first) {
    std::int64_t const n = std::min(most, size - first);
    io::BatchRequest wanted{std::vector<std::int64_t>(static_cast<std::size_t>(n)), std::nullopt,
                            [input = model.input_partition(n)](std::int64_t rank) { return input.owned(rank); },
                            [](std::int64_t) { return Box{}; }};
    std::iota(wanted.samples.begin(), wanted.samples.end(), first);
    return wanted;
  };
  if constexpr (io::BatchSource<Data>)
    data.expect(ceil_div(data.size(), std::max(most, std::int64_t{1})),
                [request, most](std::int64_t k) { return request(k * most); });
  for (std::int64_t first = 0; first < data.size(); first += most) {
    std::int64_t const n = std::min(most, data.size() - first);
    io::check_input("for_each_prediction", data, model.input(n).shape());
    Shard<T, Space> const& input = model.input(n);
    if constexpr (io::BatchSource<Data>) {
      data.fetch(request(first));
      reader.take(data, io::Part::input, input, input.owned());
    } else {
      agreed(model.input_ranks().world(), [&] {
        reader.read(data, io::Part::input, input, input.owned(), [first](std::int64_t i) { return first + i; });
      });
    }
    model.forward(n, Pass{.mode = Mode::inference});
    use(first, n, model.output(n));
  }
}

/// The outputs of all samples, (sample, depth, height, width, channel) in row-major order, on every rank. For outputs
/// that are small; the whole of it is summed over the ranks.
template <class T, class Space, class Data>
requires io::AnySource<Data, T> std::vector<T> predict(Model<T, Space> model, Data& data, std::int64_t batch) {
  Shape const one = model.output_partition(1).shape();
  Shape const all = one.with_samples(data.size());
  std::vector<T> outputs(static_cast<std::size_t>(all.volume()), T(0));
  std::vector<T> staged;
  for_each_prediction(model, data, batch, [&](std::int64_t first, std::int64_t, Shard<T, Space> const& y) {
    Box const own = y.owned();
    if (own.empty()) return;
    Storage<T, Space> dense(own.volume());
    copy<T, T>(Space(), y.tile(), dense_tile(dense.data(), own), own);
    Space().fence("tessera::predict");
    staged.resize(static_cast<std::size_t>(own.volume()));
    copy_flat<Kokkos::DefaultHostExecutionSpace, Space>(staged.data(), static_cast<T const*>(dense.data()),
                                                        own.volume());
    Box to = own;
    to.axis[0] = shifted(own.axis[0], first);
    Kokkos::DefaultHostExecutionSpace const host;
    copy<T, T>(host, dense_tile<T const>(staged.data(), to), dense_tile(outputs.data(), all.box()), to);
  });
  model.output_ranks().world().all_reduce(outputs.data(), static_cast<std::int64_t>(outputs.size()));
  return outputs;
}

}  // namespace tessera
