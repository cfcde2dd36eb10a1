// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0

#include <tessera/comm/environment.hpp>
#include <tessera/io/hdf5.hpp>

#include <hdf5.h>

#include <string>
#include <vector>

namespace {

void put(hid_t file, char const* name, std::vector<hsize_t> const& extents, std::vector<float> const& values) {
  hid_t const space = H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr);
  hid_t const set = H5Dcreate2(file, name, H5T_STD_I16LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  H5Dclose(set);
  H5Sclose(space);
}

}  // namespace

int main(int argc, char** argv) {
  tessera::Environment const env{argc, argv};
  return env.guard([&] {
    // Each rank reads the second of two samples from a file of its own.
    auto const rank = env.world().rank();
    auto const path = "samples" + std::to_string(rank) + ".h5";
    hid_t const file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    put(file, "x", {2, 1, 1, 2, 1}, {1, 2, 3, 4});
    put(file, "y", {2, 1}, {5, 6});
    H5Fclose(file);

    tessera::io::Hdf5Source source(path);
    std::vector<float> cells(2);
    source.read_input(1, source.input_shape().box(), cells.data());
    bool const good = source.size() == 2 && cells == std::vector<float>{3, 4} && source.bytes_read() == 4;
    env.out() << "consumer: HDF5 gives " << cells[0] << " and " << cells[1] << '\n';
    return good ? 0 : 1;
  });
}
