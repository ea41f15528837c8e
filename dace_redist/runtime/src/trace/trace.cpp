// SPDX-License-Identifier: BSD-3-Clause
#include "trace/trace.hpp"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "core/mpi.hpp"

namespace dace_redist::trace {
namespace {

/// The moment when this library was loaded, by both clocks.
const auto loaded = std::chrono::system_clock::now();
const Clock::time_point loaded_steady = Clock::now();

/// Nanoseconds since 1970.
std::int64_t nanoseconds(Clock::time_point time) {
  return std::chrono::nanoseconds(loaded.time_since_epoch() + (time - loaded_steady)).count();
}

std::string quoted(const std::string& words) {
  std::string quote = "\"";
  for (const char c : words) {
    if (c == '"' || c == '\\') quote += '\\';
    quote += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return quote + '"';
}

/// Name of the library or program that this file is linked into: each of them writes a file of its own.
std::string library_name() {
  Dl_info info{};
  if (dladdr(&loaded, &info) == 0 || !info.dli_fname) return "program";
  const std::string path = info.dli_fname, name = path.substr(path.rfind('/') + 1);
  return name.substr(0, name.find('.'));
}

/// The events of this process that are not written yet. An event that continues an equal one makes that one longer:
/// waiting is polling, and messages are copied in pieces.
///
/// The file has a JSON object per line: first the rank, then the events. If the process is killed while it writes, the
/// last line is incomplete.
class Recorder {
 public:
  Recorder() {
    int initialized = 0, finalized = 0, ranks = 1;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (initialized && !finalized) {
      MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
      MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    }
    mkdir(folder, 0777);  // if this fails, so does opening the file
    file_ = std::fopen(text(folder, "/rank-", rank_, ".", library_name(), ".jsonl").c_str(), "we");
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    write(text("{\"trace\": \"dace_redist\", \"rank\": ", rank_, ", \"ranks\": ", ranks, ", \"host\": ", quoted(host),
               ", \"loaded\": ", nanoseconds(loaded_steady), "}\n"));
  }
  ~Recorder() {
    if (file_) flush();
  }

  void add(const Event& event) {
    static std::atomic<int> threads{0};
    thread_local const int thread = threads++;
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!file_ || continues_last(event, thread)) return;
    if (events_.size() >= max_stored) flush();
    events_.push_back({event, event.label ? event.label : "", event.strategy ? event.strategy : "", thread});
  }

 private:
  /// An event with copies of its texts, and its thread.
  struct StoredEvent {
    Event event;
    std::string label, strategy;
    int thread = 0;
  };

  static constexpr std::size_t max_stored = std::size_t{1} << 16;
  static constexpr std::chrono::microseconds max_gap{20};  // between an event and its continuation

  bool continues_last(const Event& event, int thread) {
    if (events_.empty() || event.label) return false;
    Event& last = events_.back().event;
    if (events_.back().thread != thread || last.label || last.kind != event.kind || last.peer != event.peer ||
        event.start - last.end > max_gap)
      return false;
    last.end = event.end;
    last.nbytes += event.nbytes;
    return true;
  }

  void flush() {
    std::string lines;
    for (const auto& [event, label, strategy, thread] : events_)
      lines +=
          text("{\"kind\": ", quoted(event.kind), ", \"label\": ", quoted(label), ", \"strategy\": ", quoted(strategy),
               ", \"peer\": ", event.peer, ", \"bytes\": ", event.nbytes, ", \"thread\": ", thread,
               ", \"start\": ", nanoseconds(event.start), ", \"end\": ", nanoseconds(event.end), "}\n");
    events_.clear();
    write(lines);
  }

  /// Writes lines, unless this process is a fork of the one that opened the file. On failure, reports it on standard
  /// error and records nothing more.
  void write(const std::string& lines) {
    if (getpid() != process_) return;
    if (file_ && std::fwrite(lines.data(), 1, lines.size(), file_) == lines.size() && std::fflush(file_) == 0) return;
    std::fprintf(stderr, "dace-redist: no trace of rank %d: cannot write to folder \"%s\" (DACE_REDIST_TRACE): %s\n",
                 rank_, folder, std::strerror(errno));
    file_ = nullptr;
  }

  const pid_t process_ = getpid();
  std::mutex mutex_;
  std::vector<StoredEvent> events_;
  std::FILE* file_ = nullptr;
  int rank_ = 0;
};

}  // namespace

void record(const Event& event) {
  static Recorder recorder;  // made at the first event, when MPI runs; writes the last ones when the process ends
  recorder.add(event);
}

}  // namespace dace_redist::trace
