// The files of a pool in memory, served on the local fabric in virtual time: a server that can be
// crashed and started again at the same address, and its clients.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "fs/file_area.h"
#include "fs/file_system.h"
#include "fs/files_protocol.h"
#include "fs/files_server.h"
#include "model/page_bytes.h"
#include "persist/pool.h"
#include "pmstore/server.h"
#include "service/host.h"
#include "service/link.h"

namespace pmstore::fs {

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

template <typename T>
int number_of(const PosixResult<T>& result) {
  return result ? 0 : result.number();
}

// Content of files: of two units, and of many.
inline const std::string kSome(100'000, 'L');
inline const std::string kMany(1'000'000, 'L');

class FilesWorld {
 public:
  static constexpr uint32_t kLeaseMs = 1000;
  static constexpr uint64_t kLeaseNs = uint64_t{kLeaseMs} * 1'000'000;
  static constexpr uint64_t kPatienceNs = 20 * kLeaseNs;

  // `frame_bytes`: as FormatOptions; `now_ns` and `most_file_bytes`: as FilesServerOptions. Without
  // the last one the file area stays as it was made. `file_bytes`: of the new pool; 0: the server
  // makes the area.
  explicit FilesWorld(persist::Domain domain = persist::Domain::kCpuCache, uint64_t frame_bytes = 0,
                      std::function<uint64_t()> now_ns = {}, uint64_t most_file_bytes = 0,
                      uint64_t file_bytes = 4 << 20)
      : domain_(domain),
        files_now_ns_(std::move(now_ns)),
        most_file_bytes_(most_file_bytes),
        file_bytes_(file_bytes) {
    pool_ = persist::Pool::in_region(region_.bytes(), domain_, true).value();
    FormatOptions format;
    format.rings = 0;
    format.log_bytes = 0;
    format.shard_log_bytes = 1 << 20;
    format.file_bytes = file_bytes_;
    format.identity = 1;
    format.frame_bytes = frame_bytes;
    EXPECT_TRUE(format_pool(*pool_, format));
    start();
  }
  ~FilesWorld() {
    if (server_ != nullptr) stop();
  }

  void start() {
    ServerOptions options;
    options.lease_ms = kLeaseMs;
    options.discipline = LockDiscipline::kCpu;
    server_ = run(Server::start(executor_, *pool_, options)).value();
    FilesServerOptions files;
    files.lease_ms = kLeaseMs;
    files.identity = 7;
    files.now_ns = files_now_ns_;
    files.most_file_bytes = most_file_bytes_;
    files.make_area = file_bytes_ == 0;
    files.on_fenced = [this](const Error& why) { fenced_.push_back(why.message); };
    auto started = run(FilesServer::start(executor_, *pool_, *server_, files));
    ASSERT_TRUE(started) << started.error().to_string();
    files_ = std::move(*started);
    uri_ = run(server_->listen({fabric::Scheme::kLocal, "files-world", 0})).value();
  }
  void stop() {
    run(files_->stop());
    EXPECT_TRUE(run(server_->stop()));
    server_.reset();
    files_.reset();
  }
  // Everything that is not in the pool is gone.
  void crash() {
    server_.reset();
    files_.reset();
    pool_ = persist::Pool::in_region(region_.bytes(), domain_, false).value();
  }

  FileSystemOptions options() const {
    FileSystemOptions with;
    with.reconnect_timeout_ns = kPatienceNs;
    return with;
  }
  std::unique_ptr<FileSystem> connect() { return connect(options()); }
  std::unique_ptr<FileSystem> connect(FileSystemOptions with) {
    auto connected = run(FileSystem::connect(executor_, uri_, std::move(with)));
    EXPECT_TRUE(connected) << connected.error().to_string();
    return connected ? std::move(*connected) : nullptr;
  }

  template <typename T>
  T run(base::Task<T> task) {
    return executor_.run(std::move(task));
  }
  void let_time_pass(uint64_t ns) {
    run([](base::Executor& executor, uint64_t for_ns) -> base::Task<void> {
      co_await executor.sleep_for(for_ns);
    }(executor_, ns));
  }

  std::unique_ptr<File> open(FileSystem& client, std::string_view path,
                             int flags = O_RDWR | O_CREAT) {
    auto opened = run(client.open(path, flags, 0644));
    EXPECT_TRUE(opened) << path << ": " << opened.error().to_string();
    return opened ? std::move(*opened) : nullptr;
  }
  void write(File& file, uint64_t offset, std::string_view text) {
    const auto written = run(file.pwrite(bytes_of(text), offset));
    EXPECT_TRUE(written) << written.error().to_string();
  }
  // "errno NAME" when it cannot be read.
  std::string read(File& file, uint64_t offset, size_t bytes) {
    std::string text(bytes, '\0');
    const auto got = run(file.pread(std::as_writable_bytes(std::span(text)), offset));
    if (!got) return "errno " + errno_name(got.number());
    text.resize(*got);
    return text;
  }
  FileSystemUsage usage(FileSystem& client) { return run(client.usage()).value(); }

  uint64_t stat(const char* name) {
    return nlohmann::json::parse(server_->stat_json())["files"][name].get<uint64_t>();
  }
  size_t extents(persist::ExtentKind kind) const {
    const auto& all = pool_->info().extents;
    return static_cast<size_t>(std::count_if(
        all.begin(), all.end(), [kind](const auto& extent) { return extent.kind == kind; }));
  }
  size_t record_extents() const { return extents(persist::ExtentKind::kRecords); }
  // The lines about that.
  const std::vector<std::string>& fenced() const { return fenced_; }
  base::Executor& executor() { return executor_; }
  Server& server() { return *server_; }
  const fabric::Uri& uri() const { return uri_; }

 private:
  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  persist::Domain domain_;
  std::function<uint64_t()> files_now_ns_;
  uint64_t most_file_bytes_;
  uint64_t file_bytes_;
  std::vector<std::string> fenced_;
  pmstore::model::PageBytes region_{24 << 20};
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<FilesServer> files_;
  std::unique_ptr<Server> server_;  // goes first
  fabric::Uri uri_{fabric::Scheme::kLocal, {}, 0};
};

// A client that does only what a test says, beside keeping its leases.
class RawClient {
 public:
  explicit RawClient(FilesWorld& world)
      : world_(world),
        device_(std::move(*fabric::open_device(fabric::Scheme::kLocal, world.executor()))) {}

  Result<std::unique_ptr<service::Link>> try_connect(service::ServiceId service,
                                                     std::span<const std::byte> body) {
    return try_connect(service, body, world_.uri());
  }
  Result<std::unique_ptr<service::Link>> try_connect(service::ServiceId service,
                                                     std::span<const std::byte> body,
                                                     fabric::Uri uri) {
    service::LinkOptions options;
    options.service = service;
    options.secret = ClientSecret::of_number(99);
    return world_.run(service::Link::open(*device_, std::move(uri), options, body));
  }
  void connect(service::ServiceId service, std::span<const std::byte> body,
               std::unique_ptr<service::Link>& link) {
    auto opened = try_connect(service, body);
    ASSERT_TRUE(opened) << opened.error().to_string();
    link = std::move(*opened);
    link->keep_lease();
  }
  template <typename T>
  base::Task<Result<fabric::RpcReply>> call(FilesMethod method, T body) {
    std::vector<std::byte> request(sizeof(RequestHead) + sizeof body);
    fabric::MessageWriter writer(request);
    writer.put(RequestHead{});
    writer.put(body);
    co_return co_await files->call(static_cast<uint16_t>(method), request, 64 * 1024);
  }
  // The errno of its answer; -1: there is none.
  template <typename T>
  int error_of(FilesMethod method, const T& body) {
    const auto answered = world_.run(call(method, body));
    EXPECT_TRUE(answered) << answered.error().to_string();
    if (!answered) return -1;
    fabric::MessageReader reader(answered->bytes());
    return reader.get<ReplyHead>().error;
  }
  template <typename T>
  void ask(FilesMethod method, const T& body) {
    EXPECT_EQ(error_of(method, body), 0);
  }

 private:
  FilesWorld& world_;
  std::unique_ptr<fabric::Device> device_;

 public:
  std::unique_ptr<service::Link> files;
  std::unique_ptr<service::Link> data;
};

}  // namespace pmstore::fs
