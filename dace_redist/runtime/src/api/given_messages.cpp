// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <utility>

#include "api/handles.hpp"

namespace dace_redist {
namespace {

constexpr int max_block_loops = 10;
constexpr double max_block_bytes = 0x1p62;

MessageSide side_of(std::int64_t count, const dr_block* blocks, Index element_bytes, int ranks, const char* name) {
  MessageSide side;
  double total = 0;  // elements
  side.unit_bytes = element_bytes;
  check_element_bytes(element_bytes);
  if (count < 0) throw ArgumentError(text("the number of ", name, " must be at least 0, got ", count));
  if (count > 0) check_pointer(blocks, name);
  for (std::int64_t number = 0; number < count; ++number) {
    const dr_block& block = blocks[number];
    const auto fail = [&](const auto&... reason) { throw ArgumentError(text(name, "[", number, "]: ", reason...)); };
    if (block.peer < 0 || block.peer >= ranks)
      fail("peer must be a rank of the communicator, from 0 to ", ranks - 1, ", got ", block.peer);
    if (block.ndim < 0 || block.ndim > max_block_loops)
      fail("ndim must be from 0 to ", max_block_loops, ", got ", block.ndim, ": give it as several blocks");
    if (block.ndim > 0 && (!block.counts || !block.strides)) fail("counts and strides must not be null");
    SideBlock made{block.offset, {}};
    double elements = 1, span = std::abs(static_cast<double>(block.offset));
    for (int d = 0; d < block.ndim; ++d) {
      const auto extent = static_cast<double>(block.counts[d]);
      if (extent < 0) fail("counts must be at least 0, got ", block.counts[d]);
      elements *= extent;
      span += extent * std::abs(static_cast<double>(block.strides[d]));
      made.loops.push_back({block.counts[d], block.strides[d]});
    }
    if (elements == 0) continue;
    total += elements;
    if (std::max(total, span) * static_cast<double>(std::max(element_bytes, element_alignment)) > max_block_bytes)
      fail("offset, counts and strides, in elements, lead out of the memory that 64 bits address");
    side.blocks[block.peer].push_back(std::move(made));
  }
  return side;
}

/// What a plan of messages does not have.
void check_without_distributions(const dr_problem& problem) {
  if (problem.source || problem.target || problem.source_shape || problem.source_strides || problem.target_shape ||
      problem.target_strides || problem.axes || problem.region_shape || problem.reshape)
    throw ArgumentError(
        "problem: messages have their own layouts; distributions, arrays, axes, region and reshape "
        "must not be set");
  if (problem.source_memory != DR_MAIN_MEMORY || problem.target_memory != DR_MAIN_MEMORY)
    throw ArgumentError("problem: messages move between arrays in main memory");
  if (problem.operation.op != DR_NO_OP) throw ArgumentError("problem: messages cannot be reduced: op must be DR_NO_OP");
}

/// Of a tensor that has messages.
Distribution no_elements() {
  constexpr Index ndim = 1, extent = 0, parts = 1, not_split = -1, whole = 1, pin = -1, ranks = 0;
  return Distribution({blocked_kind, ndim, 1, extent, parts, not_split, whole, pin, ranks}, "messages");
}

}  // namespace

MessageSides block_sides(const BlockLists& lists, const dr_problem& problem, Context& context) {
  const ElementOperation operation = decoded(problem.operation);
  const bool converts = operation.target != ElementType::opaque && operation.source != operation.target;
  const Index source_bytes = problem.element_bytes,
              target_bytes = converts ? element_bytes_of(operation.target) : source_bytes;
  return {side_of(lists.send_count, lists.sends, source_bytes, context.size(), "sends"),
          side_of(lists.receive_count, lists.receives, target_bytes, context.size(), "receives")};
}

MessageSides typed_sides(const TypedSide& source, const TypedSide& target, const dr_problem& problem,
                         Context& context) {
  const auto check_lists = [](const TypedSide& side, const char* names) {
    check_pointer(side.counts, names);
    check_pointer(side.displacements, names);
    check_pointer(side.types, names);
  };
  check_lists(source, "sendcounts, sdispls and sendtypes");
  check_lists(target, "recvcounts, rdispls and recvtypes");
  if (!decoded(problem.operation).is_copy())
    throw ArgumentError(
        "problem: datatypes are moved as bytes, and cannot be converted or scaled: use dr_plan_create_messages");
  return {typed_side(source, context.comm()), typed_side(target, context.comm()), "bytes"};
}

dr_plan* make_given(MPI_Comm comm, bool joint, const std::function<dr_problem()>& get_problem,
                    const std::function<MessageSides(const dr_problem& problem, Context& context)>& describe) {
  const MpiTurn turn;
  const std::shared_ptr<Context> context = Context::of(comm);
  dr_problem problem{};
  const ExchangedSides sides(*context, [&] {
    problem = get_problem();
    check_without_distributions(problem);
    return describe(problem, *context);
  });
  return make_plan(comm, joint, [&] {
    auto messages = std::make_shared<GivenMessages>(sides.match());
    Problem made = settings_of(problem);
    TensorProblem& tensor =
        made.tensors.emplace_back(TensorProblem{no_elements(), no_elements(), problem.element_bytes});
    tensor.operation = decoded(problem.operation);
    tensor.messages = std::move(messages);
    return made;
  });
}

}  // namespace dace_redist

using namespace dace_redist;

extern "C" {

int dr_plan_create_messages(const dr_problem* problem, int64_t send_count, const dr_block* sends, int64_t receive_count,
                            const dr_block* receives, MPI_Comm comm, dr_plan** plan) {
  return guarded(DR_ERROR_PLAN, __func__, [&] {
    check_mpi(comm);
    const auto get_problem = [&] {
      check_pointer(plan, "plan");
      check_pointer(problem, "problem");
      return *problem;
    };
    *plan = make_given(comm, false, get_problem, [&](const dr_problem& checked, Context& context) {
      return block_sides({send_count, sends, receive_count, receives}, checked, context);
    });
  });
}

int dr_plan_create_alltoallw(const dr_problem* problem, const int sendcounts[], const int sdispls[],
                             const MPI_Datatype sendtypes[], const int recvcounts[], const int rdispls[],
                             const MPI_Datatype recvtypes[], MPI_Comm comm, dr_plan** plan) {
  return guarded(DR_ERROR_PLAN, __func__, [&] {
    check_mpi(comm);
    const auto get_problem = [&] {
      check_pointer(plan, "plan");
      dr_problem given;
      dr_problem_init(&given);
      if (problem) given = *problem;
      given.element_bytes = 1;
      return given;
    };
    *plan = make_given(comm, false, get_problem, [&](const dr_problem& checked, Context& context) {
      return typed_sides({sendcounts, sdispls, sendtypes}, {recvcounts, rdispls, recvtypes}, checked, context);
    });
  });
}

}  // extern "C"
