// ClientsSide: operations of the model test by two FileSystem clients, of which one runs each
// operation: with caches of maps and of delegated files, over a fabric, on data that is striped
// over three data servers. Servers die between operations and within them, clients come back by
// themselves, data servers are drained and used again.
//
// Threads: one. Everything is in memory and in virtual time, so the same sequence runs the same way
// each time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fs/file_system.h"
#include "tests/scenario/fs/model/setting.h"
#include "tests/scenario/fs/model/side.h"
#include "tests/unit/fs/service/data_server_pool.h"
#include "tests/unit/fs/service/files_world.h"

namespace pmstore::fs::model {

// Keeps whole files, as the kernel keeps pages for a mount.
class WholeFiles final : public FileCache {
 public:
  base::Task<void> forget(Ino ino) override {
    files_.erase(ino);
    co_return;
  }
  void drop(Ino ino) { files_.erase(ino); }
  // nullptr: it is not kept.
  const std::string* find(Ino ino) const {
    const auto found = files_.find(ino);
    return found == files_.end() ? nullptr : &found->second;
  }
  void keep(Ino ino, std::string data) { files_[ino] = std::move(data); }

 private:
  std::map<Ino, std::string> files_;
};

class ClientsSide final : public Side {
 public:
  explicit ClientsSide(Setting setting);
  ~ClientsSide() override;

  std::optional<Outcome> apply(const Operation& operation, uint64_t now) override;
  bool crashed_within() const override { return crashed_within_; }
  void crash(const Operation& operation) override;
  void restart() override;
  std::string dump() override;
  std::string check() override;
  std::string finish() override;

 private:
  static constexpr size_t kClients = 2;
  static constexpr size_t kServers = 3;
  // Declared in this order: files go before their clients.
  struct Program {
    WholeFiles cache;
    std::unique_ptr<FileSystem> files;
  };
  struct Open {
    std::unique_ptr<File> file;
    bool is_file = false;
    bool reads = false;
    bool writes = false;
    uint64_t told = 0;  // of restarts_, when fsync() or close() has said last that data may be lost
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

  template <typename T>
  T run(base::Task<T> task) {
    return world_.run(std::move(task));
  }
  FileSystem& client_of(const Operation& operation) {
    return *programs_[operation.slot % kClients].files;
  }
  WholeFiles& cache_of(unsigned slot) { return programs_[slot % kClients].cache; }
  void connect(size_t program);
  void programs_die();
  void crash_server(uint64_t which);
  void add(size_t server);
  void move(const Operation& operation);
  void use_all_servers();
  std::optional<Outcome> interrupt(base::Task<void>& running, std::optional<Outcome>& outcome,
                                   const Operation& operation);

  base::Task<Outcome> execute(const Operation& operation);
  base::Task<Found> find(const Operation& operation, const std::vector<uint8_t>& path);
  // Of an inode that is there.
  base::Task<PosixResult<Ino>> find_there(const Operation& operation,
                                          const std::vector<uint8_t>& path);
  base::Task<Outcome> execute_name(const Operation& operation);
  base::Task<Outcome> execute_two_names(const Operation& operation);
  base::Task<Outcome> execute_slot(const Operation& operation);
  base::Task<Outcome> execute_data(const Operation& operation);
  base::Task<Outcome> execute_inode(const Operation& operation);
  base::Task<Outcome> execute_list(const Operation& operation);
  base::Task<Outcome> open(const Operation& operation);
  base::Task<Outcome> read(const Operation& operation);
  base::Task<Outcome> list_whole(const Operation& operation, Ino directory);
  // Of fsync() or close() of this slot: EIO is right once behind each restart, with Setting::fsync.
  int durable_error(unsigned slot, const PosixStatus& result);
  base::Task<int> close(unsigned slot);
  base::Task<std::string> read_whole(Program& program, Attributes attributes);
  base::Task<std::string> dump_directory(Program& program, Ino directory, std::string path);
  base::Task<std::string> dump_inode(Program& program, Attributes attributes, std::string path);
  base::Task<std::string> remove_all(FileSystem& client, std::string path);

  const Setting setting_;
  uint64_t now_ = 0;
  FilesWorld world_;
  std::vector<std::unique_ptr<DataServerPool>> servers_;
  std::array<uint16_t, kServers> index_{};
  std::array<bool, kServers> draining_{};
  uint64_t restarts_ = 0;
  uint64_t dumps_ = 0;
  uint64_t secrets_ = 0;
  bool crashed_within_ = false;
  std::string writing_;  // outlives the clients of an interrupted write
  std::array<Program, kClients> programs_;
  std::array<Open, kSlots> slots_;
  std::array<Listing, kSlots> listings_;
};

}  // namespace pmstore::fs::model
