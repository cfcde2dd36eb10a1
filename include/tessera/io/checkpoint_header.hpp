// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "tessera/core/error.hpp"
#include "tessera/core/version.hpp"
#include "tessera/io/crc32.hpp"
#include "tessera/io/whole_file.hpp"

namespace tessera::io {

/// What the first 512 bytes of a checkpoint say, as text: its format, who wrote it, and its length and checksum, by
/// which damage is found. HDF5 calls such bytes the user block, and passes over them.
struct CheckpointHeader {
  static constexpr std::int64_t size = 512;
  static constexpr std::string_view mark = "tessera checkpoint\n";
  static constexpr int newest = 1;  ///< format

  int format = newest;
  std::string library;
  std::int64_t bytes = 0;   ///< of the whole file
  std::uint32_t crc32 = 0;  ///< of this text with 0 here, and of all that follows

  std::string text() const {
    char sum[16] = {};
    std::snprintf(sum, sizeof sum, "%08x", crc32);
    std::string words = std::string(mark) + "format " + std::to_string(format) + "\nlibrary " + library + "\nbytes " +
                        std::to_string(bytes) + "\ncrc32 " + sum + "\n";
    words.resize(static_cast<std::size_t>(size), '\0');
    return words;
  }
};

namespace detail {

/// The checksum of a header and of the file's bytes behind it.
inline bool checksum(int file, CheckpointHeader header, std::uint32_t& value) {
  Crc32 sum;
  header.crc32 = 0;
  sum.add(header.text());
  std::string piece(1, ' ');
  for (std::int64_t at = CheckpointHeader::size; !piece.empty(); at += static_cast<std::int64_t>(piece.size())) {
    if (!read_at(file, at, std::size_t{1} << 20, piece)) return false;
    sum.add(piece);
  }
  value = sum.value();
  return true;
}

/// The word that follows a name in the header's text.
inline std::string header_word(std::string_view text, std::string_view name) {
  std::size_t const at = text.find("\n" + std::string(name) + " ");
  if (at == std::string_view::npos) return {};
  std::string_view const rest = text.substr(at + name.size() + 2);
  return std::string(rest.substr(0, rest.find('\n')));
}

template <class Number>
bool parse(std::string const& word, Number& value, int base = 10) {
  auto const [end, code] = std::from_chars(word.data(), word.data() + word.size(), value, base);
  return code == std::errc{} && end == word.data() + word.size();
}

}  // namespace detail

/// Gives a file, whose first 512 bytes are free, the header that fits what follows. False, with the reason in errno, if
/// it cannot be read.
inline bool make_header(int file, CheckpointHeader& header) {
  struct stat there {};
  header = {};
  header.library = tessera::detail::text(version.major_number, ".", version.minor_number, ".", version.patch_number);
  if (::fstat(file, &there) != 0) return false;
  header.bytes = there.st_size;
  return detail::checksum(file, header, header.crc32);
}

/// Reads a checkpoint's header, and compares it with the file if `whole`.
/// Fails: if the file is not there, is none of ours, was made by a newer version, was cut short, or any byte of it
/// differs from what was written.
inline CheckpointHeader read_header(std::string const& who, std::string const& path, bool whole) {
  detail::Descriptor const file(path, O_RDONLY);
  struct stat there {};
  bool const open = file.get() >= 0 && ::fstat(file.get(), &there) == 0;
  require(open, who, "the file '", path, "' must be there and readable (", std::strerror(errno), ")");
  require(S_ISREG(there.st_mode), who, "'", path, "' must be a checkpoint, but it is no file");
  std::string text;
  require(detail::read_at(file.get(), 0, static_cast<std::size_t>(CheckpointHeader::size), text), who, "the file '",
          path, "' must be readable (", std::strerror(errno), ")");
  require(!text.empty(), who, "'", path, "' must be a checkpoint, but it is empty");
  std::size_t const shown = std::min(text.size(), CheckpointHeader::mark.size());
  require(text.substr(0, shown) == CheckpointHeader::mark.substr(0, shown), who, "'", path,
          "' must be a checkpoint of Tessera, but it does not begin like one",
          text.starts_with("\x89HDF") ? "; it is another HDF5 file" : "");
  CheckpointHeader header;
  bool const format = detail::parse(detail::header_word(text, "format"), header.format);
  header.library = detail::header_word(text, "library");
  require(!format || header.format <= CheckpointHeader::newest, who, "'", path, "' is of format ", header.format,
          ", written by Tessera ", header.library, ", but this version reads formats up to ", CheckpointHeader::newest,
          "; use the newer one");
  bool const known = format && detail::parse(detail::header_word(text, "bytes"), header.bytes) &&
                     detail::parse(detail::header_word(text, "crc32"), header.crc32, 16) && header.text() == text;
  require(known || there.st_size < CheckpointHeader::size, who, "'", path,
          "' is damaged: its header is not as it was written; take another copy");
  require(known && header.bytes == there.st_size, who, "'", path, "' must have ",
          known ? std::to_string(header.bytes) : "at least " + std::to_string(CheckpointHeader::size),
          " bytes, but it has ", there.st_size, "; it was not written or copied to its end");
  if (!whole) return header;
  std::uint32_t found = 0;
  require(detail::checksum(file.get(), header, found), who, "the file '", path, "' must be readable (",
          std::strerror(errno), ")");
  require(found == header.crc32, who, "'", path,
          "' is damaged: the checksum of its bytes is not what was written; take another copy");
  return header;
}

}  // namespace tessera::io
