// NamespaceSide: operations of the model test on a real Namespace, whose server may die.
//
// Threads: one.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fs/namespace.h"
#include "pmstore/client.h"
#include "tests/scenario/fs/model/model_operation.h"
#include "tests/scenario/fs/model/reference_fs.h"
#include "tests/scenario/fs/model/side.h"
#include "tests/unit/fs/memory_space.h"

namespace pmstore::fs::model {

class NamespaceSide final : public Side {
 public:
  // An empty file system in a new pool at `path`, which is overwritten.
  explicit NamespaceSide(std::string path);
  ~NamespaceSide() override { stop(); }

  std::optional<Outcome> apply(const Operation& operation, uint64_t now) override;
  bool crashed_within() const override { return false; }
  void crash(const Operation& operation) override { restart(operation.flag); }
  void restart() override { restart(true); }
  std::string dump() override;
  std::string check() override;
  std::string finish() override { return {}; }

 private:
  struct Open {
    Ino ino{};
    bool is_open = false;
    bool is_file = false;
    bool reads = false;
    bool writes = false;
  };
  struct Listing {
    Ino directory{};
    uint64_t cookie = 0;
  };
  struct Found {
    int error = 0;
    Ino directory{};
    std::string name;
  };

  void start();
  void stop();
  // The programs open again what they had open, unless they died, too.
  void restart(bool programs_died);
  template <typename T>
  T run(Task<T> task) {
    return executor_.run(std::move(task));
  }
  static OpenOwner owner_of(unsigned slot) { return OpenOwner{1 + slot % 2}; }
  Task<Outcome> execute(const Operation& operation);
  Task<Found> find(const Caller& caller, const std::vector<uint8_t>& path);
  // Of an inode that is there.
  Task<PosixResult<Ino>> find_there(const Caller& caller, const std::vector<uint8_t>& path);
  Task<Outcome> execute_name(const Operation& operation);
  Task<Outcome> execute_two_names(const Operation& operation);
  Task<Outcome> execute_slot(const Operation& operation);
  Task<Outcome> execute_nothing(const Operation& operation);
  Task<Outcome> execute_data(const Operation& operation);
  Task<Outcome> execute_inode(const Operation& operation);
  Task<Outcome> execute_list(const Operation& operation);
  Task<Outcome> create(const Operation& operation);
  Task<Outcome> open(const Operation& operation);
  Task<Outcome> list_whole(const Caller& caller, Ino directory);
  Task<void> close(unsigned slot);
  Task<std::string> dump_directory(Ino directory, std::string path);
  Task<std::string> dump_inode(Attributes attributes, std::string path);
  Task<std::string> dump_data(Attributes attributes);

  const std::string path_;
  base::VirtualClock clock_;
  Executor executor_{clock_};
  MemorySpace space_;
  uint64_t now_ = 0;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Namespace> namespace_;
  std::array<Open, kSlots> slots_;
  std::array<Listing, kSlots> listings_;
};

}  // namespace pmstore::fs::model
