// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera::io {

namespace detail {

using CrcTables = std::array<std::array<std::uint32_t, 256>, 8>;

/// Entry [k][b]: what a byte b contributes that k more bytes follow.
constexpr CrcTables make_crc_tables() {
  CrcTables all{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t value = b;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ ((value & 1u) != 0 ? 0xedb88320u : 0u);
    all[0][b] = value;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t b = 0; b < 256; ++b) all[k][b] = all[k - 1][b] >> 8 ^ all[0][all[k - 1][b] & 0xff];
  return all;
}
inline constexpr CrcTables crc_tables = make_crc_tables();

}  // namespace detail

/// The checksum that zlib and Python's zlib.crc32 make, of bytes that come in pieces. It tells any change of up to four
/// bytes in a row for certain.
///
/// Source: ISO 3309; eight bytes at a time as in Kounavis and Berry, "A Systematic Approach to Building High
/// Performance Software-based CRC Generators", 2005.
class Crc32 {
 public:
  void add(std::string_view bytes) {
    auto const byte = [&](std::size_t i) { return std::uint32_t{static_cast<unsigned char>(bytes[i])}; };
    std::size_t i = 0;
    for (; i + 8 <= bytes.size(); i += 8) {
      std::uint32_t const low = state_ ^ (byte(i) | byte(i + 1) << 8 | byte(i + 2) << 16 | byte(i + 3) << 24);
      state_ = detail::crc_tables[7][low & 0xff] ^ detail::crc_tables[6][low >> 8 & 0xff] ^
               detail::crc_tables[5][low >> 16 & 0xff] ^ detail::crc_tables[4][low >> 24] ^
               detail::crc_tables[3][byte(i + 4)] ^ detail::crc_tables[2][byte(i + 5)] ^
               detail::crc_tables[1][byte(i + 6)] ^ detail::crc_tables[0][byte(i + 7)];
    }
    for (; i < bytes.size(); ++i) state_ = state_ >> 8 ^ detail::crc_tables[0][(state_ ^ byte(i)) & 0xff];
  }

  std::uint32_t value() const { return ~state_; }

 private:
  std::uint32_t state_ = 0xffffffffu;
};

}  // namespace tessera::io
