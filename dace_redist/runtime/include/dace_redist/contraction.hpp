// Contractions of tensors in memory. Needs CBLAS, so that redistribute.hpp does without it.
#pragma once

#include "dace_redist/contraction/call.hpp"
