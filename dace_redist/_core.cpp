// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Binds the planner and the copy kernel to Python. No MPI, no DaCe.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <tuple>

#include "_numpy_memory.hpp"
#include "contraction/einsum.hpp"
#include "copy/copy.hpp"
#include "core/options.hpp"
#include "layout/distribution.hpp"
#include "layout/index_map.hpp"
#include "layout/replica_policy.hpp"
#include "layout/schedule.hpp"
#include "shm/arena.hpp"
#include "transport/protocol_limits.hpp"

namespace py = pybind11;
namespace dr = dace_redist;

namespace {

using Numbers = std::vector<dr::Index>;

py::list block_list(const dr::Message& message) {
  py::list blocks;
  for (const dr::StridedBlock& raw : message.blocks) {
    const dr::StridedBlock block = dr::merged(raw);
    const auto head = [&](const auto& values) { return Numbers(values.begin(), values.begin() + block.ndim); };
    blocks.append(py::make_tuple(block.source_offset, block.target_offset, head(block.counts),
                                 head(block.source_strides), head(block.target_strides)));
  }
  return blocks;
}

/// [(peer, count, [(source_offset, target_offset, counts, source_strides, target_strides), ...]), ...]
py::list message_list(const std::vector<dr::Message>& messages) {
  py::list list;
  for (const dr::Message& message : messages)
    list.append(py::make_tuple(message.peer, message.count, block_list(message)));
  return list;
}

/// Global indices a rank holds along one axis, in local order; of the rank's first cell.
py::array_t<dr::Index> global_index(const dr::Distribution& distribution, dr::Index rank, int axis) {
  const auto cells = distribution.cells(rank);
  const dr::Intervals held = cells.empty() ? dr::Intervals{} : distribution.intervals(cells.front(), axis);
  py::array_t<dr::Index> indices(held.size());
  dr::Index* out = indices.mutable_data();
  for (dr::Index k = 0; k < held.count; ++k) {
    const dr::Index lo = held.start + k * held.period;
    for (dr::Index global = lo; global < std::min(lo + held.length, held.end); ++global) *out++ = global;
  }
  return indices;
}

/// The indices of each tile of a rank.
std::vector<Numbers> tile_ranges(const dr::Distribution& distribution, dr::Index rank) {
  std::vector<Numbers> ranges;  // [lo_0, hi_0, lo_1, hi_1, ...] of each tile
  for (const dr::Cell& cell : distribution.cells(rank)) {
    Numbers range;
    for (int axis = 0; axis < distribution.ndim(); ++axis) {
      const dr::Intervals held = distribution.intervals(cell, axis);
      range.push_back(held.start);
      range.push_back(held.end);
    }
    ranges.push_back(range);
  }
  return ranges;
}

/// The axis of that number. \throws Error if there is none.
const dr::AxisSplit& axis_of(const dr::Distribution& distribution, int axis) {
  if (axis < 0 || axis >= distribution.ndim())
    throw dr::Error(dr::text(distribution.name(), ": axis ", axis, " of a tensor of ", distribution.ndim(),
                             " dimensions does not exist, the first is 0"));
  return distribution.axes()[static_cast<std::size_t>(axis)];
}

/// The begin of each block of an axis, ascending; without empty blocks.
Numbers block_begins(const dr::Distribution& distribution, int axis) {
  const dr::AxisSplit& split = axis_of(distribution, axis);
  Numbers begins;
  for (dr::Index j = 0; j < split.block_count() && split.block_begin(j) < split.extent; ++j)
    begins.push_back(split.block_begin(j));
  return begins;
}

/// Runs every copy between this rank and `peer_buffer` of one message, as a strategy would without MPI.
void copy_message(const dr::Message& message, dr::Index element_bytes, const py::buffer& source, py::buffer target) {
  const py::buffer_info from = source.request(), to = target.request(true);
  for (const dr::StridedBlock& block : message.blocks)
    dr::copy(dr::make_copy_block(block, element_bytes), from.ptr, to.ptr, false);
}

/// Moves a whole tensor without MPI: `sources` and `targets` hold the local arrays of ranks 0, 1, 2, ...
void apply(const dr::Distribution& source, const dr::Distribution& target, dr::Index element_bytes,
           const std::vector<py::buffer>& sources, const std::vector<py::buffer>& targets, const Numbers& map) {
  const dr::IndexMap index_map(map, source, target);
  for (std::size_t rank = 0; rank < sources.size(); ++rank) {
    const dr::RankSchedule schedule = dr::make_schedule(source, target, index_map, static_cast<dr::Index>(rank));
    copy_message(schedule.self, element_bytes, sources[rank], targets[rank]);
    for (const dr::Message& message : schedule.sends)
      copy_message(message, element_bytes, sources[rank], targets.at(static_cast<std::size_t>(message.peer)));
  }
}

/// Bytes in node-shared memory, as a Python buffer.
class SharedMemory {
 public:
  explicit SharedMemory(dr::Index nbytes)
      : nbytes_(std::max<dr::Index>(nbytes, 1)), bytes_(dr::Arena::own().allocate(nbytes_, true).bytes) {}
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { dr::Arena::free(bytes_); }

  py::buffer_info buffer() const {
    return {bytes_, 1, py::format_descriptor<std::uint8_t>::format(), 1, {nbytes_}, {dr::Index{1}}};
  }

 private:
  dr::Index nbytes_;
  void* bytes_;
};

/// Whether an array lies in node-shared memory.
bool is_shared(const py::handle& array) {
  return py::isinstance<py::array>(array) && dr::is_in_arena(py::reinterpret_borrow<py::array>(array).data());
}

/// A plan of the library, called with NumPy arrays: the checks that each call needs, and nothing more.
class BoundPlan {
 public:
  using Execute = int (*)(void* plan, const void* source, void* target);
  using Agree = int (*)(std::uintptr_t comm, std::uint64_t number);

  /// \param execute, agree, plan  addresses of `dr_plan_execute`, `dr_python_agree` and the plan.
  BoundPlan(std::uintptr_t execute, std::uintptr_t agree, std::uintptr_t plan, py::dtype source_type,
            py::dtype target_type, Numbers source_shape, Numbers target_shape)
      : execute_(reinterpret_cast<Execute>(execute)),
        agree_(reinterpret_cast<Agree>(agree)),
        plan_(reinterpret_cast<void*>(plan)),
        source_type_(std::move(source_type)),
        target_type_(std::move(target_type)),
        source_shape_(std::move(source_shape)),
        target_shape_(std::move(target_shape)) {}

  /// What dr_plan_set_arrays() was told: strides in bytes; empty: C order.
  void set_strides(Numbers source, Numbers target) {
    source_strides_ = std::move(source);
    target_strides_ = std::move(target);
  }

  /// Whether the arrays are of this plan's types, shapes and strides, apart, and the target can be written.
  bool fits(const py::handle& source, const py::handle& target) const {
    return plan_ && is_part(source, source_type_, source_shape_, source_strides_) &&
           is_part(target, target_type_, target_shape_, target_strides_) &&
           py::reinterpret_borrow<py::array>(target).writeable() &&
           are_apart(py::reinterpret_borrow<py::array>(source), py::reinterpret_borrow<py::array>(target));
  }

  /// What `dr_plan_execute` returns; -1 if the arrays do not fit.
  int run(const py::handle& source, const py::handle& target) const {
    if (!fits(source, target)) return -1;
    const void* const from = py::reinterpret_borrow<py::array>(source).data();
    void* const to = py::reinterpret_borrow<py::array>(target).mutable_data();
    const py::gil_scoped_release released;
    return execute_(plan_, from, to);
  }

  /// As `run`, if all ranks of the communicator come here with the same number and arrays that fit; -1 on all of them
  /// if one does not. Collective.
  int run_if_agreed(std::uintptr_t comm, std::uint64_t number, const py::handle& source,
                    const py::handle& target) const {
    const bool fit = fits(source, target);
    const void* const from = fit ? py::reinterpret_borrow<py::array>(source).data() : nullptr;
    void* const to = fit ? py::reinterpret_borrow<py::array>(target).mutable_data() : nullptr;
    const py::gil_scoped_release released;
    return agree_(comm, fit ? number : 0) ? execute_(plan_, from, to) : -1;
  }

  /// No array fits from now on.
  void release() { plan_ = nullptr; }

 private:
  friend class BoundJointPlan;

  static bool is_part(const py::handle& object, const py::dtype& type, const Numbers& shape, const Numbers& strides) {
    if (!py::isinstance<py::array>(object)) return false;
    const auto array = py::reinterpret_borrow<py::array>(object);
    const auto ndim = static_cast<std::size_t>(array.ndim());
    if (ndim != shape.size() || !std::equal(shape.begin(), shape.end(), array.shape())) return false;
    if (strides.empty() ? (array.flags() & py::array::c_style) == 0
                        : !std::equal(strides.begin(), strides.end(), array.strides()))
      return false;
    return array.dtype().is(type) || array.dtype().equal(type);
  }

  /// The first address of an array, and the one after its last.
  static std::pair<const char*, const char*> span(const py::array& array) {
    const char* begin = static_cast<const char*>(array.data());
    const char* end = begin + (array.size() == 0 ? 0 : array.itemsize());
    for (py::ssize_t d = 0; d < array.ndim() && array.size() > 0; ++d) {
      const py::ssize_t reach = (array.shape(d) - 1) * array.strides(d);
      (reach < 0 ? begin : end) += reach;
    }
    return {begin, end};
  }

  static bool are_apart(const py::array& a, const py::array& b) {
    const auto [a_begin, a_end] = span(a);
    const auto [b_begin, b_end] = span(b);
    return a_end <= b_begin || b_end <= a_begin;
  }

  Execute execute_;
  Agree agree_;
  void* plan_;
  py::dtype source_type_, target_type_;
  Numbers source_shape_, target_shape_, source_strides_, target_strides_;
};

/// A plan of the library for several tensors, called with lists of NumPy arrays in C order.
class BoundJointPlan {
 public:
  using Part = std::tuple<py::dtype, py::dtype, Numbers, Numbers>;  // of a tensor: types and shapes of its two sides

  /// \param execute, agree, plan  as of a BoundPlan.
  BoundJointPlan(std::uintptr_t execute, std::uintptr_t agree, std::uintptr_t plan, const std::vector<Part>& parts)
      : execute_(reinterpret_cast<BoundPlan::Execute>(execute)),
        agree_(reinterpret_cast<BoundPlan::Agree>(agree)),
        plan_(reinterpret_cast<void*>(plan)) {
    for (const auto& [source_type, target_type, source_shape, target_shape] : parts)
      parts_.emplace_back(execute, agree, plan, source_type, target_type, source_shape, target_shape);
  }

  /// What `dr_plan_execute` returns; -1 if the arrays do not fit.
  int run(const py::handle& sources, const py::handle& targets) const {
    std::vector<const void*> from;
    std::vector<void*> to;
    if (!fit(sources, targets, from, to)) return -1;
    const py::gil_scoped_release released;
    return execute_(plan_, from.data(), to.data());
  }

  /// As BoundPlan::run_if_agreed.
  int run_if_agreed(std::uintptr_t comm, std::uint64_t number, const py::handle& sources,
                    const py::handle& targets) const {
    std::vector<const void*> from;
    std::vector<void*> to;
    const bool fits = fit(sources, targets, from, to);
    const py::gil_scoped_release released;
    return agree_(comm, fits ? number : 0) ? execute_(plan_, from.data(), to.data()) : -1;
  }

  /// No array fits from now on.
  void release() { plan_ = nullptr; }

 private:
  /// Whether there is an array of the right kind for each side of each tensor.
  /// \param from, to  their addresses, if so.
  bool fit(const py::handle& sources, const py::handle& targets, std::vector<const void*>& from,
           std::vector<void*>& to) const {
    if (!plan_ || !py::isinstance<py::list>(sources) || !py::isinstance<py::list>(targets)) return false;
    const auto arrays = py::reinterpret_borrow<py::list>(sources), out = py::reinterpret_borrow<py::list>(targets);
    if (arrays.size() != parts_.size() || out.size() != parts_.size()) return false;
    std::vector<std::tuple<const char*, const char*, bool>> spans;  // and whether it is written
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (!parts_[i].fits(arrays[i], out[i])) return false;
      const auto source = py::reinterpret_borrow<py::array>(arrays[i]);
      auto target = py::reinterpret_borrow<py::array>(out[i]);
      from.push_back(source.data());
      to.push_back(target.mutable_data());
      spans.push_back(std::tuple_cat(BoundPlan::span(source), std::make_tuple(false)));
      spans.push_back(std::tuple_cat(BoundPlan::span(target), std::make_tuple(true)));
    }
    return are_apart(spans);
  }

  /// Whether what is written overlaps nothing else.
  static bool are_apart(std::vector<std::tuple<const char*, const char*, bool>>& spans) {
    std::sort(spans.begin(), spans.end());
    const char *end = nullptr, *written_end = nullptr;  // of the spans so far, and of those that are written
    for (const auto& [span_begin, span_end, written] : spans) {
      if (span_begin < (written ? end : written_end) && span_begin < span_end) return false;
      end = std::max(end, span_end);
      if (written) written_end = std::max(written_end, span_end);
    }
    return true;
  }

  BoundPlan::Execute execute_;
  BoundPlan::Agree agree_;
  void* plan_;
  std::vector<BoundPlan> parts_;
};

}  // namespace

/// Default, smallest and largest value of each option, by name.
py::dict option_ranges() {
  py::dict ranges;
  dr::each_option([&](const auto& option) {
    ranges[option.name] = py::make_tuple(option.initial, option.minimum, option.maximum);
  });
  return ranges;
}

PYBIND11_MODULE(_core, module) {
  module.doc() = "Planner and copy kernel of dace_redist (C++), without MPI.";
  py::register_exception<dr::Error>(module, "Error", PyExc_ValueError);

  py::class_<dr::Distribution>(module, "Distribution")
      .def(py::init<const dr::Encoding&, const std::string&>(), py::arg("encoding"), py::arg("name") = "distribution")
      .def_property_readonly("ranks_needed", &dr::Distribution::ranks_needed)
      .def_property_readonly("replicas", &dr::Distribution::replicas)
      .def_property_readonly("first_rank", &dr::Distribution::first_rank)
      .def("block_count", [](const dr::Distribution& self, int axis) { return axis_of(self, axis).block_count(); })
      .def("block_begins", &block_begins)
      .def("uniform_block", [](const dr::Distribution& self, int axis) { return axis_of(self, axis).uniform_block(); })
      .def("local_shape", &dr::Distribution::local_shape)
      .def("owner", &dr::Distribution::owner)
      .def("global_index", &global_index)
      .def("tile_ranges", &tile_ranges);

  module.def(
      "rank_schedule",
      [](const dr::Distribution& source, const dr::Distribution& target, dr::Index rank, bool with_blocks,
         const Numbers& map, dr::Index exchange, dr::Index element_bytes) {
        dr::IndexMap index_map(map, source, target);
        dr::ReplicaPolicy policy;
        if (exchange >= 0)
          policy = dr::reduction_exchanges(source, target, element_bytes).at(static_cast<std::size_t>(exchange));
        const bool within_target = policy.kind == dr::ReplicaPolicy::allgather;
        if (within_target) index_map = {index_map.within_target(), target, target};
        const dr::RankSchedule schedule =
            dr::make_schedule(within_target ? target : source, target, index_map, rank, with_blocks, {}, {}, policy);
        return py::make_tuple(message_list(schedule.sends), message_list(schedule.receives),
                              message_list({schedule.self}));
      },
      py::arg("source"), py::arg("target"), py::arg("rank"), py::arg("with_blocks") = true,
      py::arg("index_map") = Numbers{}, py::arg("exchange") = -1, py::arg("element_bytes") = 0,
      "The messages of one rank: (sends, receives, self), see schedule.py; of one exchange of a reduction, if that is "
      "given, see replica_policy.hpp.");
  module.def(
      "reduction_exchanges",
      [](const dr::Distribution& source, const dr::Distribution& target, dr::Index element_bytes) {
        return dr::reduction_exchanges(source, target, element_bytes).size();
      },
      py::arg("source"), py::arg("target"), py::arg("element_bytes"),
      "Number of exchanges of a reduction, see replica_policy.hpp.");
  module.def(
      "held_elements",
      [](const dr::Distribution& source, const dr::Distribution& target, dr::Index rank, const Numbers& map) {
        const dr::IndexMap index_map(map, source, target);
        dr::RankSchedule schedule =
            dr::make_schedule(source, target, index_map, rank, false, {}, {}, {dr::ReplicaPolicy::all});
        if (schedule.self.count > 0) schedule.receives.push_back(std::move(schedule.self));
        py::array_t<dr::Index> held({static_cast<py::ssize_t>(schedule.receives.size()), py::ssize_t{2}});
        dr::Index* out = held.mutable_data();
        for (const dr::Message& message : schedule.receives) {
          *out++ = message.peer;
          *out++ = message.count;
        }
        return held;
      },
      py::arg("source"), py::arg("target"), py::arg("rank"), py::arg("index_map") = Numbers{},
      "Elements of a rank's target that each rank holds in the source, replicas included: rows of rank and count.");
  module.def("tile_grid", &dr::tile_grid, py::arg("shape"), py::arg("tile"), py::arg("name"),
             "Tiles per dimension, ceil(shape / tile); raises unless both are sizes.");
  module.def(
      "check_index_map",
      [](const dr::Distribution& source, const dr::Distribution& target, const Numbers& map) {
        const dr::IndexMap checked(map, source, target);
      },
      py::arg("source"), py::arg("target"), py::arg("index_map") = Numbers{},
      "Raises unless the encoded map, see schedule.py, takes elements of one tensor to the other.");
  module.def("apply", &apply, py::arg("source"), py::arg("target"), py::arg("element_bytes"), py::arg("sources"),
             py::arg("targets"), py::arg("index_map") = Numbers{},
             "Moves a whole tensor in one process, through the copies every rank would make.");
  module.def("is_khatri_rao_product", &dr::is_khatri_rao_product, py::arg("expression"),
             "Whether an einsum is computed as a tensor times a Khatri-Rao product (MTTKRP), all operands at once.");
  py::class_<SharedMemory>(module, "SharedMemory", py::buffer_protocol())
      .def(py::init<dr::Index>(), py::arg("nbytes"))
      .def_buffer(&SharedMemory::buffer);
  module.def("is_shared", &is_shared, py::arg("array"));
  add_numpy_memory(module);
  py::class_<BoundPlan>(module, "BoundPlan")
      .def(py::init<std::uintptr_t, std::uintptr_t, std::uintptr_t, py::dtype, py::dtype, Numbers, Numbers>())
      .def("set_strides", &BoundPlan::set_strides)
      .def("run", &BoundPlan::run)
      .def("run_if_agreed", &BoundPlan::run_if_agreed)
      .def("release", &BoundPlan::release);
  py::class_<BoundJointPlan>(module, "BoundJointPlan")
      .def(py::init<std::uintptr_t, std::uintptr_t, std::uintptr_t, const std::vector<BoundJointPlan::Part>&>())
      .def("run", &BoundJointPlan::run)
      .def("run_if_agreed", &BoundJointPlan::run_if_agreed)
      .def("release", &BoundJointPlan::release);
  module.attr("option_ranges") = option_ranges();
  module.attr("max_joined_bytes") = dr::max_joined_bytes;
  module.attr("min_remote_run") = dr::min_remote_run;
  module.attr("max_scattered_run") = dr::max_scattered_run;
  module.attr("max_eager_bytes") = dr::max_eager_bytes;
  module.attr("several_receivers") = dr::several_receivers;
  module.attr("max_dims") = dr::max_dims;
}
