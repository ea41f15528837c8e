// All strategies, and the sum of replicas.
#pragma once

#include "dace_redist/exchange/datatype.hpp"
#include "dace_redist/exchange/hierarchical.hpp"
#include "dace_redist/exchange/pack.hpp"
#include "dace_redist/exchange/pipelined.hpp"
#include "dace_redist/exchange/rma.hpp"
#include "dace_redist/exchange/shared.hpp"
#include "dace_redist/exchange/threaded.hpp"
#include "dace_redist/sum_replicas.hpp"
