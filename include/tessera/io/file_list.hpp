// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "tessera/core/error.hpp"

namespace tessera::io::detail {

/// The names of a folder's files that end in one of the suffixes, sorted; hidden files do not count.
/// Fails: if the folder cannot be read, or has no such file.
inline std::vector<std::string> file_names(std::string const& who, std::string const& folder,
                                           std::vector<std::string> const& suffixes) {
  std::vector<std::string> names;
  std::size_t others = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::string const name = it->path().filename().string();
    bool const wanted = name.front() != '.' && std::any_of(suffixes.begin(), suffixes.end(),
                                                           [&](std::string const& s) { return name.ends_with(s); });
    if (wanted)
      names.push_back(name);
    else
      ++others;
  }
  require(!error, who, "the folder '", folder, "' must be readable (", error.message(), ")");
  std::string wanted;
  for (std::string const& suffix : suffixes) wanted += (wanted.empty() ? "" : " or ") + suffix;
  require(!names.empty(), who, "the folder '", folder, "' must hold files whose names end in ", wanted,
          ", but it holds ",
          others == 0   ? "nothing"
          : others == 1 ? "only another file"
                        : "only other files");
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tessera::io::detail
