// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <ostream>
#include <string>
#include <vector>

#include "tessera/model/model.hpp"
#include "tessera/partition/counts_text.hpp"

#if !defined(__CUDACC__)
#include "tessera/op/cpu/isa.hpp"
#endif

namespace tessera {

namespace detail {

/// Three digits and a unit: "96 B", "1.21 MiB".
inline std::string bytes_text(double bytes) {
  constexpr std::array<char const*, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < units.size(); ++unit) bytes /= 1024.0;
  std::array<char, 32> text{};
  int const digits = unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2;
  std::snprintf(text.data(), text.size(), "%.*f %s", digits, bytes, units[unit]);
  return text.data();
}

/// "9,437,636".
inline std::string count_text(std::int64_t count) {
  std::string const digits = std::to_string(count);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

/// "1x64x64x64x16".
inline std::string extents_text(Shape const& shape) {
  std::string text = std::to_string(shape.sample);
  for (std::int64_t n : {shape.depth, shape.height, shape.width, shape.channel}) text += "x" + std::to_string(n);
  return text;
}

/// What a rank owns along the axes that are cut: "d 0:32 w 16:32"; "all" if none is, "nothing" if the box is empty.
inline std::string box_text(Box const& own, Shape const& shape) {
  if (own.empty()) return "nothing";
  constexpr std::array<char const*, axis_count> letters{"n", "d", "h", "w", "c"};
  std::string text;
  for (std::size_t a = 0; a < letters.size(); ++a) {
    Interval const part = own.axis[a];
    if (part.size() == shape[static_cast<AxisId>(a)]) continue;
    text += (text.empty() ? "" : " ") + std::string(letters[a]) + " " + std::to_string(part.begin) + ":" +
            std::to_string(part.end);
  }
  return text.empty() ? "all" : text;
}

/// What computes on an execution space.
template <class Space>
std::string kernels_text() {
#if !defined(__CUDACC__)
  if constexpr (runs_on_host<Space>) return std::string(op::cpu::name(op::cpu::isa())) + " kernels";
#endif
  return std::string(Space::name()) + " kernels";
}

/// Columns side by side, as wide as their contents; the second one gives way where a line would grow beyond `most`.
class Table {
 public:
  static constexpr std::size_t columns = 8;
  static constexpr std::size_t first_number = 4;  ///< numbers stand at the right of their columns
  using Row = std::array<std::string, columns>;

  void add(Row row) { rows_.push_back(std::move(row)); }
  void rule() { rows_.push_back({}); }

  std::string text(std::size_t most) const {
    std::array<std::size_t, columns> width{};
    std::size_t all = 2 * (columns - 1);
    for (std::size_t c = 0; c < columns; ++c) {
      for (Row const& row : rows_) width[c] = std::max(width[c], row[c].size());
      all += width[c];
    }
    if (all > most) {
      std::size_t const narrow = std::max<std::size_t>(12, width[1] - std::min(width[1], all - most));
      all -= width[1] - std::min(width[1], narrow);
      width[1] = std::min(width[1], narrow);
    }
    std::string out;
    for (Row const& row : rows_) {
      if (row == Row{}) {
        out += std::string(all, '-') + "\n";
        continue;
      }
      std::string line;
      for (std::size_t c = 0; c < columns; ++c) {
        std::string cell = row[c];
        if (cell.size() > width[c]) {  // whole words, as many as there is room for
          std::size_t const space = cell.rfind(' ', width[c] - 3);
          cell = cell.substr(0, space == std::string::npos ? width[c] - 3 : space) + " ..";
        }
        std::string const space(width[c] - cell.size(), ' ');
        line += (c == 0 ? "" : "  ") + (c < first_number ? cell + space : space + cell);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    }
    return out;
  }

 private:
  std::vector<Row> rows_;
};

/// All that does not depend on the element type.
inline std::string summary_text(std::vector<LayerInfo> const& layers, Partition const& input, std::int64_t held_input,
                                int rank, std::int64_t element_bytes, std::string const& kernels) {
  auto const bytes = [&](std::int64_t cells) { return bytes_text(static_cast<double>(cells * element_bytes)); };
  auto const part = [&](Partition const& p) { return box_text(p.owned(rank), p.shape()); };
  Table table;
  table.add({"layer", "what", "output nxdxhxwxc", "this rank's", "halo", "halo back", "parameters", "memory"});
  table.rule();
  table.add({"", "input", extents_text(input.shape()), part(input), "", "", "", bytes(held_input)});
  std::int64_t halo = 0, halo_back = 0, parameters = 0, held = held_input;
  double flops = 0.0, flops_back = 0.0;
  for (LayerInfo const& l : layers) {
    auto const unless_zero = [&](std::int64_t cells) { return cells == 0 ? "" : bytes(cells); };
    table.add({l.name, l.what, extents_text(l.output.shape()), part(l.output), unless_zero(l.halo_cells),
               unless_zero(l.halo_cells_back), l.parameters == 0 ? "" : count_text(l.parameters),
               unless_zero(l.held_cells)});
    halo += l.halo_cells;
    halo_back += l.halo_cells_back;
    parameters += l.parameters;
    held += l.held_cells;
    flops += l.flops;
    flops_back += (l.keeps_data_gradient ? 2 : 1) * l.flops;
  }
  table.rule();
  table.add({"", "all", "", "", bytes(halo), bytes(halo_back), count_text(parameters), bytes(held)});
  std::array<char, 96> work{};
  std::snprintf(work.data(), work.size(), "%.4g GFlop forward, %.4g GFlop backward", flops / 1e9, flops_back / 1e9);
  std::int64_t const ranks = input.grid().size();
  return text("batch ", input.shape().sample, " on ", ranks, ranks == 1 ? " rank" : " ranks", ", cut ",
              to_text(input.grid().counts()), "; rank ", rank, "; ", 8 * element_bytes, "-bit numbers, ", kernels,
              "\n") +
         table.text(110) +
         text(work.data(), " in all; parameters and gradients ", bytes(2 * parameters), " per rank\n");
}

}  // namespace detail

/// A table of a model's layers for a batch: global output shape, the part that this rank owns, bytes that it receives
/// in a forward and a backward pass, parameters, memory of the output on this rank (halo included), and the kernels in
/// use. Needs no memory: the model need not be allocated. Moves: nothing.
template <class T, class Space>
std::string summary(Model<T, Space> const& model, std::int64_t batch) {
  require(batch >= 1, "summary", "the batch must hold at least one sample, not ", batch);
  return detail::summary_text(model.describe(batch), model.input_partition(batch), model.held_input_cells(batch),
                              model.input_ranks().rank(), sizeof(T), detail::kernels_text<Space>());
}

/// The same, written to a stream.
template <class T, class Space>
void summary(std::ostream& out, Model<T, Space> const& model, std::int64_t batch) {
  out << summary(model, batch);
}

}  // namespace tessera
