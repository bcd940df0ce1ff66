// A namespace over a pool in a scratch folder and a MemorySpace.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "fs/namespace.h"
#include "pmstore/client.h"
#include "pmstore/server.h"
#include "tests/unit/fs/memory_space.h"
#include "tests/unit/persist/scratch.h"

namespace pmstore::fs {

// Text as bytes.
inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
inline std::string as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class NamespaceWorld {
 public:
  explicit NamespaceWorld(uint64_t area_bytes = 16 << 20, uint64_t pool_bytes = 16 << 20)
      : space_(area_bytes) {
    const auto fill = [](persist::Pool& pool) {
      return format_store(pool, {.rings = 0, .log_bytes = 0, .shard_log_bytes = 1 << 20});
    };
    EXPECT_TRUE(persist::Pool::create(path_, pool_bytes, {}, false, fill));
    client_options_.assume_domain = persist::Domain::kCpuCache;
    options_.now_ns = [this] { return now_ns_; };
    options_.identity = 7;
    space_.executor = &executor_;
  }
  ~NamespaceWorld() { stop(); }

  template <typename T>
  T run(Task<T> task) {
    return executor_.run(std::move(task));
  }
  void open_store() {
    auto connected =
        run(Client::connect(executor_, {fabric::Scheme::kLocal, path_, 0}, client_options_));
    ASSERT_TRUE(connected) << connected.error().to_string();
    client_ = std::move(*connected);
  }
  void start() {
    open_store();
    auto opened = run(Namespace::open(*client_, space_, options_));
    ASSERT_TRUE(opened) << opened.error().to_string();
    namespace_ = std::move(*opened);
    namespace_->on_map_change = [this](Ino ino) { map_changes_.push_back(ino); };
  }
  void stop() {
    namespace_.reset();
    client_.reset();
    space_.restart();
  }
  void restart() {
    stop();
    start();
  }
  void sleep(uint64_t nanoseconds) {
    const auto wait = [](Executor& executor, uint64_t ns) -> Task<bool> {
      co_await executor.sleep_for(ns);
      co_return true;
    };
    run(wait(executor_, nanoseconds));
  }
  // From here on a commit waits for its medium, and other calls go on meanwhile.
  void commits_take_turns() {
    client_options_.assume_domain = persist::Domain::kNone;
    restart();
  }
  // Calls of the store that change nothing: so those behind them have their pauses elsewhere.
  void shift(unsigned calls) {
    const TableId super = *run(client_->open_table(".fs.super"));
    for (unsigned i = 0; i < calls; ++i) {
      Transaction transaction = client_->begin();
      EXPECT_TRUE(run(transaction.get(super, "super")));
    }
  }
  // What check_namespace() finds, while the file system is closed.
  std::vector<std::string> damage() {
    stop();
    open_store();
    const auto found = run(check_namespace(*client_, space_.sections(), false));
    client_.reset();
    start();
    return found ? found->damage : std::vector<std::string>{found.error().to_string()};
  }
  // Lets the background work end: all that nobody uses is free again.
  void settle() {
    for (int i = 0; i < 2000; ++i) {
      if (!executor_.run_once() && i > 200) break;
    }
  }

  Namespace& fs() { return *namespace_; }

  const persist::Scratch scratch_;
  const std::string path_ = scratch_.path("pool");
  base::VirtualClock clock_;
  Executor executor_{clock_};
  ClientOptions client_options_;
  MemorySpace space_;
  NamespaceOptions options_;
  uint64_t now_ns_ = 1'000'000;
  std::vector<Ino> map_changes_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Namespace> namespace_;
};

class NamespaceTest : public ::testing::Test, protected NamespaceWorld {
 protected:
  void SetUp() override { start(); }

  static Caller root() { return {}; }
  static Caller user(uint32_t uid) { return {uid, uid, {}}; }

  // Calls that give an attribute's inode, or an errno.
  PosixResult<Attributes> make(Ino parent, std::string_view name,
                               FileType type = FileType::kRegular, uint16_t mode = 0644,
                               const Caller& caller = {}) {
    return run(fs().make(caller, parent, name, {.type = type, .mode = mode}));
  }
  Ino file(std::string_view name, Ino parent = kRootIno, uint16_t mode = 0644,
           const Caller& caller = {}) {
    auto made = make(parent, name, FileType::kRegular, mode, caller);
    EXPECT_TRUE(made) << name << ": " << made.error().to_string();
    return made ? made->ino : Ino{};
  }
  Ino directory(std::string_view name, Ino parent = kRootIno, uint16_t mode = 0755,
                const Caller& caller = {}) {
    auto made = make(parent, name, FileType::kDirectory, mode, caller);
    EXPECT_TRUE(made) << name << ": " << made.error().to_string();
    return made ? made->ino : Ino{};
  }
  // 0: success.
  int make_error_of(Ino parent, std::string_view name, const Caller& caller = {},
                    FileType type = FileType::kRegular) {
    return number(make(parent, name, type, 0644, caller));
  }
  template <typename T>
  static int number(const PosixResult<T>& result) {
    return result ? 0 : result.number();
  }
  int unlink(std::string_view name, Ino parent = kRootIno, const Caller& caller = {}) {
    return number(run(fs().unlink(caller, parent, name)));
  }
  int rmdir(std::string_view name, Ino parent = kRootIno, const Caller& caller = {}) {
    return number(run(fs().remove_directory(caller, parent, name)));
  }
  int rename(Ino from, std::string_view name, Ino to, std::string_view new_name,
             RenameMode mode = RenameMode::kReplace, const Caller& caller = {}) {
    return number(run(fs().rename(caller, from, name, to, new_name, mode)));
  }
  int lookup_error(std::string_view name, Ino parent = kRootIno, const Caller& caller = {}) {
    return number(run(fs().lookup(caller, parent, name)));
  }
  Ino lookup(std::string_view name, Ino parent = kRootIno) {
    auto found = run(fs().lookup({}, parent, name));
    EXPECT_TRUE(found) << name << ": " << found.error().to_string();
    return found ? found->ino : Ino{};
  }
  Attributes stat(Ino ino) {
    auto found = run(fs().get_attributes(ino));
    EXPECT_TRUE(found) << found.error().to_string();
    return found ? *found : Attributes{};
  }
  int write(Ino ino, std::optional<uint64_t> offset, std::string_view text) {
    return number(run(fs().write(ino, offset, as_bytes(text))));
  }
  std::string read(Ino ino, uint64_t offset = 0, uint64_t bytes = kMaxMessageData) {
    auto data = run(fs().read(ino, offset, bytes));
    EXPECT_TRUE(data) << data.error().to_string();
    return data ? as_text(*data) : std::string();
  }
  int truncate(Ino ino, uint64_t size, const Caller& caller = {}) {
    return number(
        run(fs().set_attributes(caller, ino, {.set = AttributeChange::kSize, .size = size})));
  }
  int allocate(Ino ino, AllocateMode mode, uint64_t offset, uint64_t bytes) {
    return number(run(fs().allocate(ino, mode, offset, bytes)));
  }
  std::vector<std::string> names(Ino parent, uint32_t at_once = 100) {
    std::vector<std::string> all;
    uint64_t cookie = 0;
    while (true) {
      auto page = run(fs().read_directory({}, parent, cookie, at_once, false));
      EXPECT_TRUE(page);
      if (!page || page->empty()) return all;
      for (const auto& listed : *page) all.push_back(listed.entry.name);
      cookie = page->back().entry.cookie;
    }
  }
};

}  // namespace pmstore::fs
