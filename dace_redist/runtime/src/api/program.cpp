// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/handles.hpp"
#include "core/report.hpp"
#include "dace_redist_program.hpp"
#include "device/device_objects.hpp"

namespace dace_redist::program {

namespace {

bool equal(const Numbers& numbers, const Encoding& encoding) {
  return numbers.count == encoding.size() && std::equal(encoding.begin(), encoding.end(), numbers.begin);
}
Encoding encoding(const Numbers& numbers) { return Encoding(numbers.begin, numbers.begin + numbers.count); }

LocalArray local_array(const Numbers& numbers) {
  const std::int64_t* const half = numbers.begin + numbers.count / 2;
  return {{numbers.begin, half}, {half, numbers.begin + numbers.count}};
}

bool equal(const dr_options& a, const dr_options& b) {
  bool same = true;
  each_option([&](const auto& option) { same = same && a.*option.member == b.*option.member; });
  return same;
}

constexpr const char* sum_prefix = "SumReplicas ";  // followed by the name of an element type

/// A node's tensor, with the operation of the strategy "SumReplicas float64" and others like it.
TensorProblem tensor_of(const Arguments& now, const std::string& strategy) {
  TensorProblem tensor{Distribution(encoding(now.source), "source"), Distribution(encoding(now.target), "target"),
                       now.element_bytes};
  tensor.source_array = local_array(now.source_local);
  tensor.target_array = local_array(now.target_local);
  tensor.index_map = encoding(now.index_map);
  tensor.operation = operation_of(now.operation);
  if (strategy.rfind(sum_prefix, 0) == 0) {
    tensor.operation.source = tensor.operation.target =
        find_element_type(strategy.substr(std::string(sum_prefix).size()));
    tensor.operation.reduction = Reduction::sum;
  }
  tensor.source_memory = memory_of(now.source_memory, "source_memory");
  tensor.target_memory = memory_of(now.target_memory, "target_memory");
  return tensor;
}

/// Detects a recycled communicator handle: attaches an attribute to the communicator and checks it on every run.
class MarkedCommunicator {
 public:
  ~MarkedCommunicator() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (mark_ != MPI_KEYVAL_INVALID && !finalized) MPI_Comm_free_keyval(&mark_);
  }

  void set(MPI_Comm comm) {
    comm_ = comm;
    if (comm == MPI_COMM_WORLD) return;
    if (mark_ == MPI_KEYVAL_INVALID)
      check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &mark_, nullptr),
            "MPI_Comm_create_keyval");
    check(MPI_Comm_set_attr(comm, mark_, this), "MPI_Comm_set_attr");
  }

  bool is(MPI_Comm comm) const {
    if (comm != comm_) return false;
    if (comm == MPI_COMM_WORLD) return true;
    void* value = nullptr;
    int found = 0;
    check(MPI_Comm_get_attr(comm, mark_, &value, &found), "MPI_Comm_get_attr");
    return found != 0;
  }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int mark_ = MPI_KEYVAL_INVALID;
};

/// The plan of a node, of one or several tensors.
class NodePlan {
 public:
  NodePlan(const char* kind, const char* label, const char* strategy)
      : kind_(kind), label_(label), strategy_(strategy) {}
  ~NodePlan() {
    const bool by_thread = thread_.joinable();
    if (by_thread) thread_.join();
    if (under_way_ && (!by_thread || failure_)) (void)plan_.release();  // MPI may still write to its buffers
  }

  void make(std::initializer_list<Arguments> tensors) {
    reporting([&] { fit(tensors); });
  }

  void run(std::initializer_list<Arguments> tensors, const void* const* sources, void* const* targets, Stream stream) {
    reporting([&] {
      if (!fit(tensors)) return;
      plan_->set_stream(stream);
      check_addresses(sources, targets);
      or_release([&] { plan_->run(sources, targets); });
    });
  }

  void start(std::initializer_list<Arguments> tensors, const void* source, void* target, int progress, Stream stream) {
    reporting([&] {
      if (!fit(tensors)) return;
      plan_->set_stream(stream);
      check_addresses(&source, &target);
      if (progress == DR_PROGRESS_THREAD)
        start_thread(source, target, stream);
      else
        or_release([&] { plan_->start(&source, &target); });
      under_way_ = true;
    });
  }

  /// \param stream  of what uses the result; none: that of the start.
  void wait(std::optional<Stream> stream) {
    reporting([&] {
      if (!std::exchange(under_way_, false)) throw Error("no transfer is under way: it was waited for, or not started");
      or_release([&] {
        if (!thread_.joinable()) {
          if (stream) plan_->set_stream(*stream);
          plan_->wait();
          return;
        }
        thread_.join();
        if (failure_) std::rethrow_exception(failure_);
      });
    });
  }

 private:
  /// Runs `work`, and reports what it throws. After an error in this or another node, until the program has returned to
  /// Python, nothing is moved any more: the other ranks learn of it in the node that they are in.
  template <class Work>
  void reporting(const Work& work) {
    if (python::waiting) {
      under_way_ = false;
      if (plan_) plan_->fail("an earlier node of the program failed");
      (void)plan_.release();
      return;
    }
    try {
      work();
    } catch (const std::exception& error) {
      report(text(kind_, " \"", label_, "\": ", error.what()));
    }
  }

  void check_addresses(const void* const* sources, void* const* targets) {
    const std::string missing = plan_->missing_array(sources, targets);
    if (missing.empty()) return;
    or_release([&] {
      const std::string message = text(missing, " is null, but elements of this rank's array are to be moved");
      plan_->fail(message);
      throw Error(message);
    });
  }

  /// Runs `work` of the plan, which is kept for good if that throws: MPI may still write to its buffers.
  template <class Work>
  void or_release(const Work& work) {
    try {
      work();
    } catch (...) {
      (void)plan_.release();
      throw;
    }
  }

  void start_thread(const void* source, void* target, Stream stream) {
    int level = MPI_THREAD_SINGLE;
    check(MPI_Query_thread(&level), "MPI_Query_thread");
    if (level < MPI_THREAD_MULTIPLE)
      throw Error("progress by a thread needs MPI_Init_thread with MPI_THREAD_MULTIPLE; use progress \"calls\"");
    failure_ = nullptr;
    Device* const device = plan_->problem().tensors.front().on_device() ? &current_device() : nullptr;
    thread_ = std::thread([this, source, target, device, stream]() noexcept {
      try {
        plan_->run(&source, &target);
        if (!device) return;
        const CurrentDevice current(*device);
        device->synchronize(stream);  // every other stream finds the result
      } catch (...) {
        failure_ = std::current_exception();
      }
    });
  }

  /// Whether the plan is of this redistribution, of any arrays.
  bool describes(std::initializer_list<Arguments> now) const {
    const Problem& problem = plan_->problem();
    return problem.tensors.size() == now.size() && equal(now.begin()->options, problem.options) &&
           std::equal(now.begin(), now.end(), problem.tensors.begin(),
                      [&](const Arguments& one, const TensorProblem& of) {
                        return equal(one.source, of.source.encoding()) && equal(one.target, of.target.encoding()) &&
                               one.element_bytes == of.element_bytes && equal(one.index_map, of.index_map) &&
                               (strategy_.rfind(sum_prefix, 0) == 0 || operation_of(one.operation) == of.operation) &&
                               one.source_memory == static_cast<int>(of.source_memory) &&
                               one.target_memory == static_cast<int>(of.target_memory);
                      });
  }

  bool has_arrays(std::initializer_list<Arguments> now) const {
    return std::equal(
        now.begin(), now.end(), plan_->problem().tensors.begin(), [](const Arguments& one, const TensorProblem& of) {
          return local_array(one.source_local) == of.source_array && local_array(one.target_local) == of.target_array;
        });
  }

  /// Makes the plan, or has it take other arrays, if anything has changed since the last run.
  /// \return false on a rank that has no part in it: the communicator is null.
  bool fit(std::initializer_list<Arguments> now) {
    if (under_way_) throw Error("a transfer is under way: wait for it before the next one starts");
    const MPI_Comm comm = now.begin()->comm;
    if (comm == MPI_COMM_NULL) return false;
    const bool same = plan_ && comm_.is(comm) && describes(now) && !plan_->has_failed();
    if (same && has_arrays(now)) return true;
    if (same) {
      std::vector<LocalArray> sources, targets;
      for (const Arguments& one : now) {
        sources.push_back(local_array(one.source_local));
        targets.push_back(local_array(one.target_local));
      }
      plan_->set_arrays(sources, targets);
      return true;
    }
    if (plan_ && plan_->has_failed()) (void)plan_.release();
    plan_.reset();
    plan_ = dace_redist::Plan::make(comm, [&] {
      const bool sums = strategy_.rfind(sum_prefix, 0) == 0;
      Problem problem{label_, sums ? "SumReplicas" : strategy_, now.begin()->options, {}};
      for (const Arguments& one : now) problem.tensors.push_back(tensor_of(one, strategy_));
      return problem;
    });
    comm_.set(comm);
    return true;
  }

  std::string kind_, label_, strategy_;
  MarkedCommunicator comm_;
  std::unique_ptr<dace_redist::Plan> plan_;
  bool under_way_ = false;      // started, not waited for
  std::thread thread_;          // carries out what was started, if a thread does
  std::exception_ptr failure_;  // of the thread
};

}  // namespace

class Plan::Implementation : public NodePlan {
  using NodePlan::NodePlan;
};
class JointPlan::Implementation : public NodePlan {
  using NodePlan::NodePlan;
};

Plan::Plan(const char* label, const char* strategy)
    : implementation_(std::make_unique<Implementation>(
          std::string(strategy).rfind("SumReplicas", 0) == 0 ? "SumReplicas" : "Redistribute", label, strategy)) {}
Plan::~Plan() = default;
void Plan::make(const Arguments& arguments) { implementation_->make({arguments}); }
void Plan::run(const Arguments& arguments, const void* source, void* target, void* stream) {
  implementation_->run({arguments}, &source, &target, stream);
}
void Plan::start(const Arguments& arguments, const void* source, void* target, int progress, void* stream) {
  implementation_->start({arguments}, source, target, progress, stream);
}
void Plan::wait() { implementation_->wait({}); }
void Plan::wait(void* stream) { implementation_->wait(stream); }

JointPlan::JointPlan(const char* label, const char* strategy)
    : implementation_(std::make_unique<Implementation>("JointRedistribute", label, strategy)) {}
JointPlan::~JointPlan() = default;
void JointPlan::make(std::initializer_list<Arguments> tensors) { implementation_->make(tensors); }
void JointPlan::run(std::initializer_list<Arguments> tensors, std::initializer_list<const void*> sources,
                    std::initializer_list<void*> targets) {
  implementation_->run(tensors, sources.begin(), targets.begin(), nullptr);
}

void* allocate(bool on_node, std::initializer_list<std::int64_t> nbytes) {
  const std::int64_t most = std::max(nbytes);
  if (on_node) return allocate_anywhere(most);
  void* const bytes = std::malloc(static_cast<std::size_t>(std::max<std::int64_t>(most, 1)));
  if (!bytes) throw std::bad_alloc();
  return bytes;
}
void free(void* memory) noexcept { free_anywhere(memory); }

}  // namespace dace_redist::program
