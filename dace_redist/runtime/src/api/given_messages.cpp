// SPDX-License-Identifier: BSD-3-Clause
#include "api/given_messages.hpp"

#include <utility>
#include <vector>

namespace dace_redist {
namespace {

constexpr int max_block_loops = 10;

MessageSide side_of(std::int64_t count, const dr_block* blocks, Index element_bytes, int ranks, const char* name) {
  MessageSide side;
  side.unit_bytes = element_bytes;
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
    for (int d = 0; d < block.ndim; ++d) {
      if (block.counts[d] < 0) fail("counts must be at least 0, got ", block.counts[d]);
      made.loops.push_back({block.counts[d], block.strides[d]});
    }
    if (made.count() > 0) side.blocks[block.peer].push_back(std::move(made));
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

dr_plan* make_given(MPI_Comm comm, bool joint, const std::function<dr_problem()>& checked, const char* counted,
                    const std::function<MessageSides(const dr_problem& problem, Context& context)>& describe) {
  const std::shared_ptr<Context> context = Context::of(comm);
  dr_problem problem{};
  const ExchangedSides sides(*context, [&] {
    problem = checked();
    check_without_distributions(problem);
    return describe(problem, *context);
  });
  return make_plan(comm, joint, [&] {
    auto messages = std::make_shared<GivenMessages>(sides.match(counted));
    Problem made{problem.label ? problem.label : "redistribution",
                 problem.strategy ? problem.strategy : "Hierarchical",
                 problem.options,
                 {}};
    TensorProblem& tensor = made.tensors.emplace_back(
        TensorProblem{no_elements(), no_elements(), problem.element_bytes * messages->element});
    tensor.operation = decoded(problem.operation);
    tensor.messages = std::move(messages);
    return made;
  });
}

}  // namespace

dr_plan* make_messages_plan(MPI_Comm comm, bool joint, const std::function<dr_problem()>& problem,
                            const BlockLists& lists) {
  return make_given(comm, joint, problem, "elements", [&](const dr_problem& checked, Context& context) {
    const auto source_type = decoded(checked.operation).source, target_type = decoded(checked.operation).target;
    const Index source_bytes = checked.element_bytes;
    const Index target_bytes =
        target_type == ElementType::opaque || source_type == target_type ? source_bytes : element_bytes_of(target_type);
    return MessageSides{side_of(lists.send_count, lists.sends, source_bytes, context.size(), "sends"),
                        side_of(lists.receive_count, lists.receives, target_bytes, context.size(), "receives")};
  });
}

dr_plan* make_alltoallw_plan(MPI_Comm comm, bool joint, const std::function<dr_problem()>& problem,
                             const std::function<AlltoallwArguments()>& get_arguments) {
  return make_given(comm, joint, problem, "bytes", [&](const dr_problem& checked, Context& context) {
    const AlltoallwArguments arguments = get_arguments();
    for (const TypedSide* const side : {&arguments.source, &arguments.target}) {
      const char* const name =
          side == &arguments.source ? "sendcounts, sdispls and sendtypes" : "recvcounts, rdispls and recvtypes";
      for (const void* const list :
           {static_cast<const void*>(side->counts), static_cast<const void*>(side->displacements),
            static_cast<const void*>(side->types)})
        check_pointer(list, name);
    }
    if (!decoded(checked.operation).is_copy())
      throw ArgumentError(
          "problem: datatypes are moved as bytes, and cannot be converted or scaled: use "
          "dr_plan_create_messages");
    return MessageSides{typed_side(arguments.source, context.comm()), typed_side(arguments.target, context.comm()),
                        element_alignment};
  });
}

}  // namespace dace_redist

using namespace dace_redist;

extern "C" {

int dr_plan_create_messages(const dr_problem* problem, int64_t send_count, const dr_block* sends, int64_t receive_count,
                            const dr_block* receives, MPI_Comm comm, dr_plan** plan) {
  return guarded(DR_ERROR_PLAN, __func__, [&] {
    check_mpi(comm);
    dr_plan* const made = make_messages_plan(comm, false,
                                             [&] {
                                               check_pointer(plan, "plan");
                                               check_pointer(problem, "problem");
                                               return *problem;
                                             },
                                             {send_count, sends, receive_count, receives});
    *plan = made;
  });
}

int dr_plan_create_alltoallw(const dr_problem* problem, const int sendcounts[], const int sdispls[],
                             const MPI_Datatype sendtypes[], const int recvcounts[], const int rdispls[],
                             const MPI_Datatype recvtypes[], MPI_Comm comm, dr_plan** plan) {
  return guarded(DR_ERROR_PLAN, __func__, [&] {
    check_mpi(comm);
    dr_plan* const made = make_alltoallw_plan(
        comm, false,
        [&] {
          check_pointer(plan, "plan");
          dr_problem given;
          dr_problem_init(&given);
          if (problem) given = *problem;
          given.element_bytes = 1;
          return given;
        },
        [&] {
          return AlltoallwArguments{{sendcounts, sdispls, sendtypes}, {recvcounts, rdispls, recvtypes}};
        });
    *plan = made;
  });
}

}  // extern "C"
