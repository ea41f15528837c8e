// What generated programs call, with arrays in the memory of a device, which main memory stands in for: results are
// there for what is enqueued afterwards on the stream that was named, and nothing is waited for in between.
//
// Usage: DACE_REDIST_DEVICE=host mpiexec -n 2 mpi_device_program STRATEGY

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "dace_redist_program.hpp"
#include "device/device.hpp"

namespace {

using namespace dace_redist;
using program::Arguments;

constexpr std::int64_t rows = 6, columns = 10;  // of the whole matrix, on two ranks
constexpr std::int64_t count = rows * columns / 2;
constexpr std::int64_t nbytes = count * static_cast<std::int64_t>(sizeof(double));
constexpr std::int64_t rows_split[] = {0, 2, 2, rows, columns, 2, 1, 0, 1, 0, 0, -1, -1, 0};
constexpr std::int64_t columns_split[] = {0, 2, 2, rows, columns, 1, 2, 0, 1, 0, 0, -1, -1, 0};
constexpr std::int64_t rows_local[] = {rows / 2, columns, columns, 1},
                       columns_local[] = {rows, columns / 2, columns / 2, 1};

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/// An array of one rank, and pinned main memory by which it is filled and read in the order of a stream.
class Array {
 public:
  Array(Device& device, int memory) : device_(device), staged_(count), on_device_(memory == DR_DEVICE_MEMORY) {
    device_.pin(staged_.data(), nbytes);
    if (on_device_)
      data_ = static_cast<double*>(device_.allocate(nbytes));
    else
      data_ = own_.data();
  }
  ~Array() {
    if (on_device_) device_.free(data_);
    device_.unpin(staged_.data());
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  double* data() { return data_; }

  void fill(double first, Stream stream) {
    std::iota(staged_.begin(), staged_.end(), first);
    if (on_device_)
      device_.copy(data_, staged_.data(), nbytes, stream);
    else
      own_ = staged_;
  }
  const std::vector<double>& read(Stream stream) {
    if (!on_device_) return own_;
    device_.copy(staged_.data(), data_, nbytes, stream);
    device_.synchronize(stream);
    return staged_;
  }

 private:
  Device& device_;
  std::vector<double> staged_, own_ = std::vector<double>(count);
  bool on_device_;
  double* data_ = nullptr;
};

/// Whether this rank's columns hold `first + global index` of a matrix that was filled by rows.
bool is_moved(const std::vector<double>& values, int rank, double first) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns / 2; ++j)
      if (values[static_cast<std::size_t>(i * columns / 2 + j)] !=
          first + static_cast<double>(i * columns + rank * columns / 2 + j))
        return false;
  return true;
}

void move(const char* strategy, int source_memory, int target_memory) {
  Device& device = current_device();
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const dr_options options = {64, 2, 1.0, 0, 131072, 1 << 30};
  const dr_operation none = {DR_OPAQUE, DR_OPAQUE, {1, 0}, {0, 0}, 0, DR_NO_OP};
  const Arguments arguments{MPI_COMM_WORLD, rows_split, rows_local, columns_split, columns_local, sizeof(double),
                            options,        {},         none,       source_memory, target_memory};
  program::Plan plan("move", strategy);
  plan.make(arguments);
  Array source(device, source_memory), target(device, target_memory);
  const Stream first = device.create_stream(), second = device.create_stream();
  const std::string what = std::string(strategy) + (source_memory ? " from" : " not from") + " the device" +
                           (target_memory ? " to" : " not to") + " the device: ";
  double value = 0;
  for (const Stream stream : {first, second, Stream(nullptr)}) {
    source.fill(++value * 1000 + static_cast<double>(rank * count), stream);
    program::redistribute(plan, arguments, source.data(), target.data(), stream);
    require(is_moved(target.read(stream), rank, value * 1000), what + "a blocking call");
  }
  for (const int progress : {DR_PROGRESS_CALLS, DR_PROGRESS_THREAD})
    for (const Stream after : {first, second}) {
      std::int64_t request = 0;
      source.fill(++value * 1000 + static_cast<double>(rank * count), first);
      program::start(plan, arguments, source.data(), target.data(), progress, &request, first);
      program::wait(&request, after);
      require(is_moved(target.read(after), rank, value * 1000), what + "a started transfer");
    }
  std::int64_t request = 0;
  source.fill(++value * 1000 + static_cast<double>(rank * count), second);
  program::start(plan, arguments, source.data(), target.data(), DR_PROGRESS_CALLS, &request, second);
  program::wait(&request);
  require(is_moved(target.read(second), rank, value * 1000), what + "a wait without a stream");
  device.destroy_stream(first);
  device.destroy_stream(second);
}

}  // namespace

int main(int count_of_words, char** words) {
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
  require(count_of_words == 2 && level == MPI_THREAD_MULTIPLE, "needs a strategy, and MPI_THREAD_MULTIPLE");
  for (const int source : {DR_DEVICE_MEMORY, DR_MAIN_MEMORY})
    for (const int target : {DR_DEVICE_MEMORY, DR_MAIN_MEMORY}) move(words[1], source, target);
  MPI_Finalize();
}
