// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <hdf5.h>

#include <tessera/comm/environment.hpp>

int main(int argc, char** argv) {
  tessera::Environment env(argc, argv);
  env.out() << "my_program: " << env.world().size() << " ranks\n";
  return H5open() >= 0 ? 0 : 1;
}
