// For programs under AddressSanitizer: memory that MPI itself never frees is no leak of ours. Leaks are looked for only
// with ASAN_OPTIONS=detect_leaks=1:fast_unwind_on_malloc=0, which takes more than twice as long: tables of unwinding
// lead from a C function to who called it; frame pointers, which it has none of, do not.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
/// Leaks with one of these words in their call stack are not reported: MPI, and what it loads.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libmpi\nleak:libopen-\nleak:libpmix\nleak:libprrte\nleak:libhwloc\nleak:libevent\nleak:libucp\n"
         "leak:libucs\nleak:libfabric\nleak:libpciaccess\nleak:mca_\nleak:ld-linux\n";
}

extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }

/// Libraries stay loaded, so that their names stay known when leaks are looked for.
extern "C" int dlclose(void*) { return 0; }
#endif
