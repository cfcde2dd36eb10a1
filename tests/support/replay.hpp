// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rapidcheck.h>
#include <rapidcheck/detail/Serialization.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/error.hpp"

/// One line that names a test program, its number of ranks, a property and one random case of it:
///
///     layer/conv.4 "conv in double: distributed equals serial" BcgYyzMh...
///
/// In TESSERA_REPLAY it makes the program run that case alone; tests/replay starts it so. The last word holds a hash of
/// the doctest case in which the property is checked, and RapidCheck's own account of the random case.
namespace tessera::test {

/// A case to run again.
struct Replay {
  std::string property;
  std::uint32_t test_case = 0;  ///< its hash
  rc::detail::Reproduce random_case;
};

/// What main knows of this run.
struct Run {
  std::string program = "test.1";  ///< <folder>/<file>.<ranks>
  std::string test_case;           ///< the doctest case under way
  std::optional<Replay> replay;    ///< run nothing else
  std::string verdict;             ///< "passes" or "fails", after a replay
  std::int64_t cases = 0;          ///< random cases on which a property held
};
inline Run& this_run() {
  static Run run;
  return run;
}

/// FNV-1a.
constexpr std::uint32_t hash_of(std::string_view text) {
  std::uint32_t hash = 0x811c9dc5u;
  for (char const c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return hash;
}

namespace detail {

inline constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Six bits a letter, the lowest ones first.
inline std::string as_word(std::vector<std::uint8_t> const& bytes) {
  std::string word;
  unsigned bits = 0;
  int count = 0;
  for (std::uint8_t const byte : bytes) {
    bits |= static_cast<unsigned>(byte) << count;
    for (count += 8; count >= 6; count -= 6, bits >>= 6) word += letters[bits & 63];
  }
  if (count > 0) word += letters[bits & 63];
  return word;
}
inline std::vector<std::uint8_t> from_word(std::string_view word) {
  std::vector<std::uint8_t> bytes;
  unsigned bits = 0;
  int count = 0;
  for (char const c : word) {
    std::size_t const digit = letters.find(c);
    require(digit != std::string_view::npos, "TESSERA_REPLAY", "the last word must be letters, digits, - and _, not '",
            word, "'");
    bits |= static_cast<unsigned>(digit) << count;
    count += 6;
    if (count < 8) continue;
    bytes.push_back(static_cast<std::uint8_t>(bits & 255));
    bits >>= 8;
    count -= 8;
  }
  return bytes;
}

}  // namespace detail

inline std::string replay_line(Replay const& replay) {
  std::vector<std::uint8_t> bytes;
  rc::detail::serialize(replay.test_case, std::back_inserter(bytes));
  serialize(replay.random_case, std::back_inserter(bytes));
  return this_run().program + " \"" + replay.property + "\" " + detail::as_word(bytes);
}

/// Fails: if the line is not one that replay_line made.
inline Replay parse_replay(std::string_view line) {
  std::size_t const open = line.find('"'), close = line.rfind('"');
  require(open != std::string_view::npos && close > open, "TESSERA_REPLAY",
          "must be a line such as layer/conv.4 \"property\" word, it is '", line, "'");
  Replay replay;
  replay.property = line.substr(open + 1, close - open - 1);
  std::string_view word = line.substr(close + 1);
  while (word.starts_with(' ')) word.remove_prefix(1);
  while (word.ends_with(' ')) word.remove_suffix(1);
  auto const bytes = detail::from_word(word);
  try {
    auto const rest = rc::detail::deserialize(bytes.begin(), bytes.end(), replay.test_case);
    deserialize(rest, bytes.end(), replay.random_case);
  } catch (std::exception const&) {
    throw Error(
        tessera::detail::text("TESSERA_REPLAY: the last word must be one that a failure printed, not '", word, "'"));
  }
  return replay;
}

}  // namespace tessera::test
