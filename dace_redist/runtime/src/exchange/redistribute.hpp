// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// All strategies, and the sum of replicas.

#include "exchange/datatype.hpp"
#include "exchange/hierarchical.hpp"
#include "exchange/pack.hpp"
#include "exchange/pipelined.hpp"
#include "exchange/rma.hpp"
#include "exchange/shared.hpp"
#include "exchange/threaded.hpp"
#include "plan/sum_replicas.hpp"
