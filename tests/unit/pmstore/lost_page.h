// A pool in a file whose disk has gone away, and what a server says of it.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "persist/memory.h"
#include "service/session_observer.h"

namespace pmstore::testing {

// While it lives, nothing in the memory can be made durable: msync of a hole in the address space
// is ENOMEM.
class LostPage {
 public:
  explicit LostPage(persist::Memory& memory) : page_(memory.at(memory.bytes() - kBytes)) {
    memory.flush(page_, 1);
    EXPECT_EQ(munmap(page_, kBytes), 0);
  }
  ~LostPage() {
    EXPECT_NE(
        mmap(page_, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
        MAP_FAILED);
  }
  LostPage(const LostPage&) = delete;
  LostPage& operator=(const LostPage&) = delete;

 private:
  static constexpr size_t kBytes = 4096;
  std::byte* page_;
};

// Counts what a server says.
class Failures final : public SessionObserver {
 public:
  void on_session(const SessionName&) override {}
  void on_refused(const SessionName&, const Error&) override {}
  void on_ended(const SessionName&, SessionEnd) override {}
  void on_failure(const Error& why) override {
    ++failures;
    last = why.to_string();
  }
  int failures = 0;
  std::string last;
};

}  // namespace pmstore::testing
