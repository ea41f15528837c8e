// SPDX-License-Identifier: BSD-3-Clause
#include "file/stored_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <numeric>
#include <sstream>

#include "core/machine.hpp"

namespace dace_redist {
namespace {

constexpr Index header_unit = 64;

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

/// The literal of Python that an entry of a header has; empty if there is none.
std::string entry_of(const std::string& header, const std::string& name) {
  std::size_t begin = std::string::npos;
  for (std::size_t at = header.find(name); at != std::string::npos && begin == std::string::npos;
       at = header.find(name, at + 1)) {
    const std::size_t colon = header.find_first_not_of(' ', at + name.size() + 1);
    if (at > 0 && std::strchr("'\"", header[at - 1]) && colon != std::string::npos && header[colon] == ':')
      begin = header.find_first_not_of(' ', colon + 1);
  }
  if (begin == std::string::npos) return "";
  std::size_t end = begin;
  char quote = 0;
  for (int depth = 0; end < header.size() && (quote || depth > 0 || !std::strchr(",}", header[end])); ++end) {
    const char one = header[end];
    if (one == '\'' || one == '"')
      quote = !quote ? one : quote == one ? '\0' : quote;
    else if (!quote)
      depth += (one == '(' || one == '[') - (one == ')' || one == ']');
  }
  return header.substr(begin, header.find_last_not_of(' ', end - 1) + 1 - begin);
}

}  // namespace

FileError::FileError(int error) : Error(std::strerror(error)), number(error) {}

File open_file(const std::string& path, const char* mode) {
  File file(std::fopen(path.c_str(), mode), std::fclose);
  if (!file) throw FileError(errno);
  return file;
}

File open_in_place(const std::string& path) {
  struct stat old {};
  if (stat(path.c_str(), &old) == 0 && (S_ISFIFO(old.st_mode) || S_ISSOCK(old.st_mode)))
    throw FileError("is a pipe or socket, which has no positions to write at");
  File file(fdopen(checked(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)), "w"), std::fclose);
  if (!file) throw FileError(errno);
  return file;
}

Index nbytes_of(const File& file) { return facts_of(file).st_size; }
Index block_bytes_of(const File& file) { return facts_of(file).st_blksize; }

void flush(const File& file) {
  if (fsync(fileno(file.get())) != 0 && errno != EINVAL) throw FileError(errno);  // EINVAL: a device
}

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
  const char order = nbytes == 1 ? '|' : __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? '<' : '>';
  return text("'", order, *element_name(type), nbytes, "'");
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
  const std::string order = entry_of(header, "fortran_order"), shape = entry_of(header, "shape");
  NpyHeader found{entry_of(header, "descr"), order == "True", {}, at + length, begin[6] > 2};
  if (found.type.empty() || (order != "True" && order != "False") || shape[0] != '(' || shape.back() != ')')
    throw FileError(damaged);
  std::string extents = shape.substr(1);
  std::replace_if(
      extents.begin(), extents.end(), [](char one) { return std::strchr(",L)", one); }, ' ');
  std::istringstream in(extents);
  for (Index extent; in >> extent;) found.shape.push_back(extent);
  if (!in.eof() || std::any_of(found.shape.begin(), found.shape.end(), [](Index extent) { return extent < 0; }))
    throw FileError(damaged);
  return found;
}

Index write_npy_header(const File& file, const NpyHeader& header, Index nbytes) {
  const auto order = header.fortran_order ? "True" : "False";
  std::string all =
      text("{'descr': ", header.type, ", 'fortran_order': ", order, ", 'shape': ", tuple_text(header.shape), ", }");
  const bool is_utf8 = std::any_of(all.begin(), all.end(), [](char one) { return (one & 0x80) != 0; });
  const Index ahead = is_utf8 || all.size() > 65000 ? 12 : 10;
  const Index length = round_up(static_cast<Index>(all.size()) + ahead + 1, header_unit) - ahead;
  std::string begin = text("\x93NUMPY", is_utf8 ? '\3' : ahead == 12 ? '\2' : '\1', '\0');
  for (Index shift = 0; shift < 8 * (ahead - 8); shift += 8) begin += static_cast<char>(length >> shift);
  all.resize(static_cast<std::size_t>(length - 1), ' ');
  begin += all + '\n';
  checked(ftruncate(fileno(file.get()), ahead + length + nbytes));
  transfer_bytes(fileno(file.get()), false, begin.data(), ahead + length, 0);
  return ahead + length;
}

}  // namespace dace_redist
