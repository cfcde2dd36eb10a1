// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tessera/op/cpu/isa.hpp"
#include "tessera/op/cpu/simd.hpp"
#include "tessera/op/workspace.hpp"

namespace tessera::op::cpu {

/// The one product that all directions of a convolution are made of, on a tile that stays in registers:
///
///     y[r][c] (+)= start[c] + sum over k of x[r][i_k] * packed[k][c]
///
/// where i_k runs through the segments, in steps of x_step. Forward and data gradient: rows are positions, k runs
/// through taps and channels, packed are the weights. Filter gradient: rows are (tap, input channel), k runs through
/// positions, packed are the output's gradients. One accumulator per element, in the order of k, always fused under the
/// same instruction set: a result depends neither on its row or column in the tile nor on the tile's size.
template <class T>
struct TileJob {
  T const* const* x = nullptr;  ///< one pointer per row of the tile; dead rows repeat a live one
  Segment const* segments = nullptr;
  std::int64_t segment_count = 0;
  std::int64_t x_step = 1;
  T const* packed = nullptr;     ///< full registers, padded where columns are not
  std::int64_t packed_step = 0;  ///< more than full registers only for rows of two of them
  T const* start = nullptr;      ///< one value per column of the full registers
  T* const* y = nullptr;         ///< one pointer per live row
  int live = 0;                  ///< rows that are stored
  bool neighbours = false;       ///< whether each row reads one element after the row before it
  int columns = 0;               ///< columns that are stored
  bool add = false;              ///< whether y is added to
};

/// The tile as compiled for one instruction set.
template <Isa isa>
struct RegisterTile;

#if defined(__clang__)
#define TESSERA_UNROLL _Pragma("unroll")
#else
#define TESSERA_UNROLL _Pragma("GCC unroll 16")
#endif

#define TESSERA_ISA baseline
#define TESSERA_TARGET TESSERA_TARGET_BASELINE
#include "register_tile.inl"

#if defined(__x86_64__)
#define TESSERA_ISA avx2
#define TESSERA_TARGET TESSERA_TARGET_AVX2
#include "register_tile.inl"

#define TESSERA_ISA avx512
#define TESSERA_TARGET TESSERA_TARGET_AVX512
#include "register_tile.inl"
#endif

#undef TESSERA_UNROLL

inline constexpr int max_tile_rows = 12;
inline constexpr int max_tile_vectors = 2;

/// The tiles of one instruction set: per number of registers in a row, kernels of three heights, the tallest first.
template <class T>
struct TileKernels {
  struct Kernel {
    int rows = 0;
    void (*run)(TileJob<T> const&) = nullptr;
  };
  int lanes = 0;
  Kernel kernels[max_tile_vectors][3];

  /// The tallest tile of `vectors` registers per row.
  int rows(int vectors) const { return kernels[vectors - 1][0].rows; }

  /// The lowest tile that holds `live` rows.
  Kernel const& fitting(int vectors, int live) const {
    Kernel const* const tiles = kernels[vectors - 1];
    return live <= tiles[2].rows ? tiles[2] : live <= tiles[1].rows ? tiles[1] : tiles[0];
  }
};

namespace detail {
template <Isa isa, class T, int rows_1, int rows_2>
constexpr TileKernels<T> tile_kernels() {
  using Tile = RegisterTile<isa>;
  return {Simd<isa, T>::lanes,
          {{{rows_1, &Tile::template run<T, rows_1, 1>},
            {rows_1 * 2 / 3, &Tile::template run<T, rows_1 * 2 / 3, 1>},
            {rows_1 / 3, &Tile::template run<T, rows_1 / 3, 1>}},
           {{rows_2, &Tile::template run<T, rows_2, 2>},
            {rows_2 * 2 / 3, &Tile::template run<T, rows_2 * 2 / 3, 2>},
            {rows_2 / 3, &Tile::template run<T, rows_2 / 3, 2>}}}};
}
}  // namespace detail

/// The tiles for `isa`: as tall as its registers allow (32 under AVX-512, 16 otherwise), with enough independent sums
/// to hide the latency of an addition.
template <class T>
TileKernels<T> tile_kernels(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx512) return detail::tile_kernels<Isa::avx512, T, 12, 12>();
  if (isa == Isa::avx2) return detail::tile_kernels<Isa::avx2, T, 12, 6>();
#endif
  return detail::tile_kernels<Isa::baseline, T, 9, 4>();
}

}  // namespace tessera::op::cpu
