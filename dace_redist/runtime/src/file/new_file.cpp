// SPDX-License-Identifier: BSD-3-Clause
#include "file/new_file.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <filesystem>
#include <random>

#include "file/stored_file.hpp"

namespace dace_redist {
namespace {

namespace fs = std::filesystem;

/// Where symbolic links lead, even if there is nothing.
fs::path without_links(fs::path path) {
  for (int links = 0; links < 40; ++links) {
    std::error_code none;
    const fs::path next = fs::read_symlink(path, none);
    if (none) return path;
    path = path.parent_path() / next;
  }
  throw FileError(ELOOP);
}

/// The name of a hidden file beside another, with as much of its name as fits.
std::string hidden_name(const fs::path& path) {
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

NewFile::NewFile(const std::string& path, bool is_folder, const std::string& beside)
    : final_(without_links(path)), is_folder_(is_folder) {
  struct stat old {};
  const bool is_there = stat(path.c_str(), &old) == 0;
  if (!is_there && errno != ENOENT) throw FileError(errno);
  if (is_there && (is_folder ? !S_ISDIR(old.st_mode) : !S_ISREG(old.st_mode)))
    throw FileError(S_ISDIR(old.st_mode)   ? "is a folder, where a file must be"
                    : S_ISREG(old.st_mode) ? "is a file, where a folder must be"
                                           : "is a device, pipe or socket, which a file cannot replace");
  if (is_there) checked(faccessat(AT_FDCWD, final_.c_str(), W_OK, AT_EACCESS));
  const std::string made = hidden_name(without_links(beside.empty() ? path : beside));
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
  return !path_.empty() && fs::remove_all(path_, failed) > 0 && !failed;
}

}  // namespace dace_redist
