// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// TESSERA_HD marks the functions that device code may call. It is spelled out, so that no compiler flag is needed.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define TESSERA_HD __host__ __device__
#else
#define TESSERA_HD
#endif
