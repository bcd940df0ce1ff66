// PersistWorld: a server that grants a region and a ring in its memory; a client whose durable
// writes and appends are destroyed in their middle; and what must hold afterwards.
//
// Invariant between two operations: the server has no connection, and the ring is new. Everything
// is on one executor in virtual time.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fabric/device.h"
#include "log/remote_appender.h"
#include "log/ring.h"
#include "model/page_bytes.h"
#include "persist/memory.h"
#include "persist/remote_writer.h"
#include "tests/harness/rpc_test_server.h"
#include "tests/unit/cancellation/attempts.h"
#include "tests/unit/cancellation/cutter.h"

namespace pmstore::cancellation {

class PersistWorld final : public harness::RpcTestServer {
 public:
  explicit PersistWorld(persist::WriteStrategy strategy);
  ~PersistWorld() override;

  using Operation = base::Task<void> (*)(PersistWorld&);
  struct Case {
    const char* name;
    Operation operation;
  };
  void destroy_everywhere(const Case& tested, Weather weather, Aftermath aftermath);

  // ---- for operations ----
  std::unique_ptr<fabric::Device> device;
  std::unique_ptr<fabric::RpcClient> rpc;
  std::unique_ptr<fabric::Connection> connection;
  std::unique_ptr<persist::RemoteWriter> writer;       // of the region
  std::unique_ptr<persist::RemoteWriter> ring_writer;  // of the ring's data
  std::unique_ptr<log::RemoteAppender> appender;
  base::Executor& executor() { return executor_; }
  const fabric::Uri& uri() const { return uri_; }
  // A piece with new bytes for that place of the region; they may be there from now on.
  persist::RemotePiece piece(uint64_t at, uint32_t bytes);
  // A READ of something of the region, to the end of the sources, which no piece reaches.
  persist::RemoteLook look() {
    std::byte* const into = source_.data() + source_.size() - 8;
    return {{into, 8, source_region_.get()}, granted_->remote().at(0)};
  }
  // What became of it: without a failure they are there.
  void wrote(const persist::RemotePiece& piece, const Result<persist::Persisted>& result);
  Attempt& attempt(size_t entries, size_t bytes);
  base::Task<void> append(Attempt& one);
  base::Task<void> append_all(Attempt& several, log::RemoteAppender::RoomMaker* room);
  log::Ring& ring() { return *ring_; }  // the server's
  persist::Memory& memory() { return memory_; }
  uint64_t next_sequence = 1;
  template <typename T>
  void expect(const Result<T>& result) {
    if (result) return;
    failed_ = true;
    EXPECT_TRUE(breaks_sessions(weather_)) << result.error().to_string();
  }

  Result<std::vector<std::byte>> on_hello(uint64_t token,
                                          std::span<const std::byte> hello) override;
  void on_call(fabric::RpcPeer& peer, fabric::RpcCall call) override;

 private:
  base::Task<Status> connect();
  void prepare();
  bool destroy_at(uint64_t point, uint64_t breaks_at);
  void audit(bool done);
  void use(bool destroyed);
  void expect_nothing_leaked();
  void expect_bytes();
  void expect_entries();
  void drop_client();

  const persist::WriteStrategy strategy_;
  model::PageBytes region_;
  persist::Memory memory_;
  persist::PersistService service_{memory_};
  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  Cutter cutter_{executor_};
  std::unique_ptr<fabric::Device> server_;
  std::unique_ptr<fabric::MemoryRegion> granted_;
  std::unique_ptr<fabric::Listener> listener_;
  fabric::Uri uri_;
  std::optional<log::Ring> ring_;

  std::vector<std::byte> source_;
  size_t source_used_ = 0;
  std::unique_ptr<fabric::MemoryRegion> source_region_;
  std::vector<std::byte> before_;  // of the region; what was acknowledged later, too
  // What may be there instead, the last one last.
  struct Written {
    uint64_t at;
    std::vector<std::byte> bytes;
  };
  std::vector<Written> uncertain_;
  Attempts attempts_;
  std::optional<base::Task<void>> beside_;
  std::optional<base::Task<void>> behind_;
  const Case* case_ = nullptr;
  Weather weather_ = Weather::kCalm;
  Aftermath aftermath_ = Aftermath::kUse;
  bool failed_ = false;
  uint64_t payloads_ = 0;
};

}  // namespace pmstore::cancellation
