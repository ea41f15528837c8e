// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Files whose elements follow one another, and files of NumPy. They need no MPI.

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/element_type.hpp"
#include "core/error.hpp"
#include "layout/intervals.hpp"

namespace dace_redist {

/// A failure of the system, or a file that is damaged.
class FileError : public Error {
 public:
  explicit FileError(const std::string& what) : Error(what) {}
  /// Of a system call that failed. \param error  errno.
  explicit FileError(int error);
  int number = 0;  ///< errno; 0: damaged
};

/// The result of a system call. \throws FileError if it failed.
template <class Number>
Number checked(Number result) {
  if (result < 0) throw FileError(errno);
  return result;
}

/// An open file.
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

/// \param mode  as of fopen(). \throws FileError, as the other functions.
File open_file(const std::string& path, const char* mode);
/// A file or device to be written where it is, made if it is missing. \throws FileError, also for a pipe.
File open_in_place(const std::string& path);
Index nbytes_of(const File& file);
/// Bytes of a block of its file system, which parallel ones have large.
Index block_bytes_of(const File& file);
/// Sets aside space of a file for bytes that ranks will write, and makes it at least so long. A disk without that space
/// fails here; a file that ranks write in turns else lies on the disk in as many parts.
/// \return whether its file system can.
bool reserve(int file, Index position, Index nbytes);
/// Brings what was written to the disk.
void flush(const File& file);

/// A box of an array in a file, in the order of storage.
struct FileBox {
  std::vector<Index> shape, lower, extents;  ///< [ndim] shape of the array; first index and shape of the box
  Index element_bytes;
  Index offset;  ///< position of the array's first element, in bytes

  /// The axis from which on the box is contiguous in the file.
  std::size_t run_axis() const;
  Index run_bytes() const { return bytes_from(run_axis()); }
  Index nbytes() const { return bytes_from(0); }

 private:
  Index bytes_from(std::size_t axis) const;
};

/// Reads a box of an open file, given by its descriptor, into memory in C order, or writes it.
void transfer_box(int file, bool reading, const FileBox& box, char* memory);

/// What a file of NumPy says of its array.
struct NpyHeader {
  std::string type;  ///< literal of Python, such as "'<f8'"
  bool fortran_order;
  std::vector<Index> shape;  ///< of the array, whatever the order
  Index offset = 0;          ///< of its first element
};

NpyHeader read_npy_header(const File& file);
/// Writes the header of a new file with an array of `nbytes`. \return the position of its first element.
Index write_npy_header(const File& file, const NpyHeader& header, Index nbytes);
/// How NumPy writes an element type.
std::string npy_type(ElementType type);

/// A hidden file or folder, `.NAME.NUMBER.tmp`, that replaces another one, or else is removed. A folder has what it
/// replaced until it is removed.
class NewFile {
 public:
  /// Makes it, empty, with the mode and the owner of the old one, as far as the user may give it away.
  /// \param path    what it replaces, behind symbolic links; it need not exist.
  /// \param beside  a file or folder that it is made beside; empty: the one that it replaces.
  /// \throws FileError, also if the old one is a device or a pipe, or may not be written.
  explicit NewFile(const std::string& path, bool is_folder = false, const std::string& beside = "");
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile() { discard(); }

  const std::string& path() const { return path_; }
  /// Puts it in the place of the old one. A process that is killed leaves the old one or the new one, except for
  /// folders of a file system that cannot exchange them.
  void replace();
  /// Removes it, unless it has replaced a file. \return whether there was anything.
  bool discard() noexcept;

 private:
  std::string path_;
  std::filesystem::path final_;
  bool is_folder_;
};

}  // namespace dace_redist
