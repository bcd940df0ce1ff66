// The server of the scenarios of file data: an area in plain memory, the data service, and a
// service by which the test does what a namespace would: it allocates, changes, and looks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fs/file_area.h"
#include "fs/file_data_service.h"
#include "fs/local_data_space.h"
#include "persist/pool.h"
#include "service/host.h"
#include "tests/scenario/harness.h"

namespace pmstore::scenario {

struct DataSetup {
  persist::Domain domain = persist::Domain::kCpuCache;
  persist::WriteLanding landing = persist::WriteLanding::kMemory;
  // An emulated guest or a busy machine may leave a client without a processor for seconds.
  uint32_t lease_ms = scheme() == fabric::Scheme::kVerbs ? 60'000 : 20'000;

  std::vector<std::string> to_args() const;
  static DataSetup from_args(const std::vector<std::string>& args);
};

inline constexpr service::ServiceId kControlService{0x7e57};
inline constexpr uint64_t kDataBytes = 16u << 20;
inline constexpr uint64_t kLaterBytes = 4u << 20;  // that the pool has for later sections
inline constexpr std::byte kPoison{0xdd};

// Requests are one ControlRequest; its extent is by offset and bytes.
enum ControlMethod : uint16_t {
  kAllocate = 0x7001,     // of so many bytes -> MapExtent
  kInvalidate = 0x7002,   // the word changes, then what is there is given back (the first
                          // kSeenBytes), then poison is stored -> MapExtent, bytes
  kSee = 0x7003,          // -> kSeenBytes from `offset` on
  kEndSessions = 0x7004,  // of the caller's data -> nothing
  kFree = 0x7005,         // -> nothing
  kGrow = 0x7006,         // by a section of so many bytes -> nothing
};
inline constexpr size_t kSeenBytes = 4096;
struct ControlRequest {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

class ControlService final : public service::Service {
 public:
  ControlService(persist::Pool& pool, fs::FileArea& area, fs::LocalDataSpace& space,
                 fs::FileDataService& data)
      : Service({.id = kControlService, .name = "control"}),
        pool_(pool),
        area_(area),
        space_(space),
        data_(data) {}
  uint64_t epoch() const override { return 1; }
  Result<std::vector<std::byte>> admit(service::Session&, std::span<const std::byte>) override {
    return std::vector<std::byte>();
  }
  void on_call(service::Session& session, fabric::RpcCall call,
               std::span<const std::byte> body) override;

 private:
  void reply_map(fabric::RpcCall& call, const fs::AreaRange& place, bool with_bytes,
                 std::span<const std::byte> seen);

  Status grow(uint64_t bytes);

  persist::Pool& pool_;
  fs::FileArea& area_;
  fs::LocalDataSpace& space_;
  fs::FileDataService& data_;
};

class FileDataRole final : public Role {
 public:
  ~FileDataRole() override;
  Result<fabric::Uri> start(base::Executor& executor, const fabric::Uri& uri,
                            const std::vector<std::string>& args) override;

 private:
  struct FreeMemory {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, FreeMemory> memory_;
  std::unique_ptr<persist::Pool> pool_;
  std::optional<fs::FileArea> area_;
  std::optional<fs::LocalDataSpace> space_;
  std::optional<fs::FileDataService> data_;
  std::optional<ControlService> control_;
  std::optional<service::Host> host_;  // goes first
};

}  // namespace pmstore::scenario
