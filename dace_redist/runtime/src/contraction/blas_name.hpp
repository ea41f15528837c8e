// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// What a routine of the BLAS in use is called: OpenBLAS from PyPI puts a prefix before every name, and says so by the
/// macro BLAS_SYMBOL_PREFIX.

#define DACE_REDIST_JOIN_NAMES(prefix, name) prefix##name
#define DACE_REDIST_JOIN(prefix, name) DACE_REDIST_JOIN_NAMES(prefix, name)
#if defined(BLAS_SYMBOL_PREFIX)
#define DACE_REDIST_BLAS(name) DACE_REDIST_JOIN(BLAS_SYMBOL_PREFIX, name)
#else
#define DACE_REDIST_BLAS(name) name
#endif
