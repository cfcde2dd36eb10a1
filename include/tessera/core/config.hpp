// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// TESSERA_HD marks the functions that device code may call. It is spelled out, so that no compiler flag is needed.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define TESSERA_HD __host__ __device__
#else
#define TESSERA_HD
#endif

/// Before a loop over the channels of a position: no iteration depends on another, whatever the pointers look like.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define TESSERA_INDEPENDENT
#elif defined(__clang__)
#define TESSERA_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define TESSERA_INDEPENDENT _Pragma("GCC ivdep")
#else
#define TESSERA_INDEPENDENT
#endif
