// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

// Included by register_tile.hpp once per instruction set, with TESSERA_ISA its enumerator and TESSERA_TARGET the target
// attribute, which cannot depend on a template argument.

template <>
struct RegisterTile<Isa::TESSERA_ISA> {
  template <class T>
  using S = Simd<Isa::TESSERA_ISA, T>;

  /// Runs `job` for `rows` rows of `vectors` registers each. The loop is one of three, which differ in how they address
  /// x, not in the order of any sum.
  template <class T, int rows, int vectors>
  [[TESSERA_TARGET, gnu::noinline]] static void run(TileJob<T> const& job) {
    typename S<T>::Vector sum[rows][vectors];
    for (int r = 0; r < job.live; ++r)  // in time for the stores at the end, which are often to cold memory
      TESSERA_UNROLL for (int v = 0; v < vectors; ++v) __builtin_prefetch(job.y[r] + v * S<T>::lanes, 1);
    TESSERA_UNROLL for (int r = 0; r < rows; ++r)
      TESSERA_UNROLL for (int v = 0; v < vectors; ++v) sum[r][v] = S<T>::load(job.start + v * S<T>::lanes);

    if (job.neighbours)
      neighbours<T, rows, vectors>(job, sum);
    else if (vectors == 1 && job.x_step == 1)
      runs<T, rows, vectors>(job, sum);
    else
      scattered<T, rows, vectors>(job, sum);

    bool const whole = job.columns == vectors * S<T>::lanes;
    TESSERA_UNROLL for (int r = 0; r < rows; ++r) {
      if (r >= job.live) continue;
      T* const y = job.y[r];
      if (whole) {
        TESSERA_UNROLL for (int v = 0; v < vectors; ++v) {
          T* const to = y + v * S<T>::lanes;
          S<T>::store(to, job.add ? S<T>::add(S<T>::load(to), sum[r][v]) : sum[r][v]);
        }
      } else {
        T tail[vectors * S<T>::lanes];
        TESSERA_UNROLL for (int v = 0; v < vectors; ++v) S<T>::store(tail + v * S<T>::lanes, sum[r][v]);
        for (int c = 0; c < job.columns; ++c) y[c] = job.add ? y[c] + tail[c] : tail[c];
      }
    }
  }

 private:
  /// Rows that are neighbours in memory: one pointer, which advances by x_step.
  template <class T, int rows, int vectors>
  [[TESSERA_TARGET, gnu::always_inline]] static inline void neighbours(
      TileJob<T> const& job, typename S<T>::Vector (&sum)[rows][vectors]) {
    using Vector = typename S<T>::Vector;
    T const* packed = job.packed;
    Segment const* const end = job.segments + job.segment_count;
    for (Segment const* segment = job.segments; segment != end; ++segment) {
      T const* x = job.x[0] + segment->offset;
      packed += segment->skip * (vectors * S<T>::lanes);
      for (std::int64_t left = segment->length; left > 0; --left, x += job.x_step) {
        Vector factor[vectors];
        TESSERA_UNROLL for (int v = 0; v < vectors; ++v) factor[v] = S<T>::load(packed + v * S<T>::lanes);
        packed += vectors * S<T>::lanes;
        TESSERA_UNROLL for (int r = 0; r < rows; ++r) {
          Vector const value = S<T>::broadcast(x[r]);
          TESSERA_UNROLL for (int v = 0; v < vectors; ++v)
              sum[r][v] = S<T>::multiply_add(value, factor[v], sum[r][v]);
        }
      }
    }
  }

  /// One register per row leaves as many broadcasts as products: each must be an operand of its product, at a constant
  /// distance from a pointer, or the loads take longer than the products. So every row has a pointer that advances.
  template <class T, int rows, int vectors>
  [[TESSERA_TARGET, gnu::always_inline]] static inline void runs(
      TileJob<T> const& job, typename S<T>::Vector (&sum)[rows][vectors]) {
    using Vector = typename S<T>::Vector;
    constexpr int unroll = 4;
    T const* x[rows];
    TESSERA_UNROLL for (int r = 0; r < rows; ++r) x[r] = job.x[r];
    auto const advance = [&](std::int64_t by) {
      TESSERA_UNROLL for (int r = 0; r < rows; ++r) {
        x[r] += by;
        asm("" : "+r"(x[r]));  // else the compiler makes them one index again
      }
    };
    T const* packed = job.packed;
    std::int64_t at = 0;
    Segment const* const end = job.segments + job.segment_count;
    for (Segment const* segment = job.segments; segment != end; ++segment) {
      advance(segment->offset - at);
      packed += segment->skip * (vectors * S<T>::lanes);
      std::int64_t left = segment->length;
      at = segment->offset + left;
      for (; left >= unroll; left -= unroll) {
        TESSERA_UNROLL for (int k = 0; k < unroll; ++k) {
          Vector factor[vectors];
          TESSERA_UNROLL for (int v = 0; v < vectors; ++v)
              factor[v] = S<T>::load(packed + (k * vectors + v) * S<T>::lanes);
          TESSERA_UNROLL for (int r = 0; r < rows; ++r)
            TESSERA_UNROLL for (int v = 0; v < vectors; ++v)
                sum[r][v] = S<T>::multiply_add(S<T>::broadcast(x[r][k]), factor[v], sum[r][v]);
        }
        packed += unroll * vectors * S<T>::lanes;
        advance(unroll);
      }
      for (; left > 0; --left) {
        Vector factor[vectors];
        TESSERA_UNROLL for (int v = 0; v < vectors; ++v) factor[v] = S<T>::load(packed + v * S<T>::lanes);
        packed += vectors * S<T>::lanes;
        TESSERA_UNROLL for (int r = 0; r < rows; ++r)
          TESSERA_UNROLL for (int v = 0; v < vectors; ++v)
              sum[r][v] = S<T>::multiply_add(S<T>::broadcast(*x[r]), factor[v], sum[r][v]);
        advance(1);
      }
    }
  }

  /// Rows anywhere, indexed alike. Two products of a row at a time, where there are registers for that, make up for
  /// pointers that are not in registers.
  template <class T, int rows, int vectors>
  [[TESSERA_TARGET, gnu::always_inline]] static inline void scattered(
      TileJob<T> const& job, typename S<T>::Vector (&sum)[rows][vectors]) {
    constexpr bool pairs = (rows + 2) * vectors + 2 <= S<T>::registers;
    using Vector = typename S<T>::Vector;
    T const* x[rows];
    TESSERA_UNROLL for (int r = 0; r < rows; ++r) x[r] = job.x[r];
    T const* packed = job.packed;
    std::int64_t const x_step = job.x_step, packed_step = job.packed_step;
    Segment const* const end = job.segments + job.segment_count;
    for (Segment const* segment = job.segments; segment != end; ++segment) {
      std::int64_t i = segment->offset, left = segment->length;
      packed += segment->skip * packed_step;
      for (; pairs && left > 1; left -= 2, i += 2 * x_step, packed += 2 * packed_step) {
        std::int64_t const next = i + x_step;
        Vector first[vectors], second[vectors];
        TESSERA_UNROLL for (int v = 0; v < vectors; ++v) {
          first[v] = S<T>::load(packed + v * S<T>::lanes);
          second[v] = S<T>::load(packed + packed_step + v * S<T>::lanes);
        }
        TESSERA_UNROLL for (int r = 0; r < rows; ++r) {
          Vector const one = S<T>::broadcast(x[r][i]), two = S<T>::broadcast(x[r][next]);
          TESSERA_UNROLL for (int v = 0; v < vectors; ++v)
              sum[r][v] = S<T>::multiply_add(two, second[v], S<T>::multiply_add(one, first[v], sum[r][v]));
        }
      }
      for (; left > 0; --left, i += x_step, packed += packed_step) {
        Vector factor[vectors];
        TESSERA_UNROLL for (int v = 0; v < vectors; ++v) factor[v] = S<T>::load(packed + v * S<T>::lanes);
        TESSERA_UNROLL for (int r = 0; r < rows; ++r) {
          Vector const value = S<T>::broadcast(x[r][i]);
          TESSERA_UNROLL for (int v = 0; v < vectors; ++v)
              sum[r][v] = S<T>::multiply_add(value, factor[v], sum[r][v]);
        }
      }
    }
  }
};

#undef TESSERA_ISA
#undef TESSERA_TARGET
