// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tessera {

/// What every check of the library throws: "who: what must hold; what to do", with the values in it.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {

template <class... Parts>
std::string text(Parts const&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace detail

/// Throws Error(who: parts...) unless `holds`. The parts are only formatted when the check fails.
template <class... Parts>
constexpr void require(bool holds, std::string_view who, Parts const&... parts) {
  if (!holds) throw Error(detail::text(who, ": ", parts...));
}

}  // namespace tessera
