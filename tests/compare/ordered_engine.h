// What ordered_stores measures: stores of keys in order, in this process, whose writes are durable
// when they return.
//
// An engine has these members. The results of put(), get() and scan() are awaited; where an engine
// has its answer at once, that costs nothing (Ready).
//
//   static constexpr std::string_view kName;
//   Engine(folder, records)                 a new, empty store
//   put(key, value) -> bool                 inserts or overwrites; false: lost against another
//   get(key, value&) -> bool                copies the value; false: absent
//   scan(from, most) -> uint64_t            copies so many records from this key on into a
//                                           RecordPage; how many
#pragma once

#include <unistd.h>

#include <cerrno>
#include <coroutine>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

namespace pmstore::compare {

template <typename T>
struct Ready {
  T value;
  bool await_ready() const noexcept { return true; }
  void await_suspend(std::coroutine_handle<>) const noexcept {}
  T await_resume() { return std::move(value); }
};

// Prints one line, `what`: `why`, and ends the program.
[[noreturn]] inline void give_up(std::string_view what, const std::string& why) {
  std::fprintf(stderr, "%s: %.*s: %s\n", program_invocation_short_name,
               static_cast<int>(what.size()), what.data(), why.c_str());
  std::fflush(stderr);
  _exit(1);
}

}  // namespace pmstore::compare
