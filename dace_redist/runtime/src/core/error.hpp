// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// \file
/// The exceptions of the runtime, and their texts. They need neither MPI nor DaCe.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>

namespace dace_redist {

/// What is wrong with a redistribution: which object, what was expected, what was given, and the remedy.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A wrong argument of a function of the library.
class ArgumentError : public Error {
 public:
  using Error::Error;
};

/// What `work` throws; null: nothing.
template <class Work>
std::exception_ptr caught(const Work& work) noexcept {
  try {
    work();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

/// The text of an exception.
inline std::string message_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const std::exception& error) {
    return *error.what() ? error.what() : "unknown error";
  } catch (...) {
    return "unknown error";
  }
}

/// Joins the arguments to one text, as `operator<<` prints them.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// Prints a line on standard error once in a process. \param warned  of this warning: whether it was printed.
template <class... Values>
void warn_once(std::atomic<bool>& warned, const char* format, Values... values) {
  if (!warned.exchange(true)) std::fprintf(stderr, format, values...);
}

/// `(2, 3, 4)`, the way Python prints a tuple of numbers.
template <class Sequence>
std::string tuple_text(const Sequence& values) {
  std::ostringstream out;
  out << "(";
  const char* separator = "";
  for (const auto& value : values) {
    out << separator << value;
    separator = ", ";
  }
  out << (values.size() == 1 ? ",)" : ")");
  return out.str();
}

/// Whether the calling thread is in a function of the Fortran module: texts count from 1, and the axes of a tensor from
/// the other end.
inline bool& in_fortran() {
  static thread_local bool is_in = false;
  return is_in;
}
inline std::int64_t counted(std::int64_t number) { return number + (in_fortran() ? 1 : 0); }
inline std::int64_t counted_axis(std::int64_t axis, std::int64_t ndim) { return in_fortran() ? ndim - axis : axis; }

/// An entry of a list, such as `grid[0]` or `grid(1)`. \param number  as counted.
inline std::string entry(const std::string& list, std::int64_t number) {
  return in_fortran() ? text(list, "(", number, ")") : text(list, "[", number, "]");
}

/// Numbers of all axes of a tensor, as tuple_text().
template <class Sequence>
std::string axes_text(Sequence values) {
  if (in_fortran()) std::reverse(values.begin(), values.end());
  return tuple_text(values);
}

}  // namespace dace_redist
