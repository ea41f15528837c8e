// SPDX-License-Identifier: BSD-3-Clause
#include "trace/trace.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "core/mpi.hpp"

namespace dace_redist::trace {
namespace {

using Nanoseconds = std::int64_t;
constexpr Nanoseconds second = 1000000000;

Nanoseconds nanoseconds(std::chrono::nanoseconds time) { return time.count(); }

/// When this library was loaded, by both clocks.
const Nanoseconds loaded = nanoseconds(std::chrono::system_clock::now().time_since_epoch());
const Clock::time_point loaded_steady = Clock::now();

std::string quoted(const char* words) {
  std::string quote = "\"";
  for (const char* c = words; *c; ++c) {
    if (*c == '"' || *c == '\\') quote += '\\';
    quote += static_cast<unsigned char>(*c) < ' ' ? ' ' : *c;
  }
  return quote + '"';
}

/// When this process began, since 1970; the time of loading if the system does not say. A process of a job begins
/// before any of them has anything to record: MPI_Init waits for all.
Nanoseconds process_start() {
  std::ifstream file("/proc/self/stat");
  std::string words;
  std::getline(file, words);
  std::istringstream after_name(words.substr(std::min(words.rfind(')'), words.size() - 1) + 1));
  std::string word;
  for (int field = 3; field < 22 && after_name >> word;) ++field;
  Nanoseconds ticks = 0;
  timespec since_boot{};
  if (!(after_name >> ticks) || clock_gettime(CLOCK_BOOTTIME, &since_boot) != 0) return loaded;
  const Nanoseconds booted = nanoseconds(std::chrono::system_clock::now().time_since_epoch()) -
                             (since_boot.tv_sec * second + since_boot.tv_nsec);
  return booted + ticks * (second / sysconf(_SC_CLK_TCK));
}

/// Microseconds with three decimals, which is Chrome's unit.
std::string microseconds(Nanoseconds time) {
  const long long size = time < 0 ? -time : time;
  char number[32];
  std::snprintf(number, sizeof number, "%s%lld.%03lld", time < 0 ? "-" : "", size / 1000, size % 1000);
  return number;
}

/// The file that all ranks write to, each what it has kept, under a lock. It is complete after each write.
class SharedFile {
 public:
  /// Opens the file, locks it, and begins it anew if it is of an earlier run. \throws Error if that cannot be done.
  SharedFile() : file_(open(file_name, O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (file_ < 0) fail();
    try {
      lock_and_begin();
    } catch (...) {
      close(file_);
      throw;
    }
  }
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;
  ~SharedFile() { close(file_); }

  /// The time from which all ranks count, since 1970.
  Nanoseconds origin() const { return origin_; }

  /// \param events  each of them after a comma and a new line.
  void append(const std::string& events) const {
    if (lseek(file_, -static_cast<off_t>(std::strlen(last)), SEEK_END) < 0) fail();
    put(events + last);
  }

 private:
  static constexpr const char* first =
      "[\n{\"name\": \"dace_redist\", \"ph\": \"M\", \"pid\": 0, \"args\": {\"origin\": ";
  static constexpr const char* last = "\n]\n";

  void lock_and_begin() {
    if (flock(file_, LOCK_EX) != 0) fail();
    struct stat state {};
    if (fstat(file_, &state) != 0) fail();
    std::string head(std::strlen(first), ' ');
    if (state.st_size > 0 && pread(file_, head.data(), head.size(), 0) != static_cast<ssize_t>(head.size()))
      head.clear();
    if (state.st_size > 0 && head != first) throw Error("the file exists and is no trace");
    const Nanoseconds written = state.st_mtim.tv_sec * second + state.st_mtim.tv_nsec;
    if (state.st_size == 0 || written < process_start()) {
      if (ftruncate(file_, 0) != 0) fail();
      put(text(first, loaded, "}}", last));
      origin_ = loaded;
      return;
    }
    char digits[24] = {};
    if (pread(file_, digits, sizeof digits - 1, static_cast<off_t>(head.size())) < 1) fail();
    origin_ = std::strtoll(digits, nullptr, 10);
  }

  void put(const std::string& bytes) const {
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t written = write(file_, bytes.data() + at, bytes.size() - at);
      if (written < 0 && errno != EINTR) fail();
      at += static_cast<std::size_t>(written < 0 ? 0 : written);
    }
  }

  [[noreturn]] static void fail() { throw Error(std::strerror(errno)); }

  int file_;
  Nanoseconds origin_ = 0;
};

/// An event with texts of its own, and its thread.
struct KeptEvent {
  Event event;
  std::string label, strategy;
  int thread = 0;

  std::string json(int rank, Nanoseconds origin) const {
    const Nanoseconds start = loaded + nanoseconds(event.start - loaded_steady) - origin;
    std::string arguments;
    const auto argument = [&](const char* name, const std::string& value) {
      arguments += text(arguments.empty() ? "" : ", ", '"', name, "\": ", value);
    };
    if (!strategy.empty()) argument("strategy", quoted(strategy.c_str()));
    if (event.partner != nobody) argument("partner", std::to_string(event.partner));
    if (event.nbytes > 0) argument("bytes", std::to_string(event.nbytes));
    return text(",\n{\"name\": ", quoted(label.empty() ? event.kind : label.c_str()), ", \"cat\": \"", event.kind,
                "\", \"ph\": \"X\", \"pid\": ", rank, ", \"tid\": ", thread, ", \"ts\": ", microseconds(start),
                ", \"dur\": ", microseconds(nanoseconds(event.end - event.start)), ", \"args\": {", arguments, "}}");
  }
};

/// The events of this process that are not written yet. One that follows an equal one at once makes that longer:
/// waiting goes on between looks at a flag, and a message is copied in pieces.
class Recorder {
 public:
  Recorder() {
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (initialized && !finalized) MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    const std::string process = text("\"pid\": ", rank_, ", \"args\": {");
    write(text(",\n{\"name\": \"process_name\", \"ph\": \"M\", ", process,
               "\"name\": ", quoted(text("rank ", rank_, " on ", host).c_str()),
               "}},\n{\"name\": \"process_sort_index\", \"ph\": \"M\", ", process, "\"sort_index\": ", rank_, "}}"));
  }
  ~Recorder() { write(""); }

  void add(const Event& event) {
    static std::atomic<int> threads{0};
    thread_local const int thread = threads++;
    const std::lock_guard<std::mutex> guard(mutex_);
    if (failed_ || continues_last(event, thread)) return;
    if (events_.size() >= most_kept) write("");
    events_.push_back({event, event.label ? event.label : "", event.strategy ? event.strategy : "", thread});
  }

 private:
  static constexpr std::size_t most_kept = std::size_t{1} << 16;
  static constexpr std::chrono::microseconds at_once{20};

  bool continues_last(const Event& event, int thread) {
    if (events_.empty() || event.label) return false;
    KeptEvent& last = events_.back();
    Event& before = last.event;
    if (last.thread != thread || before.label || before.kind != event.kind || before.partner != event.partner ||
        event.start - before.end > at_once)
      return false;
    before.end = event.end;
    before.nbytes += event.nbytes;
    return true;
  }

  /// Writes some JSON, and the events. If it cannot, one line says so, and nothing more is recorded.
  void write(std::string json) {
    if (failed_) return;
    try {
      const SharedFile file;
      for (const KeptEvent& event : events_) json += event.json(rank_, file.origin());
      if (!json.empty()) file.append(json);
    } catch (const std::exception& error) {
      failed_ = true;
      std::fprintf(stderr, "dace-redist: no trace of rank %d: cannot write \"%s\" (DACE_REDIST_TRACE): %s\n", rank_,
                   file_name, error.what());
    }
    events_.clear();
  }

  std::mutex mutex_;
  std::vector<KeptEvent> events_;
  int rank_ = 0;
  bool failed_ = false;
};

}  // namespace

void record(const Event& event) {
  static Recorder recorder;  // made at the first event, when MPI runs; writes the last ones when the process ends
  recorder.add(event);
}

}  // namespace dace_redist::trace
