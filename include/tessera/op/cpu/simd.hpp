// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "tessera/op/cpu/isa.hpp"

// What a kernel written for one instruction set is compiled for, whatever flags the program has. The baseline switches
// the stronger sets off, so that -march=native does not fuse its products and sums.
#if defined(__x86_64__)
#define TESSERA_TARGET_AVX512 gnu::target("avx512f,fma")
#define TESSERA_TARGET_AVX2 gnu::target("avx2,fma")
#define TESSERA_TARGET_BASELINE gnu::target("sse2,no-avx")
#else
#define TESSERA_TARGET_BASELINE gnu::nothrow
#endif

namespace tessera::op::cpu {

/// A full register of T and the few operations that the kernels need. `multiply_add(a, b, c)` is a * b + c: one fused
/// instruction by intrinsics under AVX2 and AVX-512 (-ffp-contract plays no part), two roundings under the baseline.
template <Isa isa, class T>
struct Simd;

template <class T>
struct Simd<Isa::baseline, T> {
  typedef T Vector __attribute__((vector_size(16)));
  typedef T Unaligned __attribute__((vector_size(16), aligned(alignof(T)), may_alias));
  static constexpr int lanes = 16 / sizeof(T);
  static constexpr int registers = 16;

  [[TESSERA_TARGET_BASELINE, gnu::always_inline]] static inline Vector load(T const* from) {
    return *reinterpret_cast<Unaligned const*>(from);
  }
  [[TESSERA_TARGET_BASELINE, gnu::always_inline]] static inline void store(T* to, Vector value) {
    *reinterpret_cast<Unaligned*>(to) = value;
  }
  [[TESSERA_TARGET_BASELINE, gnu::always_inline]] static inline Vector broadcast(T value) { return value - Vector{}; }
  [[TESSERA_TARGET_BASELINE, gnu::always_inline]] static inline Vector add(Vector a, Vector b) { return a + b; }
  [[TESSERA_TARGET_BASELINE, gnu::always_inline]] static inline Vector multiply_add(Vector a, Vector b, Vector c) {
    return a * b + c;
  }
  /// Exchanges rows and columns of a square of `lanes` registers.
  [[TESSERA_TARGET_BASELINE, gnu::always_inline]] static inline void transpose(Vector (&square)[lanes]) {
    if constexpr (lanes == 4) {
      Vector const a = __builtin_shufflevector(square[0], square[1], 0, 4, 1, 5);
      Vector const b = __builtin_shufflevector(square[0], square[1], 2, 6, 3, 7);
      Vector const c = __builtin_shufflevector(square[2], square[3], 0, 4, 1, 5);
      Vector const d = __builtin_shufflevector(square[2], square[3], 2, 6, 3, 7);
      square[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
      square[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
      square[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
      square[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
    } else {
      Vector const a = __builtin_shufflevector(square[0], square[1], 0, 2);
      square[1] = __builtin_shufflevector(square[0], square[1], 1, 3);
      square[0] = a;
    }
  }
};

#if defined(__x86_64__)

template <>
struct Simd<Isa::avx2, float> {
  using Vector = __m256;
  static constexpr int lanes = 8;
  static constexpr int registers = 16;

  [[TESSERA_TARGET_AVX2, gnu::always_inline]] static inline Vector load(float const* from) {
    return _mm256_loadu_ps(from);
  }
  [[TESSERA_TARGET_AVX2, gnu::always_inline]] static inline void store(float* to, Vector value) {
    _mm256_storeu_ps(to, value);
  }
  [[TESSERA_TARGET_AVX2, gnu::always_inline]] static inline Vector broadcast(float value) {
    return _mm256_set1_ps(value);
  }
  [[TESSERA_TARGET_AVX2, gnu::always_inline]] static inline Vector add(Vector a, Vector b) {
    return _mm256_add_ps(a, b);
  }
  [[TESSERA_TARGET_AVX2, gnu::always_inline]] static inline Vector multiply_add(Vector a, Vector b, Vector c) {
    return _mm256_fmadd_ps(a, b, c);
  }
};

template <>
struct Simd<Isa::avx2, double> {
  using Vector = __m256d;
  static constexpr int lanes = 4;
  static constexpr int registers = 16;

  [[TESSERA_TARGET_AVX2, gnu::always_inline]] static inline Vector load(double const* from) {
    return _mm256_loadu_pd(from);
  }
  [[TESSERA_TARGET_AVX2, gnu::always_inline]] static inline void store(double* to, Vector value) {
    _mm256_storeu_pd(to, value);
  }
  [[TESSERA_TARGET_AVX2, gnu::always_inline]] static inline Vector broadcast(double value) {
    return _mm256_set1_pd(value);
  }
  [[TESSERA_TARGET_AVX2, gnu::always_inline]] static inline Vector add(Vector a, Vector b) {
    return _mm256_add_pd(a, b);
  }
  [[TESSERA_TARGET_AVX2, gnu::always_inline]] static inline Vector multiply_add(Vector a, Vector b, Vector c) {
    return _mm256_fmadd_pd(a, b, c);
  }
};

template <>
struct Simd<Isa::avx512, float> {
  using Vector = __m512;
  static constexpr int lanes = 16;
  static constexpr int registers = 32;

  [[TESSERA_TARGET_AVX512, gnu::always_inline]] static inline Vector load(float const* from) {
    return _mm512_loadu_ps(from);
  }
  [[TESSERA_TARGET_AVX512, gnu::always_inline]] static inline void store(float* to, Vector value) {
    _mm512_storeu_ps(to, value);
  }
  [[TESSERA_TARGET_AVX512, gnu::always_inline]] static inline Vector broadcast(float value) {
    return _mm512_set1_ps(value);
  }
  [[TESSERA_TARGET_AVX512, gnu::always_inline]] static inline Vector add(Vector a, Vector b) {
    return _mm512_add_ps(a, b);
  }
  [[TESSERA_TARGET_AVX512, gnu::always_inline]] static inline Vector multiply_add(Vector a, Vector b, Vector c) {
    return _mm512_fmadd_ps(a, b, c);
  }
};

template <>
struct Simd<Isa::avx512, double> {
  using Vector = __m512d;
  static constexpr int lanes = 8;
  static constexpr int registers = 32;

  [[TESSERA_TARGET_AVX512, gnu::always_inline]] static inline Vector load(double const* from) {
    return _mm512_loadu_pd(from);
  }
  [[TESSERA_TARGET_AVX512, gnu::always_inline]] static inline void store(double* to, Vector value) {
    _mm512_storeu_pd(to, value);
  }
  [[TESSERA_TARGET_AVX512, gnu::always_inline]] static inline Vector broadcast(double value) {
    return _mm512_set1_pd(value);
  }
  [[TESSERA_TARGET_AVX512, gnu::always_inline]] static inline Vector add(Vector a, Vector b) {
    return _mm512_add_pd(a, b);
  }
  [[TESSERA_TARGET_AVX512, gnu::always_inline]] static inline Vector multiply_add(Vector a, Vector b, Vector c) {
    return _mm512_fmadd_pd(a, b, c);
  }
};

#endif

}  // namespace tessera::op::cpu
