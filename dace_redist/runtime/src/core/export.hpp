// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// What the library shows to others. Needs no MPI, which dace_redist.h does.

#ifndef DR_API
#define DR_API __attribute__((visibility("default")))
#endif
