// SPDX-License-Identifier: BSD-3-Clause
#include "file/stored_file.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <regex>
#include <sstream>

#include "core/machine.hpp"

namespace dace_redist {
namespace {

constexpr Index header_unit = 64, max_header_bytes = 10000;  // as NumPy

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

/// The value of an entry of a header, if it is of a form, as a regular expression; else empty.
std::string entry_of(const std::string& header, const std::string& name, const std::string& form) {
  std::smatch found;
  const bool is_there = std::regex_search(header, found, std::regex(text("['\"]", name, "['\"]\\s*:\\s*(", form, ")")));
  return is_there ? found.str(1) : "";
}

/// The name of a hidden file beside another, with as much of its name as fits.
std::string hidden_name(const std::filesystem::path& path) {
  const std::string name = path.filename().string(), end = text(".", std::hex, std::random_device()(), ".tmp");
  std::size_t length = std::min<std::size_t>(name.size(), NAME_MAX - 1 - end.size());
  while (length < name.size() && (name[length] & 0xC0) == 0x80) --length;  // whole characters of UTF-8
  return path.parent_path() / text(".", name.substr(0, length), end);
}

/// Gives a file the owner and the mode of another; where the group cannot be kept, it may do what all may.
void take_rights(const char* path, const struct stat& old) {
  mode_t mode = old.st_mode & 07777;
  if (chown(path, old.st_uid, old.st_gid) != 0)
    mode &= chown(path, uid_t(-1), old.st_gid) == 0 ? 03777 : (01707 | (mode & 07) << 3);
  checked(chmod(path, mode));
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

bool reserve(int file, Index position, Index nbytes) {
  if (nbytes == 0 || fallocate(file, 0, position, nbytes) == 0) return true;
  constexpr int unable[] = {EOPNOTSUPP, ENOSYS, ENODEV, EINTR};  // of a device; where signals come too often
  if (std::find(std::begin(unable), std::end(unable), errno) == std::end(unable)) throw FileError(errno);
  return false;
}

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
  if (begin[6] < 1 || begin[6] > 3 || begin[7] != 0)
    throw FileError(text("has version ", +begin[6], ".", +begin[7], " of the .npy format; known are 1.0, 2.0 and 3.0"));
  const Index at = begin[6] == 1 ? 10 : 12;
  Index length = begin[8] + 256 * begin[9];
  if (at == 12) length += 65536 * (begin[10] + Index{256} * begin[11]);
  if (at + length > nbytes_of(file) || length > max_header_bytes) throw FileError(damaged);
  std::string bytes(static_cast<std::size_t>(length), ' '), header;
  transfer_bytes(descriptor, true, bytes.data(), length, at);
  for (const char one : bytes)
    if (begin[6] < 3 && (one & 0x80) != 0)  // Latin-1
      header += {static_cast<char>(0xC0 | (one >> 6 & 3)), static_cast<char>(0x80 | (one & 0x3F))};
    else
      header += one;
  const std::string order = entry_of(header, "fortran_order", "True|False"),
                    shape = entry_of(header, "shape", R"(\(\s*\)|\((?:\s*\d+L?\s*,)+\s*(?:\d+L?\s*)?\))");
  NpyHeader found{entry_of(header, "descr", R"('[^']*'|"[^"]*"|\[.*\])"), order == "True", {}, at + length};
  if (found.type.empty() || order.empty() || shape.empty()) throw FileError(damaged);
  std::istringstream in(std::regex_replace(shape, std::regex("[^0-9]"), " "));
  for (Index extent; in >> extent;) found.shape.push_back(extent);
  if (!in.eof()) throw FileError(damaged);
  return found;
}

Index write_npy_header(const File& file, const NpyHeader& header, Index nbytes) {
  const auto order = header.fortran_order ? "True" : "False";
  std::string all =
      text("{'descr': ", header.type, ", 'fortran_order': ", order, ", 'shape': ", tuple_text(header.shape), ", }");
  const bool is_ascii = std::none_of(all.begin(), all.end(), [](char one) { return (one & 0x80) != 0; });
  const Index ahead = is_ascii && all.size() < 65000 ? 10 : 12;  // version 1 or 3
  const Index length = round_up(static_cast<Index>(all.size()) + ahead + 1, header_unit) - ahead;
  std::string begin = text("\x93NUMPY", ahead == 10 ? '\1' : '\3', '\0');
  for (Index shift = 0; shift < 8 * (ahead - 8); shift += 8) begin += static_cast<char>(length >> shift);
  all.resize(static_cast<std::size_t>(length - 1), ' ');
  begin += all + '\n';
  checked(ftruncate(fileno(file.get()), ahead + length + nbytes));
  reserve(fileno(file.get()), 0, ahead + length + nbytes);
  transfer_bytes(fileno(file.get()), false, begin.data(), ahead + length, 0);
  return ahead + length;
}

NewFile::NewFile(const std::string& path, bool is_folder, const std::string& beside)
    : final_(path), is_folder_(is_folder) {
  struct stat old {};
  const bool is_there = stat(path.c_str(), &old) == 0;
  if (!is_there && errno != ENOENT) throw FileError(errno);
  while (std::filesystem::is_symlink(final_)) final_ = final_.parent_path() / std::filesystem::read_symlink(final_);
  if (is_there && S_ISDIR(old.st_mode) != is_folder)
    throw FileError(is_folder ? "must be a folder" : "is a folder, where a file must be");
  if (is_there && !is_folder && !S_ISREG(old.st_mode))
    throw FileError("is a device, pipe or socket, which a file cannot replace");
  if (is_there) checked(faccessat(AT_FDCWD, final_.c_str(), W_OK, AT_EACCESS));
  const std::string made = hidden_name(beside.empty() ? final_ : std::filesystem::path(beside));
  const mode_t mode = is_there ? 0700 : 0777;
  if (is_folder)
    checked(mkdir(made.c_str(), mode));
  else
    close(checked(open(made.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode & 0666)));
  path_ = made;
  if (is_there) take_rights(made.c_str(), old);
}

void NewFile::replace() {
  if (!is_folder_ || access(final_.c_str(), F_OK) != 0) {
    checked(std::rename(path_.c_str(), final_.c_str()));
    path_.clear();
  } else if (syscall(SYS_renameat2, AT_FDCWD, path_.c_str(), AT_FDCWD, final_.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) throw FileError(errno);
    const std::string old = path_ + ".old";
    checked(std::rename(final_.c_str(), old.c_str()));
    if (std::rename(path_.c_str(), final_.c_str()) != 0) {
      const FileError error(errno);
      std::rename(old.c_str(), final_.c_str());
      throw FileError(error);
    }
    checked(std::rename(old.c_str(), path_.c_str()));
  }
  discard();
}

bool NewFile::discard() noexcept {
  std::error_code failed;
  return !path_.empty() && std::filesystem::remove_all(path_, failed) > 0 && !failed;
}

}  // namespace dace_redist
