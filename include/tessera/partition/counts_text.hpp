// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include "tessera/core/error.hpp"
#include "tessera/partition/counts.hpp"

namespace tessera {

/// Counts as a user types them: "sample=2,depth=2"; absent axes are whole. The empty text splits nothing.
/// Fails: on an unknown or repeated axis, or a count that is not a whole number of at least 1.
inline Counts parse_counts(std::string_view text) {
  Counts counts;
  if (text.empty()) return counts;
  bool seen[axis_count] = {};
  for (bool more = true; more;) {
    std::size_t const comma = text.find(',');
    std::string_view const item = text.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
    std::size_t const equals = item.find('=');
    std::string_view const word = item.substr(0, equals);
    std::string_view const number = equals == std::string_view::npos ? "" : item.substr(equals + 1);
    bool known = false;
    for (AxisId axis : rank_order) {
      if (word != name(axis)) continue;
      known = true;
      require(!seen[index(axis)], "split", "'", word, "' must be given only once");
      seen[index(axis)] = true;
      std::int64_t value = 0;
      auto const [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
      require(error == std::errc() && end == number.data() + number.size() && value >= 1, "split", "'", item,
              "' must be an axis and a whole number of at least 1, as in depth=2");
      counts[axis] = value;
    }
    require(known, "split", "'", word,
            "' must be one of sample, channel, depth, height, width, as in sample=2,depth=2");
  }
  return counts;
}

/// The counts above 1, as parse_counts reads them; "sample=1" if there are none.
inline std::string to_text(Counts const& counts) {
  std::string text;
  for (AxisId axis : rank_order) {
    if (counts[axis] == 1) continue;
    if (!text.empty()) text += ',';
    text += name(axis);
    text += '=';
    text += std::to_string(counts[axis]);
  }
  return text.empty() ? "sample=1" : text;
}

}  // namespace tessera
