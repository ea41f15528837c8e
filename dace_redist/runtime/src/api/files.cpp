// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/handles.hpp"
#include "core/agreement.hpp"
#include "file/pieces.hpp"
#include "file/stored_file.hpp"
#include "shm/array_allocator.hpp"

namespace dace_redist {
namespace {

std::vector<Index> shape_of(const Distribution& distribution) {
  std::vector<Index> shape;
  for (const AxisSplit& axis : distribution.axes()) shape.push_back(axis.extent);
  return shape;
}

/// A call of dr_load() or dr_save(). Collective.
class FileCall {
 public:
  FileCall(MPI_Comm comm, bool reading, const dr_file* file, const dr_distribution* distribution, const void* array)
      : comm_(comm), context_(Context::of(comm)), reading_(reading) {
    all_or_none(context_->comm(), [&] { take(file, distribution, array); });
    check_same(context_->comm(),
               text("path\n", file_.path, "\ntype\n", file_.type, "\nraw\n", file_.raw, "\nelement_bytes\n",
                    file_.element_bytes, "\noffset\n", file_.offset, "\nfortran_order\n", file_.fortran_order,
                    "\nranks\n", file_.ranks, "\n", facts_of(*distribution_, "")));
  }

  void run() {
    together([&] {
      if (context_->rank() == 0) open();
    });
    share_head();
    const bool is_direct = each_takes_its_own();
    choose_ranks(is_direct);
    together([&] {
      if (!opened_ && std::count(ranks_.begin(), ranks_.end(), context_->rank()) > 0) open();
    });
    if (is_direct)
      transfer(distribution(), zeros(), array_);
    else
      exchange();
    together([&] {
      if (opened_ && !reading_) flush(opened_);
    });
    together([&] {
      if (new_file_) new_file_->replace();
    });
  }

 private:
  /// Takes over arguments. \throws Error if one is wrong.
  void take(const dr_file* file, const dr_distribution* handle, const void* array) {
    check_pointer(file, "file");
    check_pointer(file->path, "file->path");
    handles<dr_distribution>().check(handle, "distribution");
    file_ = *file;
    distribution_ = &handle->checked;
    array_ = static_cast<char*>(const_cast<void*>(array));
    const auto fail = [](const auto&... reason) { throw ArgumentError(text(reason...)); };
    const int first = file_.raw ? DR_OPAQUE : DR_BOOL, size = context_->size(), rank = context_->rank();
    if (distribution().ranks_needed() > size)
      fail("the distribution needs ", distribution().ranks_needed(), " ranks, but the communicator has ", size);
    if (file_.type < first || file_.type >= element_type_count)
      fail("file->type must be a dr_type from ", first, " to ", element_type_count - 1, " of a ",
           file_.raw ? "raw" : ".npy", " file, got ", file_.type);
    if (file_.type != DR_OPAQUE) file_.element_bytes = element_bytes_of(static_cast<ElementType>(file_.type));
    if (file_.element_bytes < 1) fail("file->element_bytes must be at least 1, got ", file_.element_bytes);
    if (file_.offset < 0 || (file_.offset > 0 && !file_.raw))
      fail("file->offset must be 0, or more in a raw file, got ", file_.offset);
    if (file_.ranks < 0 || file_.ranks > size) fail("file->ranks must be from 0 to ", size, ", got ", file_.ranks);
    if (!array_ && !distribution().cells(rank).empty() &&
        checked_product(distribution().local_shape(rank), "array") > 0)
      fail("array is null, but this rank has elements");
    std::vector<Index> extents = shape_of(distribution());
    extents.push_back(file_.element_bytes);
    nbytes_ = checked_product(extents, "array in bytes");
    if (file_.offset > std::numeric_limits<Index>::max() - nbytes_)
      fail("file->offset must be such that the array ends before byte 2^63, got ", file_.offset, " and ", nbytes_,
           " bytes");
  }

  const Distribution& distribution() const { return *distribution_; }
  std::vector<Index> zeros() const { return std::vector<Index>(distribution().axes().size(), 0); }
  /// Whether the order of storage is the reverse of that of the distribution's axes.
  bool is_reversed() const { return distribution().ndim() > 1 && (file_.fortran_order != 0) != in_fortran(); }
  /// Turns a list with an entry per axis of the distribution to the order of storage, or back.
  std::vector<Index> ordered(std::vector<Index> list) const {
    if (is_reversed()) std::reverse(list.begin(), list.end());
    return list;
  }

  template <class Work>
  void together(const Work& work) const {
    all_or_none(context_->comm(), [&] {
      try {
        work();
      } catch (const FileError& error) {
        throw FileError(text(file_.path, ": ", error.what()));
      }
    });
  }

  /// Opens the file to be read or the new one, which rank 0 makes.
  void open() {
    NpyHeader header{file_.raw ? "" : npy_type(static_cast<ElementType>(file_.type)), file_.fortran_order != 0,
                     shape_of(distribution())};
    if (in_fortran()) std::reverse(header.shape.begin(), header.shape.end());
    if (reading_) {
      opened_ = open_file(file_.path, "re");
      if (!file_.raw) check_header(header, read_npy_header(opened_));
      const Index end = file_.offset + nbytes_, there = nbytes_of(opened_);
      if (nbytes_ > 0 && there < end) throw FileError(text("has ", there, " bytes, but its array ends at byte ", end));
      return;
    }
    if (file_.raw) {
      opened_ = open_in_place(file_.path);
      if (context_->rank() == 0 && nbytes_of(opened_) < file_.offset + nbytes_)
        reserve(fileno(opened_.get()), file_.offset, nbytes_);
      return;
    }
    if (context_->rank() == 0) {
      new_file_ = std::make_unique<NewFile>(file_.path);
      new_path_ = new_file_->path();
    }
    opened_ = open_file(new_path_, "r+e");
    if (context_->rank() == 0) file_.offset = write_npy_header(opened_, header, nbytes_);
  }

  void check_header(const NpyHeader& expected, const NpyHeader& found) {
    if (found.type != expected.type)
      throw FileError(text("has elements of type ", found.type, ", expected ", expected.type));
    if (found.shape != expected.shape)
      throw FileError(text("has an array of shape ", tuple_text(found.shape), ", but the distribution has ",
                           tuple_text(expected.shape)));
    if (context_->rank() > 0 && (found.fortran_order != expected.fortran_order || found.offset != file_.offset))
      throw FileError("is another file than on rank 0");
    file_.fortran_order = found.fortran_order ? 1 : 0;
    file_.offset = found.offset;
  }

  /// What rank 0 knows of the file.
  void share_head() {
    std::int64_t head[] = {file_.fortran_order, file_.offset, opened_ ? block_bytes_of(opened_) : 0};
    check(MPI_Bcast(head, 3, MPI_INT64_T, 0, context_->comm()), "MPI_Bcast");
    file_.fortran_order = static_cast<int>(head[0]);
    file_.offset = head[1];
    min_run_ = reading_ ? std::clamp<Index>(head[2], min_run_bytes, max_run_bytes) : max_run_bytes;
    new_path_ = broadcast_text(context_->comm(), new_path_, 0);
  }

  /// Whether each element is in the part of one rank, in long runs of the file.
  bool each_takes_its_own() const {
    const Distribution& own = distribution();
    if (file_.ranks > 0 || is_reversed() || !own.blocked() || own.has_margins() || own.replicas() > 1) return false;
    for (int rank = 0; rank < context_->size(); ++rank)
      for (const Cell& cell : own.cells(rank)) {
        const FileBox box = box_of(own, cell, zeros());
        if (box.run_bytes() < std::min(min_run_, box.nbytes())) return false;
        for (int axis = 0; axis < own.ndim(); ++axis)
          if (own.intervals(cell, axis).count > 1) return false;
      }
    return true;
  }

  void choose_ranks(bool is_direct) {
    const Index size = context_->size(), fitting = std::clamp<Index>(nbytes_ / min_share_bytes, 1, size);
    const Index count = is_direct ? size : file_.ranks > 0 ? file_.ranks : fitting;
    for (Index number = 0; number < count; ++number) ranks_.push_back(number * size / count);
  }

  /// Where a cell of consecutive indices lies in the file. \param lower  of all cells, in the order of storage.
  FileBox box_of(const Distribution& side, const Cell& cell, std::vector<Index> lower) const {
    FileBox box{ordered(shape_of(distribution())), std::move(lower), {}, file_.element_bytes, file_.offset};
    for (int axis = 0; axis < side.ndim(); ++axis) {
      const Intervals own = side.intervals(cell, axis);
      box.lower[static_cast<std::size_t>(axis)] += own.start;
      box.extents.push_back(own.size());
    }
    return box;
  }

  /// Reads or writes this rank's part of a distribution in the order of storage.
  void transfer(const Distribution& side, const std::vector<Index>& lower, char* bytes) const {
    together([&] {
      for (const Cell& cell : side.cells(context_->rank()))
        transfer_box(fileno(opened_.get()), reading_, box_of(side, cell, lower), bytes);
    });
  }

  /// Moves pieces between the file and buffers, and between these and the arrays.
  void exchange() {
    const FileLayout layout{ordered(shape_of(distribution())), file_.element_bytes,
                            std::vector<Index>(zeros().size(), 1), zeros()};
    const std::vector<Round> all = rounds(layout, {static_cast<Index>(ranks_.size()), piece_bytes, min_share_bytes});
    std::unique_ptr<void, void (*)(void*)> buffer(nullptr, free_array);
    together([&] {
      Index most = 0;
      for (const Round& round : all) most = std::max(most, round.elements_of_piece() * file_.element_bytes);
      buffer.reset(allocate_array(static_cast<std::size_t>(most), false, 0));
      if (!buffer) throw std::bad_alloc();
    });
    for (const Round& round : all) {
      const Distribution pieces(round.pieces(ranks_), "pieces");
      const auto piece = static_cast<char*>(buffer.get());
      if (reading_) transfer(pieces, round.lower, piece);
      const PlanPointer plan = Plan::make(comm_, [&] { return problem(round, pieces); });
      const void* const source = reading_ ? piece : array_;
      void* const target = reading_ ? array_ : piece;
      together([&] { plan->run(&source, &target); });  // a rank may have its part before another fails
      if (!reading_) transfer(pieces, round.lower, piece);
    }
  }

  Problem problem(const Round& round, const Distribution& pieces) const {
    const Index ndim = distribution().ndim();
    Encoding map;
    for (Index axis = 0; axis < ndim; ++axis) map.push_back(is_reversed() ? ndim - 1 - axis : axis);
    std::vector<Index> offsets[] = {zeros(), ordered(round.lower), ordered(round.extents)};
    if (!reading_) std::swap(offsets[0], offsets[1]);
    if (reading_) offsets[2] = round.extents;
    for (const std::vector<Index>& part : offsets) map.insert(map.end(), part.begin(), part.end());
    TensorProblem tensor{{reading_ ? pieces : distribution(), "source"},
                         {reading_ ? distribution() : pieces, "target"},
                         file_.element_bytes,
                         map};
    return {text(reading_ ? "load " : "save ", file_.path), "Hierarchical", default_options(), {std::move(tensor)}};
  }

  MPI_Comm comm_;
  std::shared_ptr<Context> context_;
  bool reading_;
  dr_file file_{};  // with what the file itself says
  const Distribution* distribution_ = nullptr;
  char* array_ = nullptr;  // not written by dr_save()
  Index nbytes_ = 0;       // of the whole array
  Index min_run_ = 0;      // bytes of a long run
  std::unique_ptr<NewFile> new_file_;
  std::string new_path_;
  File opened_{nullptr, std::fclose};
  std::vector<Index> ranks_;  // that access the file
};

int call(const char* function, MPI_Comm comm, bool reading, const dr_file* file, const dr_distribution* distribution,
         const void* array) {
  return guarded(DR_ERROR_FILE, function, [&] {
    check_mpi(comm);
    const MpiTurn turn;
    FileCall(comm, reading, file, distribution, array).run();
  });
}

}  // namespace
}  // namespace dace_redist

using namespace dace_redist;

extern "C" {

int dr_file_init(dr_file* file) {
  return guarded(DR_ERROR_ARGUMENT, __func__, [&] {
    check_pointer(file, "file");
    *file = dr_file{};
  });
}

int dr_load(const dr_file* file, const dr_distribution* target, MPI_Comm comm, void* array) {
  return call(__func__, comm, true, file, target, array);
}

int dr_save(const dr_file* file, const dr_distribution* source, MPI_Comm comm, const void* array) {
  return call(__func__, comm, false, file, source, array);
}

}  // extern "C"
