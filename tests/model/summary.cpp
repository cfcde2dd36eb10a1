// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "networks.hpp"
#include "tessera/model/summary.hpp"

namespace {

using namespace tessera;
using cosmoflow::Spatial;
using cosmoflow::Whole;

Communicator<Mpi> world() { return Communicator<Mpi>::borrow(MPI_COMM_WORLD); }

std::vector<std::string> lines_of(std::string const& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// The table of a small model; its halos and memory can be counted by hand.
char const* const on_one =
    R"(layer      what                           output nxdxhxwxc  this rank's  halo  halo back  parameters    memory
--------------------------------------------------------------------------------------------------------------
           input                          2x8x4x4x2         all                                       5.62 KiB
conv1      conv 3 same, 3 channels, bias  2x8x4x4x3         all                                  165  3.00 KiB
relu1      relu                           2x8x4x4x3         all                                       8.44 KiB
conv2      conv 3 same, 3 channels        2x8x4x4x3         all                                  243
           residual sum                   2x8x4x4x3         all                                       3.00 KiB
avg_pool1  avg_pool 2 stride 2            2x4x2x2x3         all                                          384 B
           redistribute                   2x4x2x2x3         all                                          384 B
           flatten                        2x1x1x1x48        all                                          384 B
dense1     dense, 4 outputs, bias         2x1x1x1x4         all                                  196      32 B
--------------------------------------------------------------------------------------------------------------
           all                                                            0 B        0 B         604  21.2 KiB
0.0002081 GFlop forward, 0.0003333 GFlop backward in all; parameters and gradients 4.72 KiB per rank
)";
char const* const on_two_first =
    R"(layer      what                          output nxdxhxwxc  this rank's   halo  halo back  parameters    memory
--------------------------------------------------------------------------------------------------------------
           input                         2x8x4x4x2         d 0:4                                      3.38 KiB
conv1      conv 3 same, 3 channels, ..   2x8x4x4x3         d 0:4        256 B                    165  1.50 KiB
relu1      relu                          2x8x4x4x3         d 0:4                                      5.06 KiB
conv2      conv 3 same, 3 channels       2x8x4x4x3         d 0:4        384 B      384 B         243
           residual sum                  2x8x4x4x3         d 0:4                                      1.50 KiB
avg_pool1  avg_pool 2 stride 2           2x4x2x2x3         d 0:2                                         192 B
           redistribute                  2x4x2x2x3         n 0:1         96 B       96 B                 192 B
           flatten                       2x1x1x1x48        n 0:1                                         192 B
dense1     dense, 4 outputs, bias        2x1x1x1x4         n 0:1                                 196      16 B
--------------------------------------------------------------------------------------------------------------
           all                                                          736 B      480 B         604  12.0 KiB
0.0002081 GFlop forward, 0.0003333 GFlop backward in all; parameters and gradients 4.72 KiB per rank
)";

/// The second rank has the other half, and the same sizes.
std::string on_two(int rank) {
  std::string text = on_two_first;
  if (rank == 0) return text;
  for (auto const& [first, second] :
       {std::pair<std::string, std::string>{"d 0:4", "d 4:8"}, {"d 0:2", "d 2:4"}, {"n 0:1", "n 1:2"}})
    for (std::size_t at = 0; (at = text.find(first, at)) != std::string::npos;) text.replace(at, first.size(), second);
  return text;
}

}  // namespace

TEST_CASE("summary: sizes and counts as people read them") {
  CHECK(tessera::detail::bytes_text(0) == "0 B");
  CHECK(tessera::detail::bytes_text(999) == "999 B");
  CHECK(tessera::detail::bytes_text(1000) == "0.98 KiB");
  CHECK(tessera::detail::bytes_text(1536) == "1.50 KiB");
  CHECK(tessera::detail::bytes_text(1024.0 * 1023.9) == "1.00 MiB");
  CHECK(tessera::detail::bytes_text(52.7 * (1 << 30)) == "52.7 GiB");
  CHECK(tessera::detail::count_text(0) == "0");
  CHECK(tessera::detail::count_text(999) == "999");
  CHECK(tessera::detail::count_text(1000) == "1,000");
  CHECK(tessera::detail::count_text(9437636) == "9,437,636");
}

TEST_CASE("summary: a small model, line by line") {
  if (world().size() > 2) return;
  bool const two = world().size() == 2;
  RankGrid<Spatial> const ranks(world(), {.depth = world().size()});
  auto const net = sequential<float>(ranks, SampleShape<3>{.channels = 2, .space = {8, 4, 4}},  //
                                     conv3d<3>(3, same), residual(relu(), conv3d<3>(3, same, no_bias)), avg_pool3d<2>(),
                                     redistribute<Whole>(), flatten(), dense(4));
  CHECK(net.capacity() == 0);
  std::string const text = summary(net, 2);
  std::ostringstream out;
  summary(out, net, 2);
  CHECK(out.str() == text);
  std::string const rank = std::to_string(world().rank()), kernels(op::cpu::name(op::cpu::isa()));
  auto const lines = lines_of(text);
  auto const expected = lines_of(two ? on_two(world().rank()) : on_one);
  REQUIRE(lines.size() == expected.size() + 1);
  CHECK(lines[0] ==
        (two ? "batch 2 on 2 ranks, cut depth=2; rank " + rank : "batch 2 on 1 rank, cut sample=1; rank 0") +
            "; 32-bit numbers, " + kernels + " kernels");
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(lines[i + 1] == expected[i]);
}

TEST_CASE("summary: the paper's network on 512-cubes is costed without memory, within 110 columns") {
  int const n = world().size();
  RankGrid<Spatial> const ranks(world(), {.depth = n % 2 == 0 ? n / 2 : n, .width = n % 2 == 0 ? 2 : 1});
  auto const net = cosmoflow::paper_network<float>(ranks, {.channels = 4, .space = {512, 512, 512}}, true);
  std::string const text = summary(net, 8);
  CHECK(net.capacity() == 0);
  for (std::string const& line : lines_of(text)) CHECK(line.size() <= 110);
  CHECK(text.find("9,439,652") != std::string::npos);
  if (world().rank() == 0) std::fputs(text.c_str(), stdout);
}
