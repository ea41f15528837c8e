// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Binds the planner, node-shared memory and the calls of plans to Python. No MPI, no DaCe.

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>
#include <numpy/npy_2_compat.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <tuple>
#include <utility>

#include "core/long_wait.hpp"
#include "core/options.hpp"
#include "einsum.hpp"
#include "file/pieces.hpp"
#include "file/stored_file.hpp"
#include "layout/distribution.hpp"
#include "layout/index_map.hpp"
#include "layout/schedule.hpp"
#include "shm/arena.hpp"
#include "shm/array_allocator.hpp"

namespace py = pybind11;
namespace dr = dace_redist;

namespace {

using Numbers = std::vector<dr::Index>;

/// Messages as arrays: peers, elements and exchanges [messages], the first block of each [messages + 1], source and
/// target offsets [blocks], counts, source and target strides [blocks, dimensions]. Blocks are merged, and those of
/// fewer dimensions begin with dimensions of one element.
py::tuple message_arrays(std::vector<dr::Message> messages) {
  dr::Index block_count = 0;
  int ndim = 0;
  dr::Block block;
  for (dr::Message& message : messages) {
    dr::BlockList blocks;
    for (auto one = message.blocks.begin(); one != message.blocks.end(); ++one) {
      one.read(block.box);
      dr::detail::merge_dimensions(block.box);
      blocks.push_back(block);
      ndim = std::max(ndim, block.box.ndim);
      ++block_count;
    }
    message.blocks = std::move(blocks);
  }
  const auto message_count = static_cast<dr::Index>(messages.size());
  using Array = py::array_t<dr::Index>;
  Array peers(message_count), elements(message_count), exchanges(message_count), first_block(message_count + 1);
  Array offsets[2] = {Array(block_count), Array(block_count)};
  const auto matrix = [&] { return Array({block_count, dr::Index{ndim}}); };
  Array counts = matrix(), strides[2] = {matrix(), matrix()};
  dr::Index m = 0, b = 0;
  first_block.mutable_at(0) = 0;
  for (const dr::Message& message : messages) {
    peers.mutable_at(m) = message.peer;
    elements.mutable_at(m) = message.count;
    exchanges.mutable_at(m) = message.summand;
    for (auto one = message.blocks.begin(); one != message.blocks.end(); ++one) {
      const dr::StridedBlock& box = one.read(block.box);
      offsets[0].mutable_at(b) = box.source_offset;
      offsets[1].mutable_at(b) = box.target_offset;
      const auto fill = [&](Array& array, const auto& values, dr::Index padding) {
        dr::Index* const row = array.mutable_data() + b * ndim;
        std::copy_n(values.begin(), box.ndim, std::fill_n(row, ndim - box.ndim, padding));
      };
      fill(counts, box.counts, 1);
      fill(strides[0], box.source_strides, 0);
      fill(strides[1], box.target_strides, 0);
      ++b;
    }
    first_block.mutable_at(++m) = b;
  }
  return py::make_tuple(peers, elements, exchanges, first_block, offsets[0], offsets[1], counts, strides[0],
                        strides[1]);
}

/// The messages of one rank: sent, received and kept; those of a reduction exchange after exchange.
py::tuple rank_schedule(const dr::Distribution& source, const dr::Distribution& target, dr::Index rank,
                        bool with_blocks, const Numbers& map, bool reduces, dr::Index element_bytes) {
  const dr::IndexMap index_map(map, source, target);
  const bool shares = reduces && dr::scatters_target(source, target, element_bytes);
  const dr::ReplicaPolicy policy{reduces ? dr::ReplicaPolicy::all : dr::ReplicaPolicy::any, shares};
  dr::RankSchedule schedule = dr::make_schedule({source, target, index_map, rank, policy, with_blocks});
  std::vector<dr::Message> kept;
  if (schedule.self.count > 0) kept.push_back(std::move(schedule.self));
  for (std::vector<dr::Message>* messages : {&schedule.sends, &schedule.receives})
    if (reduces)
      std::stable_sort(messages->begin(), messages->end(),
                       [](const dr::Message& a, const dr::Message& b) { return a.summand < b.summand; });
  if (shares) {  // the last exchange: replicas of the target send each other their shares
    const dr::IndexMap within(index_map.within_target(), target, target);
    dr::RankSchedule last =
        dr::make_schedule({target, target, within, rank, {dr::ReplicaPolicy::allgather}, with_blocks});
    const auto append = [&](std::vector<dr::Message>& messages, std::vector<dr::Message>& more) {
      for (dr::Message& message : more) messages.emplace_back(std::move(message)).summand = source.replicas();
    };
    append(schedule.sends, last.sends);
    append(schedule.receives, last.receives);
  }
  return py::make_tuple(message_arrays(std::move(schedule.sends)), message_arrays(std::move(schedule.receives)),
                        message_arrays(std::move(kept)));
}

/// The axis of that number. \throws Error if there is none.
const dr::AxisSplit& axis_of(const dr::Distribution& distribution, int axis) {
  if (axis < 0 || axis >= distribution.ndim())
    throw dr::Error(dr::text(distribution.name(), ": axis ", axis, " of a tensor of ", distribution.ndim(),
                             " dimensions does not exist, the first is 0"));
  return distribution.axes()[static_cast<std::size_t>(axis)];
}

/// Global indices a rank holds along one axis, in local order; of the rank's first cell.
py::array_t<dr::Index> global_index(const dr::Distribution& distribution, dr::Index rank, int axis) {
  axis_of(distribution, axis);
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

/// First index and end of each tile, or of the block, of a rank along each axis: [lo_0, hi_0, lo_1, hi_1, ...].
std::vector<Numbers> cell_ranges(const dr::Distribution& distribution, dr::Index rank) {
  std::vector<Numbers> ranges;
  for (const dr::Cell& cell : distribution.cells(rank)) {
    Numbers& range = ranges.emplace_back();
    for (int axis = 0; axis < distribution.ndim(); ++axis) {
      const dr::Intervals held = distribution.intervals(cell, axis);
      range.insert(range.end(), {held.start, held.end});
    }
  }
  return ranges;
}

/// The range of each rank's block, [ranks, ndim, 2]; zeros of ranks outside of the grid.
py::array_t<dr::Index> block_bounds(const dr::Distribution& distribution) {
  Numbers bounds;
  const dr::Index ndim = distribution.ndim();
  for (dr::Index rank = 0; rank < distribution.ranks_needed(); ++rank) {
    const std::vector<Numbers> ranges = cell_ranges(distribution, rank);
    const Numbers range = ranges.empty() ? Numbers(static_cast<std::size_t>(2 * ndim)) : ranges.front();
    bounds.insert(bounds.end(), range.begin(), range.end());
  }
  return py::array_t<dr::Index>({distribution.ranks_needed(), ndim, dr::Index{2}}, bounds.data());
}

/// The messages of all ranks, of one replica of the source or of all.
py::array_t<dr::Index> messages(const dr::Distribution& source, const dr::Distribution& target, const Numbers& map,
                                bool all_replicas) {
  const dr::IndexMap index_map(map, source, target);
  const dr::ReplicaPolicy policy{all_replicas ? dr::ReplicaPolicy::all : dr::ReplicaPolicy::any};
  Numbers rows;  // [messages, 3]
  for (dr::Index rank = 0; rank < target.ranks_needed(); ++rank)
    for (const dr::Message& message : dr::received_messages({source, target, index_map, rank, policy, false}))
      rows.insert(rows.end(), {message.peer, rank, message.count});
  return py::array_t<dr::Index>({static_cast<dr::Index>(rows.size() / 3), dr::Index{3}}, rows.data());
}

/// The messages between ranks where replicas, or sums of partial results, move by nodes.
/// \param in_order  Sums are those of a tree, see ReplicaPolicy.
/// \param nodes  [ranks] node of each, a rank on it.
py::array_t<dr::Index> node_messages(const dr::Distribution& source, const dr::Distribution& target, const Numbers& map,
                                     bool sums, bool in_order, const std::vector<int>& nodes) {
  using Policy = dr::ReplicaPolicy;
  const dr::IndexMap index_map(map, source, target);
  std::vector<Policy> steps{{Policy::to_nodes}};
  if (sums) steps = dr::steps_of_sums(source.replicas(), in_order);
  if (target.replicas() > 1)
    for (const Policy::Kind kind : {Policy::between_nodes, Policy::within_nodes}) steps.push_back({kind, false, sums});
  Numbers rows;  // [messages, 4]
  for (std::size_t step = 0; step < steps.size(); ++step)
    for (dr::Index rank = 0; rank < static_cast<dr::Index>(nodes.size()); ++rank) {
      const dr::ScheduleArguments arguments{source, target,  index_map, rank,  steps[step],
                                            false,  nullptr, nullptr,   &nodes};
      for (const dr::Message& message : dr::received_messages(arguments))
        if (message.peer != rank)
          rows.insert(rows.end(), {message.peer, rank, message.count, static_cast<dr::Index>(step)});
    }
  return py::array_t<dr::Index>({static_cast<dr::Index>(rows.size() / 4), dr::Index{4}}, rows.data());
}

/// The begin of each block of an axis, ascending; without empty blocks.
Numbers block_begins(const dr::Distribution& distribution, int axis) {
  const dr::AxisSplit& split = axis_of(distribution, axis);
  Numbers begins;
  for (dr::Index j = 0; j < split.block_count() && split.block_begin(j) < split.extent; ++j)
    if (split.block_begin(j) < split.block_begin(j + 1)) begins.push_back(split.block_begin(j));
  return begins;
}

/// An array of bytes, at least one, in node-shared memory.
py::array_t<std::uint8_t> shared_bytes(dr::Index nbytes) {
  const dr::Index count = std::max<dr::Index>(nbytes, 1);
  std::unique_ptr<void, void (*)(void*)> bytes(dr::Arena::allocate(count, true).bytes, &dr::Arena::free);
  const py::capsule owner(bytes.get(), &dr::Arena::free);
  return py::array_t<std::uint8_t>(count, static_cast<std::uint8_t*>(bytes.release()), owner);
}

/// Whether an array lies in node-shared memory.
bool is_shared(const py::handle& array) {
  return py::isinstance<py::array>(array) && dr::is_in_arena(py::reinterpret_borrow<py::array>(array).data());
}

// NumPy's interface for allocators (NumPy Enhancement Proposal 49).
void* allocate(void*, std::size_t nbytes) { return dr::allocate_array(nbytes, false); }
void* allocate_zeros(void*, std::size_t count, std::size_t nbytes) {
  if (nbytes > 0 && count > PTRDIFF_MAX / nbytes) return nullptr;
  return dr::allocate_array(count * nbytes, true);
}
void* resize(void*, void* array, std::size_t nbytes) { return dr::resize_array(array, nbytes); }
void release(void*, void* array, std::size_t) { dr::free_array(array); }

PyDataMem_Handler handler{"dace_redist_node_shared", 1, {nullptr, allocate, allocate_zeros, resize, release}};

/// From now on NumPy allocates by an allocator in this context; None: by its own. \return the one before.
py::object set_allocator(const py::object& allocator) {
  PyObject* const before = PyDataMem_SetHandler(allocator.is_none() ? nullptr : allocator.ptr());
  if (!before) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(before);
}

/// A contraction of the library, called with NumPy arrays of its type.
class BoundContraction {
 public:
  using Run = int (*)(void* contraction, const dr::Index* layouts, dr::Index count, const void* const* operands,
                      void* result, const void* alpha, const void* beta);

  /// \param run, contraction  addresses of `dr_python_contraction_run` and the contraction.
  /// \param dimensions  of each operand and of the result.
  BoundContraction(std::uintptr_t run, std::uintptr_t contraction, std::vector<py::ssize_t> dimensions)
      : run_(reinterpret_cast<Run>(run)),
        contraction_(reinterpret_cast<void*>(contraction)),
        dimensions_(std::move(dimensions)) {}

  /// The code of `dr_python_contraction_run`. \param alpha, beta  arrays of one element.
  int run(const std::vector<py::array>& operands, py::array result, const py::array& alpha,
          const py::array& beta) const {
    Numbers layouts;
    std::vector<const void*> addresses;
    for (const py::array& operand : operands) {
      add_layout(operand, addresses.size(), layouts);
      addresses.push_back(operand.data());
    }
    add_layout(result, addresses.size(), layouts);
    void* const target = result.mutable_data();
    const void *const factor = alpha.data(), *const weight = beta.data();
    const py::gil_scoped_release released;
    return run_(contraction_, layouts.data(), static_cast<dr::Index>(layouts.size()), addresses.data(), target, factor,
                weight);
  }

 private:
  /// Adds shape and strides, in elements. A scalar may be a vector of one element.
  void add_layout(const py::array& array, std::size_t number, Numbers& layouts) const {
    if (number >= dimensions_.size()) throw dr::Error("the contraction has fewer arrays");
    if (dimensions_[number] == 0) return;
    if (array.ndim() != dimensions_[number])
      throw dr::Error(dr::text("array ", number, " has ", dimensions_[number], " dimensions, got ", array.ndim()));
    layouts.insert(layouts.end(), array.shape(), array.shape() + array.ndim());
    for (py::ssize_t d = 0; d < array.ndim(); ++d) layouts.push_back(array.strides(d) / array.itemsize());
  }

  Run run_;
  void* contraction_;
  std::vector<py::ssize_t> dimensions_;
};

/// Waits for a request by `dr_request_wait`, and writes its code where the caller finds it even if a handler of a
/// signal raises an exception before this returns.
void wait_for(std::uintptr_t wait, std::uintptr_t request, std::uintptr_t code) {
  using Wait = int (*)(void** request);
  const py::gil_scoped_release released;
  *reinterpret_cast<int*>(code) = reinterpret_cast<Wait>(wait)(reinterpret_cast<void**>(request));
}

/// A plan of the library, called with a NumPy array and another one, or with lists or tuples of them: the checks that
/// each call needs, and nothing more.
class BoundPlan {
 public:
  using Execute = int (*)(void* plan, const void* source, void* target);
  using Start = int (*)(void* plan, const void* source, void* target, int progress, void** request);
  using Agree = int (*)(std::uintptr_t comm, std::uint64_t number);
  using Part = std::tuple<py::dtype, py::dtype, Numbers, Numbers>;  // of a tensor: types and shapes of its two sides

  /// \param execute, start, agree, plan  addresses of `dr_plan_execute`, `dr_plan_start`, `dr_python_agree` and the
  ///     plan; without a plan no array fits.
  /// \param in_place  whether a tensor's source and target may be one array.
  /// \param lists     whether calls have lists of arrays; else parts has one element.
  BoundPlan(std::uintptr_t execute, std::uintptr_t start, std::uintptr_t agree, std::uintptr_t plan,
            const std::vector<Part>& parts, std::vector<bool> in_place, bool lists)
      : execute_(reinterpret_cast<Execute>(execute)),
        start_(reinterpret_cast<Start>(start)),
        agree_(reinterpret_cast<Agree>(agree)),
        plan_(reinterpret_cast<void*>(plan)),
        in_place_(std::move(in_place)),
        lists_(lists) {
    for (const auto& [source_type, target_type, source_shape, target_shape] : parts) {
      sources_.emplace_back(source_type, source_shape);
      targets_.emplace_back(target_type, target_shape);
    }
  }

  /// The strides of dr_python_plan_set_arrays(), in bytes, of each source and target; empty: C order.
  void set_strides(const std::vector<std::pair<Numbers, Numbers>>& strides) {
    if (strides.size() != sources_.size())
      throw dr::Error(dr::text("strides of ", sources_.size(), " tensors are needed, got ", strides.size()));
    for (std::size_t t = 0; t < sources_.size(); ++t) {
      sources_[t].set_strides(strides[t].first);
      targets_[t].set_strides(strides[t].second);
    }
  }

  /// The code of `dr_plan_execute`; -1 if the arrays do not fit.
  int run(const py::handle& source, const py::handle& target) const {
    Arrays arrays;
    if (!fit(source, target, arrays)) return -1;
    const py::gil_scoped_release released;
    return execute(arrays);
  }

  /// The code of `dr_plan_start`, -1 if the arrays do not fit.
  /// \param request  address of where the library's request is written.
  int start(const py::handle& source, const py::handle& target, int progress, std::uintptr_t request) const {
    Arrays arrays;
    if (!fit(source, target, arrays)) return -1;
    const py::gil_scoped_release released;
    return start_(plan_, arrays.sources.data(), arrays.targets.data(), progress, reinterpret_cast<void**>(request));
  }

  /// As `run`, if all ranks of the communicator call this with the same number and arrays that fit; -1 on all of them
  /// if one does not. Collective.
  int run_if_agreed(std::uintptr_t comm, std::uint64_t number, const py::handle& source,
                    const py::handle& target) const {
    Arrays arrays;
    const bool fits = fit(source, target, arrays);
    const py::gil_scoped_release released;
    return agree_(comm, fits ? number : 0) ? execute(arrays) : -1;
  }

  /// New arrays for the targets, in C order and not initialised: a list, or the only one.
  py::object new_targets() const {
    py::list targets(targets_.size());
    for (std::size_t t = 0; t < targets_.size(); ++t) targets[t] = targets_[t].new_array();
    return lists_ ? py::object(targets) : py::object(targets[0]);
  }

  /// No array fits from now on.
  void release() { plan_ = nullptr; }

 private:
  /// The arrays on one side of a tensor.
  class Side {
   public:
    Side(py::dtype type, Numbers shape) : type_(std::move(type)), shape_(std::move(shape)) { set_strides({}); }

    void set_strides(const Numbers& strides) {
      if (!strides.empty() && strides.size() != shape_.size())
        throw dr::Error(
            dr::text("an array of ", shape_.size(), " dimensions has as many strides, got ", strides.size()));
      strides_ = strides;
      nbytes_ = type_.itemsize();
      for (std::size_t d = 0; d < shape_.size(); ++d)
        nbytes_ = strides.empty() ? nbytes_ * shape_[d] : nbytes_ + (shape_[d] - 1) * std::abs(strides[d]);
      if (std::count(shape_.begin(), shape_.end(), 0) > 0) nbytes_ = 0;
    }

    /// Whether the object is an array of this type, shape and strides.
    bool is_of(const py::handle& object) const {
      if (!PyArray_CheckExact(object.ptr())) return false;  // as masked arrays, which Python refuses
      const auto array = py::reinterpret_borrow<py::array>(object);
      if (static_cast<std::size_t>(array.ndim()) != shape_.size() ||
          !std::equal(shape_.begin(), shape_.end(), array.shape()))
        return false;
      if (strides_.empty() ? (array.flags() & py::array::c_style) == 0
                           : !std::equal(strides_.begin(), strides_.end(), array.strides()))
        return false;
      return array.dtype().is(type_) || array.dtype().equal(type_);
    }

    dr::Index nbytes() const { return nbytes_; }

    /// A new array of this type and shape, in C order.
    py::object new_array() const {
      PyObject* const type = py::dtype(type_).release().ptr();
      PyObject* const array =
          PyArray_NewFromDescr(&PyArray_Type, reinterpret_cast<PyArray_Descr*>(type), static_cast<int>(shape_.size()),
                               shape_.data(), nullptr, nullptr, 0, nullptr);
      if (!array) throw py::error_already_set();
      return py::reinterpret_steal<py::object>(array);
    }

   private:
    py::dtype type_;
    Numbers shape_, strides_;
    dr::Index nbytes_ = 0;  // from the first address of an array to the one after its last
  };

  /// The addresses of the arrays of a call, [tensors].
  struct Arrays {
    std::vector<const void*> sources;
    std::vector<void*> targets;
  };

  int execute(const Arrays& arrays) const {
    return execute_(plan_, arrays.sources.data(), const_cast<void**>(arrays.targets.data()));
  }

  /// Bytes from the first address of an array to the one after its last.
  struct Span {
    const char *begin, *end;
    bool written;
  };

  /// Whether the call has an array of the right kind for each side of each tensor, targets can be written, and overlap
  /// nothing. \param arrays  their addresses, if so.
  bool fit(const py::handle& source, const py::handle& target, Arrays& arrays) const {
    if (!plan_) return false;
    spans_.clear();
    if (!lists_) return add(0, source, target, arrays) && are_apart();
    const auto count = static_cast<Py_ssize_t>(sources_.size());
    for (PyObject* list : {source.ptr(), target.ptr()})
      if (!(PyList_Check(list) || PyTuple_Check(list)) || PySequence_Fast_GET_SIZE(list) != count) return false;
    for (Py_ssize_t t = 0; t < count; ++t)
      if (!add(t, PySequence_Fast_GET_ITEM(source.ptr(), t), PySequence_Fast_GET_ITEM(target.ptr(), t), arrays))
        return false;
    return are_apart();
  }

  bool add(std::size_t tensor, const py::handle& source, const py::handle& target, Arrays& arrays) const {
    if (!sources_[tensor].is_of(source) || !targets_[tensor].is_of(target)) return false;
    auto written = py::reinterpret_borrow<py::array>(target);
    if (!written.writeable()) return false;
    arrays.sources.push_back(py::reinterpret_borrow<py::array>(source).data());
    arrays.targets.push_back(written.mutable_data());
    if (!in_place_[tensor] || !source.is(target)) add_span(arrays.sources.back(), sources_[tensor].nbytes(), false);
    add_span(arrays.targets.back(), targets_[tensor].nbytes(), true);
    return true;
  }

  void add_span(const void* array, dr::Index nbytes, bool written) const {
    const char* const begin = static_cast<const char*>(array);
    if (nbytes > 0) spans_.push_back({begin, begin + nbytes, written});
  }

  /// Whether no array that is written overlaps another one.
  bool are_apart() const {
    std::sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
    const char *read = nullptr, *written = nullptr;  // ends of what lies before
    for (const Span& span : spans_) {
      if (span.begin < written || (span.written && span.begin < read)) return false;
      const char*& end = span.written ? written : read;
      end = std::max(end, span.end);
    }
    return true;
  }

  Execute execute_;
  Start start_;
  Agree agree_;
  void* plan_;
  std::vector<bool> in_place_;  // [tensors]
  bool lists_;
  std::vector<Side> sources_, targets_;  // [tensors]
  mutable std::vector<Span> spans_;      // of the call at hand, which has the GIL
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

/// Reads or writes a box of an array in an open file. \param array  C-order array of the box.
void transfer_box(int file, bool reading, const Numbers& shape, const Numbers& lower, py::array array,
                  dr::Index offset) {
  const dr::FileBox box{shape, lower, {array.shape(), array.shape() + array.ndim()}, array.itemsize(), offset};
  void* const memory = reading ? array.mutable_data() : const_cast<void*>(array.data());
  const py::gil_scoped_release others_run;
  dr::transfer_box(file, reading, box, static_cast<char*>(memory));
}

/// First index, shape, axis that is cut, and elements per rank along it, of each part; see file/pieces.hpp.
std::vector<std::tuple<Numbers, Numbers, std::size_t, dr::Index>> file_rounds(Numbers shape, Numbers unit, Numbers lead,
                                                                              dr::Index element_bytes, dr::Index ranks,
                                                                              dr::Index max_bytes,
                                                                              dr::Index min_share) {
  const dr::FileLayout layout{std::move(shape), element_bytes, std::move(unit), std::move(lead)};
  std::vector<std::tuple<Numbers, Numbers, std::size_t, dr::Index>> found;
  for (dr::Round& one : dr::rounds(layout, {ranks, max_bytes, min_share}))
    found.emplace_back(std::move(one.lower), std::move(one.extents), one.axis, one.block);
  return found;
}

PYBIND11_MODULE(_core, module) {
  module.doc() = "Planner and node-shared memory of dace_redist (C++), without MPI.";
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const dr::FileError& error) {
      errno = error.number;
      error.number ? (void)PyErr_SetFromErrno(PyExc_OSError) : PyErr_SetString(PyExc_ValueError, error.what());
    } catch (const dr::Error& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
    }
  });

  py::class_<dr::Distribution>(module, "Distribution")
      .def(py::init([](const py::array_t<dr::Index, py::array::c_style | py::array::forcecast>& encoding,
                       const std::string& name) {
             return dr::Distribution({encoding.data(), encoding.data() + encoding.size()}, name);
           }),
           py::arg("encoding"), py::arg("name") = "distribution")
      .def_property_readonly("ranks_needed", &dr::Distribution::ranks_needed)
      .def_property_readonly("replicas", &dr::Distribution::replicas)
      .def_property_readonly("first_rank", &dr::Distribution::first_rank)
      .def("block_count", [](const dr::Distribution& self, int axis) { return axis_of(self, axis).block_count(); })
      .def("block_begins", &block_begins)
      .def("block_bounds", &block_bounds)
      .def("uniform_block", [](const dr::Distribution& self, int axis) { return axis_of(self, axis).uniform_block(); })
      .def("local_shape", &dr::Distribution::local_shape)
      .def("largest_block", &dr::Distribution::largest_block)
      .def("owner", &dr::Distribution::owner)
      .def("global_index", &global_index)
      .def("tile_ranges", &cell_ranges);

  module.def("rank_schedule", &rank_schedule, py::arg("source"), py::arg("target"), py::arg("rank"),
             py::arg("with_blocks") = true, py::arg("index_map") = Numbers{}, py::arg("reduces") = false,
             py::arg("element_bytes") = 0, "Messages of one rank as arrays: sent, received and kept.");
  module.def(
      "reduction_exchanges",
      [](const dr::Distribution& source, const dr::Distribution& target, dr::Index element_bytes) {
        return source.replicas() + (dr::scatters_target(source, target, element_bytes) ? 1 : 0);
      },
      py::arg("source"), py::arg("target"), py::arg("element_bytes"),
      "Number of exchanges of a reduction: its summands, and the exchange of slices if the target is scattered.");
  module.def("messages", &messages, py::arg("source"), py::arg("target"), py::arg("index_map") = Numbers{},
             py::arg("all_replicas") = false, "Rows of sender, receiver and elements, self copies among them.");
  module.def("node_messages", &node_messages, py::arg("source"), py::arg("target"), py::arg("index_map"),
             py::arg("sums"), py::arg("in_order"), py::arg("nodes"),
             "Rows of sender, receiver, elements and number of the exchange where replicas or sums move by nodes.");
  module.def("tile_grid", &dr::tile_grid, py::arg("shape"), py::arg("tile"), py::arg("name"), "Tiles per dimension.");
  module.def(
      "check_index_map",
      [](const dr::Distribution& source, const dr::Distribution& target, const Numbers& map) {
        const dr::IndexMap checked(map, source, target);
      },
      py::arg("source"), py::arg("target"), py::arg("index_map") = Numbers{},
      "Raises unless the encoded map, see schedule.py, takes elements of one tensor to the other.");
  module.def("is_khatri_rao_product", &dr::contraction::is_khatri_rao_product, py::arg("expression"),
             "Whether an einsum is computed as a tensor times a Khatri-Rao product (MTTKRP), all operands at once.");
  module.def("transfer_box", &transfer_box, "Reads or writes a box of an array in an open file.");
  py::class_<dr::NewFile>(module, "NewFile")  // with paths as bytes
      .def(py::init<const std::string&, bool, const std::string&>(), py::arg("path"), py::arg("is_folder") = false,
           py::arg("beside") = "", "As in stored_file.hpp.")
      .def_property_readonly("path", [](const dr::NewFile& self) { return py::bytes(self.path()); })
      .def("replace", &dr::NewFile::replace, py::call_guard<py::gil_scoped_release>())
      .def("discard", &dr::NewFile::discard, py::call_guard<py::gil_scoped_release>());
  module.def(
      "read_npy_header",
      [](const std::string& path) {
        const dr::NpyHeader header = dr::read_npy_header(dr::open_file(path, "re"));
        return py::make_tuple(header.type, header.fortran_order, header.shape, header.offset);
      },
      "Type as a literal, whether the order is Fortran's, shape, and position of the first element.");
  module.def(
      "write_npy_header",
      [](const std::string& path, const std::string& type, bool fortran_order, const Numbers& shape, dr::Index nbytes) {
        return dr::write_npy_header(dr::open_file(path, "r+e"), {type, fortran_order, shape}, nbytes);
      },
      "Makes room for an array in an empty file; returns the position of its first element.");
  module.def("reserve", &dr::reserve, py::arg("file"), py::arg("position"), py::arg("nbytes"),
             py::call_guard<py::gil_scoped_release>(), "As in stored_file.hpp.");
  module.def("file_rounds", &file_rounds, "Parts of an array in a file, of which each rank takes a piece.");
  module.def("shared_bytes", &shared_bytes, py::arg("nbytes"), "An array of bytes in node-shared memory.");
  module.def("is_shared", &is_shared, py::arg("array"));
  if (PyArray_ImportNumPyAPI() < 0) throw py::error_already_set();
  module.attr("node_shared_allocator") = py::capsule(&handler, "mem_handler");
  module.def("set_allocator", &set_allocator, py::arg("allocator"),
             "From now on NumPy allocates by an allocator in this context; None: by its own. Returns the one before.");
  module.def("wait_message_seconds", &dr::wait_message_seconds);
  module.def("presence_name", &dr::presence_name, py::arg("rank"), py::arg("operation"));
  module.def("wait_message", &dr::wait_message, py::arg("rank"), py::arg("seconds"), py::arg("operation"),
             py::arg("missing"), py::arg("elsewhere"), "As in long_wait.hpp.");
  module.def("wait_for", &wait_for, py::arg("wait"), py::arg("request"), py::arg("code"));
  py::class_<BoundContraction>(module, "BoundContraction")
      .def(py::init<std::uintptr_t, std::uintptr_t, std::vector<py::ssize_t>>())
      .def("run", &BoundContraction::run);
  py::class_<BoundPlan>(module, "BoundPlan")
      .def(py::init<std::uintptr_t, std::uintptr_t, std::uintptr_t, std::uintptr_t, const std::vector<BoundPlan::Part>&,
                    std::vector<bool>, bool>())
      .def("set_strides", &BoundPlan::set_strides)
      .def("run", &BoundPlan::run)
      .def("start", &BoundPlan::start)
      .def("run_if_agreed", &BoundPlan::run_if_agreed)
      .def("new_targets", &BoundPlan::new_targets)
      .def("release", &BoundPlan::release);
  module.attr("option_ranges") = option_ranges();
  module.attr("piece_bytes") = dr::piece_bytes;
  module.attr("min_share_bytes") = dr::min_share_bytes;
  module.attr("min_run_bytes") = dr::min_run_bytes;
  module.attr("max_run_bytes") = dr::max_run_bytes;
  module.attr("max_eager_bytes") = dr::max_eager_bytes;
  module.attr("min_shared_bytes") = dr::min_shared_bytes;
  module.attr("cache_line_bytes") = dr::cache_line_bytes;
  module.attr("many_receivers") = dr::many_receivers;
  module.attr("min_many_part_bytes") = dr::min_many_part_bytes;
  module.attr("max_joined_bytes") = dr::max_joined_bytes;
  module.attr("max_often_joined_bytes") = dr::max_often_joined_bytes;
  module.attr("min_often_joined") = dr::min_often_joined;
  module.attr("max_scattered_run") = dr::max_scattered_run;
  module.attr("several_receivers") = dr::several_receivers;
}
