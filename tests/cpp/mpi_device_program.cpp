// What generated programs call, with arrays in the memory of a device, which main memory stands in for: results are
// there for what is enqueued afterwards on the stream that was named, and nothing is waited for in between. A plan that
// is destroyed with a transfer under way stays, with its buffers.
//
// Usage: DACE_REDIST_DEVICE=libstand_in_device.so STAND_IN_DEVICE=host mpiexec -n 2 mpi_device_program STRATEGY

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "dace_redist_program.hpp"
#include "device/device.hpp"

namespace {
int freed = 0;  // datatypes
}

extern "C" int MPI_Type_free(MPI_Datatype* type) {
  ++freed;
  return PMPI_Type_free(type);
}

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
  Array(Device& device, int memory) : device_(device), on_device_(memory == DR_DEVICE_MEMORY) {
    for (std::vector<double>* one : {&own_, &staged_, &kept_}) pinned_.push_back(device_.pin(one->data(), nbytes));
    if (on_device_) memory_ = device_.allocate(nbytes);
    data_ = on_device_ ? static_cast<double*>(memory_.get()) : own_.data();
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  double* data() { return data_; }

  void fill(double first, Stream stream) {
    std::iota(staged_.begin(), staged_.end(), first);
    device_.copy(data_, staged_.data(), nbytes, stream);
  }
  const std::vector<double>& read(Stream stream) {
    device_.copy(staged_.data(), data_, nbytes, stream);
    device_.synchronize(stream);
    return staged_;
  }

  /// Copies the elements as they are when the stream gets there.
  void keep(Stream stream) { device_.copy(kept_.data(), data_, nbytes, stream); }
  const std::vector<double>& kept(Stream stream) {
    device_.synchronize(stream);
    return kept_;
  }

 private:
  Device& device_;
  std::vector<double> own_ = std::vector<double>(count), staged_ = own_, kept_ = own_;
  bool on_device_;
  std::vector<DeviceHandle> pinned_;
  DeviceHandle memory_;
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
  const dr_operation none = {DR_OPAQUE, DR_OPAQUE, {1, 0}, {0, 0}, 0, DR_NO_OP, DR_OPAQUE, 0, DR_OPAQUE, 0};
  const Arguments arguments{rows_split, rows_local, columns_split, columns_local, sizeof(double),
                            options,    {},         none,          source_memory, target_memory};
  program::Plan plan("Redistribute", "move", strategy);
  plan.make(MPI_COMM_WORLD, {arguments});
  Array source(device, source_memory), target(device, target_memory);
  const DeviceHandle one = device.make_stream(), other = device.make_stream();
  const Stream first = one.get(), second = other.get();
  const std::string what = std::string(strategy) + (source_memory ? " from" : " not from") + " the device" +
                           (target_memory ? " to" : " not to") + " the device: ";
  double value = 0;
  const auto enqueue = [&](Stream stream) {  // reads the target, and writes the source, when the stream gets there
    target.keep(stream);
    source.fill(++value * 1000 + static_cast<double>(rank * count), stream);
    if (source_memory == DR_MAIN_MEMORY && target_memory == DR_MAIN_MEMORY) device.synchronize(stream);  // nobody else
  };
  const auto require_moved = [&](Stream before, Stream after, const char* how) {
    require(is_moved(target.read(after), rank, value * 1000), what + how);
    require(value == 1 || is_moved(target.kept(before), rank, (value - 1) * 1000), what + how + " came too early");
  };
  for (const Stream stream : {first, second, Stream(nullptr)}) {
    enqueue(stream);
    plan.run(MPI_COMM_WORLD, {}, {source.data()}, {target.data()}, stream);
    require_moved(stream, stream, "a blocking call");
  }
  for (const int progress : {DR_PROGRESS_CALLS, DR_PROGRESS_THREAD})
    for (const Stream after : {first, second}) {
      std::int64_t request = 0;
      enqueue(first);
      plan.start(MPI_COMM_WORLD, {}, {source.data()}, {target.data()}, progress, &request, first);
      program::wait(&request, after);
      require_moved(first, after, "a started transfer");
    }
  std::int64_t request = 0;
  enqueue(second);
  plan.start(MPI_COMM_WORLD, {}, {source.data()}, {target.data()}, DR_PROGRESS_CALLS, &request, second);
  program::wait(&request);
  require_moved(second, second, "a wait without a stream");
}

void stay_with_a_transfer_under_way() {
  static double source[count], target[count];  // where messages may arrive yet
  const dr_options options = {64, 2, 1.0, 0, 131072, 1 << 30};
  const Arguments arguments{rows_split, rows_local, columns_split, columns_local, sizeof(double), options};
  std::int64_t request = 0;
  for (const bool waits : {true, false}) {
    auto plan = std::make_unique<program::Plan>("Redistribute", "move", "Datatype");
    plan->start(MPI_COMM_WORLD, {arguments}, {source}, {target}, DR_PROGRESS_CALLS, &request);
    if (waits) plan->wait();
    freed = 0;
    plan.reset();
    require((freed > 0) == waits, waits ? "a plan was not freed" : "a plan was freed with a transfer under way");
  }
}

/// Makes a plan between arrays on the device.
dr_plan* make_plan(const char* strategy) {
  const std::int64_t shape[] = {rows, columns}, by_rows[] = {2, 1}, by_columns[] = {1, 2};
  dr_distribution *source = nullptr, *target = nullptr;
  dr_problem problem;
  dr_plan* plan = nullptr;
  bool good = dr_distribution_create_blocks(2, shape, 2, by_rows, nullptr, nullptr, nullptr, &source) == DR_SUCCESS &&
              dr_distribution_create_blocks(2, shape, 2, by_columns, nullptr, nullptr, nullptr, &target) == DR_SUCCESS;
  dr_problem_init(&problem);
  problem.source = source;
  problem.target = target;
  problem.element_bytes = sizeof(double);
  problem.strategy = strategy;
  problem.source_memory = problem.target_memory = DR_DEVICE_MEMORY;
  good = good && dr_plan_create(&problem, MPI_COMM_WORLD, &plan) == DR_SUCCESS;
  require(good, dr_error());
  dr_distribution_free(&source);
  dr_distribution_free(&target);
  return plan;
}

/// A transfer that begins in a stream which does not follow the end of the one before. Rank 1 does all that it can of
/// it while rank 0 does nothing, whose device may still have to unpack what came before.
void start_beside_the_end(const char* strategy) {
  Device& device = current_device();
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  dr_plan* plan = make_plan(strategy);
  Array sources[] = {{device, DR_DEVICE_MEMORY}, {device, DR_DEVICE_MEMORY}},
        targets[] = {{device, DR_DEVICE_MEMORY}, {device, DR_DEVICE_MEMORY}};
  const DeviceHandle one = device.make_stream(), other = device.make_stream();
  const Stream first = one.get(), second = other.get();
  for (double value = 1000; value < 30000; value += 1000) {
    for (const int i : {0, 1}) sources[i].fill(value + i + static_cast<double>(rank * count), first);
    device.synchronize(first);
    dr_request* request = nullptr;
    bool good = dr_plan_set_stream(plan, second) == DR_SUCCESS &&
                dr_plan_execute(plan, sources[0].data(), targets[0].data()) == DR_SUCCESS &&
                dr_plan_set_stream(plan, first) == DR_SUCCESS &&
                dr_plan_start(plan, sources[1].data(), targets[1].data(), DR_PROGRESS_CALLS, &request) == DR_SUCCESS;
    for (const int turn : {0, 1}) {
      int done = 0;
      for (int i = 0; rank == turn && good && i < 100; ++i) good = dr_request_test(request, &done) == DR_SUCCESS;
      MPI_Barrier(MPI_COMM_WORLD);
    }
    good = good && dr_request_wait(&request) == DR_SUCCESS;
    require(good, dr_error());
    require(is_moved(targets[0].read(second), rank, value),
            std::string(strategy) + ": the next transfer came too early");
    require(is_moved(targets[1].read(first), rank, value + 1), std::string(strategy) + ": two transfers");
  }
  dr_plan_free(&plan);
}

}  // namespace

int main(int count_of_words, char** words) {
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
  require(count_of_words == 2 && level == MPI_THREAD_MULTIPLE, "needs a strategy, and MPI_THREAD_MULTIPLE");
  for (const int source : {DR_DEVICE_MEMORY, DR_MAIN_MEMORY})
    for (const int target : {DR_DEVICE_MEMORY, DR_MAIN_MEMORY}) move(words[1], source, target);
  start_beside_the_end(words[1]);
  stay_with_a_transfer_under_way();
  MPI_Finalize();
}
