// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <string>

#include "predict.hpp"
#include "simulate.hpp"
#include "tessera/comm/environment.hpp"
#include "train.hpp"

int main(int argc, char** argv) {
  tessera::Environment const env{argc, argv};
  return env.guard([&] {
    CLI::App app{"CosmoFlow: from simulated universes to their cosmological parameters, with samples split over ranks"};
    app.require_subcommand(1);
    cosmoflow::SimulateOptions simulate;
    cosmoflow::TrainOptions train;
    cosmoflow::PredictOptions predict;
    CLI::App const* const simulating = cosmoflow::add_simulate(app, simulate);
    CLI::App const* const training = cosmoflow::add_train(app, train);
    cosmoflow::add_predict(app, predict);

    auto const world = env.world();
    try {
      app.parse(argc, argv);
    } catch (CLI::Success const& help) {
      return world.rank() == 0 ? app.exit(help) : 0;
    } catch (CLI::ParseError const& error) {
      throw tessera::Error(std::string("cosmoflow: ") + error.what() + "; run with --help to see what can be given");
    }
    if (simulating->parsed())
      cosmoflow::simulate(simulate, world.native());
    else if (training->parsed())
      cosmoflow::train(train, world);
    else
      cosmoflow::predict(predict, world);
    return 0;
  });
}
