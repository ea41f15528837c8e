// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The classes to which the state of a generated program has pointers. The part of a program that runs on a GPU knows
/// its state, too, but calls none of them, and is compiled without MPI.

namespace dace_redist {
namespace program {

class Plan;
class Contraction;
class DeviceContraction;
class LinearSolver;

}  // namespace program
}  // namespace dace_redist
