// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "tessera/core/error.hpp"

namespace tessera::op::cpu {

/// The instruction sets that the host kernels are written for, weakest first. They are template arguments of the
/// kernels, so that one program holds them all whatever flags it is compiled with; which one runs is decided at run
/// time.
enum class Isa : int { baseline = 0, avx2 = 1, avx512 = 2 };

#if defined(__x86_64__)
inline constexpr std::string_view baseline_name = "sse2";
#else
inline constexpr std::string_view baseline_name = "baseline";
#endif

constexpr std::string_view name(Isa isa) {
  switch (isa) {
    case Isa::avx512: return "avx512";
    case Isa::avx2: return "avx2";
    case Isa::baseline: break;
  }
  return baseline_name;
}

/// Whether this machine runs `isa`.
inline bool has(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx512) return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma");
  if (isa == Isa::avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return isa == Isa::baseline;
}

/// The strongest instruction set of this machine.
inline Isa best_isa() { return has(Isa::avx512) ? Isa::avx512 : has(Isa::avx2) ? Isa::avx2 : Isa::baseline; }

/// The instruction set that a TESSERA_ISA value asks for; null or empty leaves the choice to the machine.
/// Fails: the value is none of avx512, avx2, sse2; or the machine lacks it.
inline Isa requested_isa(char const* value) {
  std::string_view const wanted = value == nullptr ? "" : value;
  if (wanted.empty()) return best_isa();
  for (Isa const isa : {Isa::baseline, Isa::avx2, Isa::avx512})
    if (wanted == name(isa)) {
      require(has(isa), "TESSERA_ISA", "this machine must have the instruction set, but it has no ", wanted,
              "; unset TESSERA_ISA, which takes the best one, here ", name(best_isa()));
      return isa;
    }
  throw Error(tessera::detail::text("TESSERA_ISA: the value must be avx512, avx2 or ", baseline_name, ", but it is '",
                                    wanted, "'; unset it to take the best one, here ", name(best_isa())));
}

namespace detail {
inline std::atomic<Isa>& selected_isa() {
  static std::atomic<Isa> selected{requested_isa(std::getenv("TESSERA_ISA"))};
  return selected;
}
}  // namespace detail

/// The instruction set in use: the machine's best, or what the environment variable TESSERA_ISA names.
inline Isa isa() { return detail::selected_isa().load(std::memory_order_relaxed); }

/// Makes the host kernels use `isa` from now on, in all threads. Meant for tests and benches.
/// Fails: the machine lacks it.
inline void force_isa(Isa isa) {
  require(has(isa), "force_isa", "this machine must have the instruction set, but it has no ", name(isa),
          "; the best is ", name(best_isa()));
  detail::selected_isa().store(isa, std::memory_order_relaxed);
}

}  // namespace tessera::op::cpu
