// SPDX-License-Identifier: BSD-3-Clause
#include "file/stored_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <random>
#include <sstream>

#include "core/machine.hpp"

namespace dace_redist {
namespace {

constexpr Index header_unit = 64;

/// The result of a system call. \throws FileError if it failed.
template <class Number>
Number checked(Number result) {
  if (result < 0) throw FileError(errno);
  return result;
}

/// Reads or writes all of some bytes.
void transfer_bytes(int file, bool reading, char* memory, Index count, Index position) {
  while (count > 0) {
    const auto size = static_cast<std::size_t>(count);
    const ssize_t done = reading ? pread(file, memory, size, position) : pwrite(file, memory, size, position);
    if (done < 0 && errno == EINTR) continue;
    if (checked(done) == 0) throw FileError(text("the file ends at byte ", position, ", in the middle of its array"));
    memory += done;
    position += done;
    count -= done;
  }
}

struct stat facts_of(const File& file) {
  struct stat facts {};
  checked(fstat(fileno(file.get()), &facts));
  return facts;
}

/// The text of an entry of a header, from its first character on; empty if there is none.
std::string entry_of(const std::string& header, const std::string& name) {
  const std::size_t at = header.find("'" + name + "':");
  const std::size_t begin = at == std::string::npos ? at : header.find_first_not_of(' ', at + name.size() + 3);
  return begin == std::string::npos ? "" : header.substr(begin);
}

}  // namespace

FileError::FileError(int error) : Error(std::strerror(error)), number(error) {}

File open_file(const std::string& path, const char* mode) {
  File file(std::fopen(path.c_str(), mode), std::fclose);
  if (!file) throw FileError(errno);
  return file;
}

Index nbytes_of(const File& file) { return facts_of(file).st_size; }
Index block_bytes_of(const File& file) { return facts_of(file).st_blksize; }

void flush(const File& file) { checked(fsync(fileno(file.get()))); }

std::size_t FileBox::run_axis() const {
  std::size_t axis = shape.size();
  for (bool is_whole = true; is_whole && axis > 0;) {
    --axis;
    is_whole = extents[axis] == shape[axis];
  }
  return axis;
}

Index FileBox::bytes_from(std::size_t axis) const {
  return std::accumulate(extents.begin() + static_cast<Index>(axis), extents.end(), element_bytes, std::multiplies<>());
}

void transfer_box(int file, bool reading, const FileBox& box, char* memory) {
  const std::size_t axis = box.run_axis();
  const Index run = box.run_bytes(), runs = run == 0 ? 0 : box.nbytes() / run;
  for (Index number = 0; number < runs; ++number) {
    Index position = box.offset, stride = box.element_bytes, rest = number;
    for (std::size_t d = box.shape.size(); d-- > 0; stride *= box.shape[d]) {
      const Index index = d < axis ? rest % box.extents[d] : 0;
      if (d < axis) rest /= box.extents[d];
      position += stride * (box.lower[d] + index);
    }
    transfer_bytes(file, reading, memory + number * run, run, position);
  }
}

std::string npy_type(ElementType type) {
  const Index nbytes = element_bytes_of(type);
  return text(nbytes == 1 ? '|' : __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? '<' : '>', *element_name(type), nbytes);
}

NpyHeader read_npy_header(const File& file) {
  const FileError damaged("is no .npy file with elements of fixed size");
  const int descriptor = fileno(file.get());
  unsigned char begin[12];
  if (nbytes_of(file) < Index{sizeof begin}) throw FileError(damaged);
  transfer_bytes(descriptor, true, reinterpret_cast<char*>(begin), sizeof begin, 0);
  if (std::memcmp(begin, "\x93NUMPY", 6) != 0) throw FileError(damaged);
  const Index at = begin[6] == 1 ? 10 : 12;
  Index length = begin[8] + 256 * begin[9];
  if (at == 12) length += 65536 * (begin[10] + Index{256} * begin[11]);
  if (at + length > nbytes_of(file)) throw FileError(damaged);
  std::string header(static_cast<std::size_t>(length), ' ');
  transfer_bytes(descriptor, true, header.data(), length, at);
  const std::string type = entry_of(header, "descr"), order = entry_of(header, "fortran_order"),
                    shape = entry_of(header, "shape");
  if (type.size() < 2 || type[0] != '\'' || order.empty() || shape.empty() || shape[0] != '(') throw FileError(damaged);
  NpyHeader found{type.substr(1, type.find('\'', 1) - 1), order[0] == 'T', {}, at + length};
  std::string extents = shape.substr(1, shape.find(')') - 1);
  std::replace(extents.begin(), extents.end(), ',', ' ');
  std::istringstream in(extents);
  for (Index extent; in >> extent;) found.shape.push_back(extent);
  if (!in.eof()) throw FileError(damaged);
  return found;
}

std::string npy_header(const NpyHeader& header) {
  const auto order = header.fortran_order ? "True" : "False";
  std::string all =
      text("{'descr': '", header.type, "', 'fortran_order': ", order, ", 'shape': ", tuple_text(header.shape), ", }");
  const Index length = round_up(static_cast<Index>(all.size()) + 11, header_unit) - 10;
  all.resize(static_cast<std::size_t>(length - 1), ' ');
  return text(std::string("\x93NUMPY\x01\x00", 8), static_cast<char>(length % 256), static_cast<char>(length / 256),
              all, '\n');
}

NewFile::NewFile(const std::string& path) : final_(std::filesystem::weakly_canonical(path)) {
  const std::filesystem::path final(final_);
  const std::string name = text(".", final.filename().string(), ".", std::hex, std::random_device()(), ".tmp");
  path_ = final.parent_path() / name;
}

NewFile::NewFile(const std::string& path, const std::string& head, Index begin, Index end) : NewFile(path) {
  std::error_code missing;
  const auto old = static_cast<Index>(std::filesystem::file_size(final_, missing));
  const bool keeps = !missing && head.empty() && (begin > 0 || old > end);
  if (keeps && !std::filesystem::copy_file(final_, path_, missing)) throw FileError(missing.value());
  const File file = open_file(path_, keeps ? "r+e" : "wxe");
  checked(ftruncate(fileno(file.get()), keeps ? std::max(old, end) : end));
  transfer_bytes(fileno(file.get()), false, const_cast<char*>(head.data()), static_cast<Index>(head.size()), 0);
}
NewFile::~NewFile() {
  if (!path_.empty()) unlink(path_.c_str());
}

void NewFile::replace() {
  struct stat old {};
  if (stat(final_.c_str(), &old) == 0) chmod(path_.c_str(), old.st_mode & 07777);
  checked(std::rename(path_.c_str(), final_.c_str()));
  path_.clear();
}

}  // namespace dace_redist
