// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/comm/environment.hpp"
#include "tessera/core/error.hpp"
#include "tessera/op/target_check.hpp"
#include "tessera/train/loss_pass.hpp"

namespace tessera::detail {

/// Throws on every rank if a target breaks the rule on any, with the first such value of the lowest rank and where it
/// is. Collective: one number is reduced over all ranks.
template <class T, class Space, class Rule>
void check_targets(LossPass<T, Space> const& pass, Rule const& rule, std::string const& must, std::string const& hint) {
  using Host = Kokkos::DefaultHostExecutionSpace;
  std::string failure;
  Box const& box = pass.targets;
  if (pass.memory.sums.over(pass.space, box, 1, op::CountBroken<T, Rule>{rule, pass.target})[0] > 0) {
    Storage<T, Space> dense(box.volume());
    copy<T, T>(pass.space, pass.target, dense_tile(dense.data(), box), box);
    pass.space.fence("tessera::check_targets");
    std::vector<T> cells(static_cast<std::size_t>(box.volume()));
    copy_flat<Host, Space, T>(cells.data(), dense.data(), box.volume());
    std::size_t first = 0;
    while (rule.holds(static_cast<double>(cells[first]))) ++first;
    std::int64_t at[axis_count], rest = static_cast<std::int64_t>(first);
    for (int a = axis_count - 1; a >= 0; --a) {
      at[a] = box.axis[a].begin + rest % box.axis[a].size();
      rest /= box.axis[a].size();
    }
    failure = text(must, ", but at (", at[0] + pass.first_sample, ", ", at[1], ", ", at[2], ", ", at[3], ", ", at[4],
                   ") of the batch the target is ", cells[first], hint);
  }
  agree(pass.ranks.world(), failure);
}

}  // namespace tessera::detail
