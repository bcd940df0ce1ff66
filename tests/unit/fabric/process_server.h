// ProcessServer: a server over tcp or shm in a process of its own, for tests of what the
// scenarios cannot see from outside: its memory and its counts are in memory shared with the test.
//
// Forked before the test opens a device, so that the child has nothing of it. It ends with
// the test, also when that is killed.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "fabric/device.h"

namespace pmstore::fabric {

inline constexpr size_t kServerBytes = 1u << 20;
inline constexpr size_t kMaxEnds = 64;

// The server's answer to every hello but "refuse me".
struct ServerHello {
  RemoteRegion region;  // kServerBytes; READ and WRITE
  RemoteRegion extra;   // one page, WRITE; withdrawn by ProcessServer::withdraw_extra()
};

class ProcessServer {
 public:
  enum class Order : uint32_t { kNone, kDestroyEnd, kWithdrawExtra, kSendImmediates };

  // Listens at `uri`; io() says why if it cannot.
  ProcessServer(const Uri& uri);
  ~ProcessServer();

  const Uri& uri() const { return uri_; }
  const std::string& failure() const { return failure_; }
  pid_t pid() const { return child_; }
  // SIGKILL, and waits for it. SIGSTOP, SIGCONT.
  void kill();
  void pause();
  void resume();

  std::byte* at(size_t offset) { return shared_->memory + offset; }
  std::byte* extra() { return shared_->extra; }
  // Of the connection that was accepted as number `end`.
  uint32_t immediates(size_t end) const { return shared_->ends[end].immediates; }
  uint32_t last_immediate(size_t end) const { return shared_->ends[end].last_immediate; }
  uint32_t disconnects(size_t end) const { return shared_->ends[end].disconnects; }
  uint32_t connected() const { return shared_->connected; }

  // These return when they are done.
  void destroy_end(uint32_t end) { give(Order::kDestroyEnd, end, 0); }
  void withdraw_extra() { give(Order::kWithdrawExtra, 0, 0); }
  // Writes 64 bytes with an immediate into the region that the client named in its hello, so often.
  void send_immediates(uint32_t end, uint32_t count) { give(Order::kSendImmediates, end, count); }

  // Only for the child.
  struct EndCounts {
    std::atomic<uint32_t> immediates;
    std::atomic<uint32_t> last_immediate;
    std::atomic<uint32_t> disconnects;
  };
  struct Shared {
    char uri[128];
    char failure[256];
    std::atomic<uint32_t> up;  // 1: listening, 2: failed
    std::atomic<uint32_t> connected;
    std::atomic<uint32_t> orders_given;
    std::atomic<uint32_t> orders_done;
    Order order;
    uint32_t arguments[2];
    EndCounts ends[kMaxEnds];
    alignas(4096) std::byte extra[4096];
    alignas(4096) std::byte memory[kServerBytes];
  };

 private:
  void give(Order order, uint32_t first, uint32_t second);

  Shared* shared_;
  Uri uri_;
  std::string failure_;
  pid_t child_ = -1;
};

// What a client saw.
struct ClientEnd final : Receiver {
  std::unique_ptr<Connection> connection;
  std::vector<uint32_t> immediates;
  std::vector<Error> disconnects;
  void on_immediate(uint32_t immediate) override { immediates.push_back(immediate); }
  void on_disconnect(const Error& why) override { disconnects.push_back(why); }
};

Uri any_uri(Scheme scheme);

// The value, or the end of the test program with the error.
template <typename T>
T must(Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().to_string().c_str());
    std::abort();
  }
  return std::move(*result);
}

// A server, and a client device in this process.
class ProcessTest : public testing::TestWithParam<Scheme> {
 protected:
  static constexpr uint64_t kSecond = 1'000'000'000;
  // For what has to happen: a busy machine may keep either process from running for seconds.
  static constexpr uint64_t kPatience = 60 * kSecond;

  void SetUp() override;
  void TearDown() override;

  Result<std::unique_ptr<Connection>> dial(const Uri& uri, uint64_t timeout_ns = kPatience,
                                           uint64_t operation_timeout_ns = kPatience,
                                           std::span<const std::byte> hello = {});
  // Makes client_ and sets remote_.
  void connect(uint64_t operation_timeout_ns = kPatience);
  Status execute(const Batch& batch);
  bool run_until(const std::function<bool()>& condition, uint64_t timeout_ns = kPatience);
  LocalBuffer local(size_t offset, uint32_t bytes) {
    return {memory_.data() + offset, bytes, region_.get()};
  }

  base::RealClock clock_;
  base::Executor executor_{clock_};
  std::unique_ptr<ProcessServer> server_;
  std::unique_ptr<Device> device_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kServerBytes);
  std::unique_ptr<MemoryRegion> region_;
  std::unique_ptr<ClientEnd> client_;
  ServerHello remote_;
};

}  // namespace pmstore::fabric
