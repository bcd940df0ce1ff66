#include "tests/unit/fabric/process_server.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

// A shm device has a thread, and a tsan program that forks beside one may start no thread in the
// child unless it says that it knows. The child here uses nothing that its parent's threads had
// locked.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }

namespace pmstore::fabric {

namespace {

constexpr std::string_view kRefuseMe = "refuse me";

class ChildServer final : public Acceptor {
 public:
  explicit ChildServer(ProcessServer::Shared& shared) : shared_(shared) {}

  Status start(const Uri& uri) {
    PMSTORE_TRY(device_, open_device(uri.scheme, executor_));
    PMSTORE_TRY(region_, device_->register_memory(shared_.memory,
                                                  Access::kRemoteRead | Access::kRemoteWrite));
    PMSTORE_TRY(extra_, device_->register_memory(shared_.extra, Access::kRemoteWrite));
    PMSTORE_TRY(listener_, device_->listen(uri, *this));
    std::snprintf(shared_.uri, sizeof shared_.uri, "%s", listener_->uri().to_string().c_str());
    return {};
  }

  [[noreturn]] void serve() {
    for (;;) {
      // As a server of this project runs, with its idling.
      executor_.run(pause());
      const uint32_t given = shared_.orders_given.load();
      if (given == shared_.orders_done.load()) continue;
      obey();
      shared_.orders_done.store(given);
    }
  }

  Result<std::vector<std::byte>> on_hello(uint64_t token,
                                          std::span<const std::byte> hello) override {
    if (hello.size() == kRefuseMe.size() &&
        std::memcmp(hello.data(), kRefuseMe.data(), hello.size()) == 0) {
      return make_error(ErrorCode::kBusy, "you asked for it");
    }
    if (hello.size() == sizeof(RemoteRegion)) {
      std::memcpy(&client_regions_[token % kMaxEnds], hello.data(), sizeof(RemoteRegion));
    }
    const ServerHello answer{region_->remote(), extra_ ? extra_->remote() : RemoteRegion{}};
    std::vector<std::byte> bytes(sizeof answer);
    std::memcpy(bytes.data(), &answer, sizeof answer);
    return bytes;
  }
  void on_connected(uint64_t token, std::unique_ptr<Connection> connection) override {
    const uint32_t index = shared_.connected.load() % kMaxEnds;
    End& end = ends_[index];
    end.counts = &shared_.ends[index];
    end.region = client_regions_[token % kMaxEnds];
    end.connection = std::move(connection);
    end.connection->set_receiver(&end);
    ++shared_.connected;
  }
  void on_abandoned(uint64_t) override {}

 private:
  struct End final : Receiver {
    std::unique_ptr<Connection> connection;
    ProcessServer::EndCounts* counts = nullptr;
    RemoteRegion region;
    void on_immediate(uint32_t immediate) override {
      counts->last_immediate = immediate;
      ++counts->immediates;
    }
    void on_disconnect(const Error&) override {
      connection.reset();
      ++counts->disconnects;
    }
  };

  base::Task<void> pause() { co_await executor_.sleep_for(100'000); }

  void obey() {
    const uint32_t* arguments = shared_.arguments;
    switch (shared_.order) {
      case ProcessServer::Order::kNone: return;
      case ProcessServer::Order::kDestroyEnd: ends_[arguments[0]].connection.reset(); return;
      case ProcessServer::Order::kWithdrawExtra: extra_.reset(); return;
      case ProcessServer::Order::kSendImmediates: {
        End& end = ends_[arguments[0]];
        for (uint32_t i = 0; i < arguments[1]; ++i) {
          Batch batch;
          batch.write_immediate({shared_.memory, 64, region_.get()}, end.region.at(0), i);
          if (!end.connection->post(batch, nullptr)) return;
        }
      }
    }
  }

  ProcessServer::Shared& shared_;
  base::RealClock clock_;
  base::Executor executor_{clock_};
  std::unique_ptr<Device> device_;
  std::unique_ptr<MemoryRegion> region_;
  std::unique_ptr<MemoryRegion> extra_;
  std::unique_ptr<Listener> listener_;
  RemoteRegion client_regions_[kMaxEnds];
  End ends_[kMaxEnds];
};

[[noreturn]] void run_child(ProcessServer::Shared& shared, const Uri& uri) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto* server = new ChildServer(shared);
  if (Status started = server->start(uri); !started) {
    std::snprintf(shared.failure, sizeof shared.failure, "%s", started.error().to_string().c_str());
    shared.up = 2;
    _exit(1);
  }
  shared.up = 1;
  server->serve();
}

}  // namespace

ProcessServer::ProcessServer(const Uri& uri) : uri_(uri) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  PMSTORE_CHECK(memory != MAP_FAILED, "a test needs a megabyte");
  shared_ = new (memory) Shared();
  child_ = fork();
  PMSTORE_CHECK(child_ >= 0, "a test needs a process");
  if (child_ == 0) run_child(*shared_, uri);
  while (shared_->up == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  failure_ = shared_->failure;
  if (shared_->up == 1) uri_ = must(parse_uri(shared_->uri));
}

ProcessServer::~ProcessServer() {
  kill();
  munmap(shared_, sizeof(Shared));
}

void ProcessServer::kill() {
  if (child_ < 0) return;
  ::kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
  child_ = -1;
}

void ProcessServer::pause() {
  ::kill(child_, SIGSTOP);
  waitpid(child_, nullptr, WUNTRACED);
}

void ProcessServer::resume() { ::kill(child_, SIGCONT); }

void ProcessServer::give(Order order, uint32_t first, uint32_t second) {
  shared_->order = order;
  shared_->arguments[0] = first;
  shared_->arguments[1] = second;
  const uint32_t serial = ++shared_->orders_given;
  while (shared_->orders_done != serial)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}

Uri any_uri(Scheme scheme) {
  static int serial = 0;
  if (scheme == Scheme::kTcp) return {scheme, "127.0.0.1", 0};
  return {scheme, "unit-" + std::to_string(getpid()) + "-" + std::to_string(++serial), 0};
}

void ProcessTest::SetUp() {
  server_ = std::make_unique<ProcessServer>(any_uri(GetParam()));
  ASSERT_EQ(server_->failure(), "");
  device_ = must(open_device(GetParam(), executor_));
  region_ = must(device_->register_memory(memory_, Access::kRemoteRead | Access::kRemoteWrite));
}

void ProcessTest::TearDown() {
  client_.reset();
  region_.reset();
  device_.reset();
  server_.reset();
}

Result<std::unique_ptr<Connection>> ProcessTest::dial(const Uri& uri, uint64_t timeout_ns,
                                                      uint64_t operation_timeout_ns,
                                                      std::span<const std::byte> hello) {
  return executor_.run(device_->connect(uri, {hello, timeout_ns, operation_timeout_ns}));
}

void ProcessTest::connect(uint64_t operation_timeout_ns) {
  const RemoteRegion mine = region_->remote();
  auto connection = dial(server_->uri(), kPatience, operation_timeout_ns,
                         std::as_bytes(std::span<const RemoteRegion, 1>(&mine, 1)));
  ASSERT_TRUE(connection) << connection.error().to_string();
  client_ = std::make_unique<ClientEnd>();
  client_->connection = std::move(*connection);
  client_->connection->set_receiver(client_.get());
  std::memcpy(&remote_, client_->connection->peer_hello().data(), sizeof remote_);
}

Status ProcessTest::execute(const Batch& batch) {
  auto run = [](Connection& connection, const Batch& b) -> base::Task<Status> {
    co_return co_await connection.execute(b);
  };
  return executor_.run(run(*client_->connection, batch));
}

bool ProcessTest::run_until(const std::function<bool()>& condition, uint64_t timeout_ns) {
  const uint64_t deadline = clock_.now_ns() + timeout_ns;
  while (!condition()) {
    if (clock_.now_ns() > deadline) return false;
    executor_.run_once();
  }
  return true;
}

}  // namespace pmstore::fabric
