// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dace_redist_program.hpp"
#include "device/device_objects.hpp"
#include "node/shared_array.hpp"
#include "plan/joint_plan.hpp"
#include "plan/public_options.hpp"
#include "plan/registry.hpp"
#include "plan/report.hpp"

namespace dace_redist::program {

namespace {

bool equal(const Numbers& numbers, const Encoding& encoding) {
  return numbers.count == encoding.size() && std::equal(encoding.begin(), encoding.end(), numbers.begin);
}
Encoding encoding(const Numbers& numbers) { return Encoding(numbers.begin, numbers.begin + numbers.count); }

/// Whether a description is of this redistribution, of whatever arrays.
bool describes(const Description& description, const Arguments& now) {
  return equal(now.source, description.source) && equal(now.target, description.target) &&
         now.element_bytes == description.element_bytes && equal(now.index_map, description.index_map) &&
         internal_options(now.options) == description.options &&
         internal_operation(now.operation) == description.operation &&
         internal_memory(now.source_memory, "source_memory") == description.source_memory &&
         internal_memory(now.target_memory, "target_memory") == description.target_memory;
}

bool has_arrays(const Description& description, const Arguments& now) {
  return equal(now.source_local, description.source_local) && equal(now.target_local, description.target_local);
}

void set_arrays(Description& description, const Arguments& now) {
  description.source_local = encoding(now.source_local);
  description.target_local = encoding(now.target_local);
}

void set(Description& description, const Arguments& now) {
  set_arrays(description, now);
  description.source = encoding(now.source);
  description.target = encoding(now.target);
  description.element_bytes = now.element_bytes;
  description.index_map = encoding(now.index_map);
  description.operation = internal_operation(now.operation);
  description.options = internal_options(now.options);
  description.source_memory = internal_memory(now.source_memory, "source_memory");
  description.target_memory = internal_memory(now.target_memory, "target_memory");
}

/// Runs `work` and reports what it throws, as of the node of that name.
template <class Work>
void reporting(const char* kind, const std::string& label, const Work& work) {
  try {
    work();
  } catch (const std::exception& error) {
    report(text(kind, " \"", label, "\": ", error.what()));
  }
}

/// Runs `work` of a plan, which is kept for good if that throws: MPI may still write to its buffers.
template <class Work>
void run_or_release(std::unique_ptr<dace_redist::Plan>& plan, const Work& work) {
  try {
    work();
  } catch (...) {
    (void)plan.release();
    throw;
  }
}

}  // namespace

/// The communicator of a plan. One may be freed and its handle given to another: it carries a mark.
class MarkedCommunicator {
 public:
  ~MarkedCommunicator() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (mark_ != MPI_KEYVAL_INVALID && !finalized) MPI_Comm_free_keyval(&mark_);
  }

  void set(MPI_Comm comm) {
    comm_ = comm;
    if (comm == MPI_COMM_NULL || comm == MPI_COMM_WORLD) return;
    if (mark_ == MPI_KEYVAL_INVALID)
      check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &mark_, nullptr),
            "MPI_Comm_create_keyval");
    check(MPI_Comm_set_attr(comm, mark_, this), "MPI_Comm_set_attr");
  }

  bool is(MPI_Comm comm) const {
    if (comm != comm_) return false;
    if (comm == MPI_COMM_NULL || comm == MPI_COMM_WORLD) return true;
    void* value = nullptr;
    int found = 0;
    check(MPI_Comm_get_attr(comm, mark_, &value, &found), "MPI_Comm_get_attr");
    return found != 0;
  }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int mark_ = MPI_KEYVAL_INVALID;
};

class Plan::Implementation {
 public:
  Implementation(const char* label, const char* strategy) {
    description_.label = label;
    description_.strategy = strategy;
  }
  ~Implementation() {
    const bool by_thread = thread_.joinable();
    if (by_thread) thread_.join();
    if (under_way_ && (!by_thread || failure_)) (void)plan_.release();  // as run_or_release()
  }

  void make(const Arguments& arguments) {
    reporting([&] { fit(arguments); });
  }

  void run(const Arguments& arguments, const void* source, void* target, Stream stream) {
    reporting([&] {
      fit(arguments);
      plan_->set_stream(stream);
      run_or_release(plan_, [&] { plan_->run(source, target); });
    });
  }

  void start(const Arguments& arguments, const void* source, void* target, int progress, Stream stream) {
    reporting([&] {
      fit(arguments);
      plan_->set_stream(stream);
      if (progress == DR_PROGRESS_THREAD) {
        int level = MPI_THREAD_SINGLE;
        check(MPI_Query_thread(&level), "MPI_Query_thread");
        if (level < MPI_THREAD_MULTIPLE)
          throw Error("progress by a thread needs MPI_Init_thread with MPI_THREAD_MULTIPLE; take progress \"calls\"");
        failure_ = nullptr;
        Device* const device = description_.on_device() ? &current_device() : nullptr;
        thread_ = std::thread([this, source, target, device, stream]() noexcept {
          try {
            plan_->run(source, target);
            if (device) complete(*device, stream);
          } catch (...) {
            failure_ = std::current_exception();
          }
        });
      } else {
        run_or_release(plan_, [&] { plan_->start(source, target); });
      }
      under_way_ = true;
    });
  }

  /// \param stream  of what uses the result; none: that of the start.
  void wait(std::optional<Stream> stream) {
    reporting([&] {
      if (!std::exchange(under_way_, false)) throw Error("no transfer is under way: it was waited for, or not started");
      run_or_release(plan_, [&] {
        if (!thread_.joinable()) {
          if (stream) plan_->set_stream(*stream);
          plan_->finish();
          return;
        }
        thread_.join();
        if (failure_) std::rethrow_exception(failure_);
      });
    });
  }

 private:
  /// Waits for a stream: what a thread moved is then there for every other one.
  static void complete(Device& device, Stream stream) {
    const CurrentDevice current(device);
    device.synchronize(stream);
  }

  /// Makes the plan, or has it fit other arrays, if anything changed since the last run.
  void fit(const Arguments& now) {
    if (under_way_) throw Error("a transfer is under way: wait for it before the next one starts");
    const bool same = plan_ && comm_.is(now.comm) && describes(description_, now);
    if (same && has_arrays(description_, now)) return;
    if (same) {
      plan_->set_local_arrays(encoding(now.source_local), encoding(now.target_local));
      return set_arrays(description_, now);
    }
    plan_.reset();
    set(description_, now);
    plan_ = plan_maker(description_)(description_, now.comm);
    comm_.set(now.comm);
  }

  template <class Work>
  void reporting(const Work& work) const {
    const bool sums = description_.strategy.rfind("SumReplicas", 0) == 0;
    program::reporting(sums ? "SumReplicas" : "Redistribute", description_.label, work);
  }

  Description description_;
  MarkedCommunicator comm_;
  std::unique_ptr<dace_redist::Plan> plan_;
  bool under_way_ = false;      // started, not waited for
  std::thread thread_;          // moves on what was started, if a thread does
  std::exception_ptr failure_;  // of the thread
};

Plan::Plan(const char* label, const char* strategy)
    : implementation_(std::make_unique<Implementation>(label, strategy)) {}
Plan::~Plan() = default;
void Plan::make(const Arguments& arguments) { implementation_->make(arguments); }
void Plan::run(const Arguments& arguments, const void* source, void* target, void* stream) {
  implementation_->run(arguments, source, target, stream);
}
void Plan::start(const Arguments& arguments, const void* source, void* target, int progress, void* stream) {
  implementation_->start(arguments, source, target, progress, stream);
}
void Plan::wait() { implementation_->wait({}); }
void Plan::wait(void* stream) { implementation_->wait(stream); }

class JointPlan::Implementation {
 public:
  Implementation(const char* label, const char* strategy) : strategy_(strategy) { description_.label = label; }

  void make(std::initializer_list<Arguments> tensors) {
    reporting("JointRedistribute", description_.label, [&] { fit(tensors); });
  }

  void run(std::initializer_list<Arguments> tensors, std::initializer_list<const void*> sources,
           std::initializer_list<void*> targets) {
    reporting("JointRedistribute", description_.label, [&] {
      fit(tensors);
      targets_ = targets;  // the plan takes their addresses as those of a target that it may write to
      run_or_release(plan_, [&] { plan_->run(sources.begin(), targets_.data()); });
    });
  }

 private:
  /// Makes the plan if anything changed since the last run.
  void fit(std::initializer_list<Arguments> now) {
    const MPI_Comm comm = now.begin()->comm;
    bool same = plan_ && comm_.is(comm) && description_.tensors.size() == now.size();
    for (std::size_t i = 0; same && i < now.size(); ++i)
      same = describes(description_.tensors[i], now.begin()[i]) && has_arrays(description_.tensors[i], now.begin()[i]);
    if (same) return;
    plan_.reset();
    std::vector<Description> tensors;
    for (const Arguments& one : now) {
      tensors.push_back({});
      tensors.back().label = description_.label;
      tensors.back().strategy = strategy_;
      set(tensors.back(), one);
    }
    description_ = tensors.front();
    description_.tensors = std::move(tensors);
    plan_ = make_joint_plan(description_, comm);
    comm_.set(comm);
  }

  std::string strategy_;
  Description description_;
  MarkedCommunicator comm_;
  std::unique_ptr<dace_redist::Plan> plan_;
  std::vector<void*> targets_;
};

JointPlan::JointPlan(const char* label, const char* strategy)
    : implementation_(std::make_unique<Implementation>(label, strategy)) {}
JointPlan::~JointPlan() = default;
void JointPlan::make(std::initializer_list<Arguments> tensors) { implementation_->make(tensors); }
void JointPlan::run(std::initializer_list<Arguments> tensors, std::initializer_list<const void*> sources,
                    std::initializer_list<void*> targets) {
  implementation_->run(tensors, sources, targets);
}

void* allocate(bool on_node, std::initializer_list<std::int64_t> nbytes) { return allocate_for_all(on_node, nbytes); }
void free(void* memory) noexcept { free_shared(memory); }

}  // namespace dace_redist::program
