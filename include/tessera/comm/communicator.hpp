// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tessera {

enum class Reduce { sum, min, max };

/// The ranks that exchange data, over one transport. Each transport specialises both templates with the same function
/// names in a file of its own (comm/mpi.hpp); exchanges and layers mention none of them.
template <class Transport>
class Communicator;

/// Non-blocking operations under way on a Communicator of the same transport.
template <class Transport>
class Request;

}  // namespace tessera
