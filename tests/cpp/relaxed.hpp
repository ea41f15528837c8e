// Included ahead of sources of the runtime: their release stores, or acquire loads, become relaxed ones.
#include <atomic>
#include <memory>
#include <mutex>

#ifdef RELAXED_RELEASE
#define memory_order_release memory_order_relaxed
#else
#define memory_order_acquire memory_order_relaxed
#endif
