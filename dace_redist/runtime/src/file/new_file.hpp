// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// Files and folders that take the place of old ones when they are complete. They need no MPI.

#include <string>

namespace dace_redist {

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
  std::string path_, final_;
  bool is_folder_;
};

}  // namespace dace_redist
