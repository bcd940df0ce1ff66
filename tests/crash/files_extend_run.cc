#include "tests/crash/files_extend_run.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <array>
#include <list>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/checksum.h"
#include "fs/file_system.h"
#include "fs/files_server.h"
#include "model/page_bytes.h"
#include "pmstore/server.h"
#include "tests/crash/crash_machine.h"
#include "tests/crash/file_worlds.h"
#include "tests/crash/files_process.h"
#include "tests/crash/two_pools.h"

namespace pmstore::crash {
namespace {

using fs::FileSystem;
using Kind = FileChange::Kind;

constexpr uint32_t kExtendLeaseMs = 1000;
constexpr uint64_t kExtendLeaseNs = uint64_t{kExtendLeaseMs} * 1'000'000;
constexpr size_t kLarge = 128 << 10;  // the least that is written without the server's CPU
constexpr size_t kSmall = 3000;       // it lies in its inode

std::span<const std::byte> extend_bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Invariant: what may be found is that of `worlds_`; `recorder().mark()` is behind each change of
// them.
class FilesExtendRun final : public RecordedRun {
 public:
  FilesExtendRun(const std::string& scenario, uint64_t seed, persist::Domain domain)
      : RecordedRun(scenario, seed),
        domain_(domain),
        random_(seed),
        region_(TwoPools::kBytes),
        worlds_(FileContents{}) {
    static constexpr double kHoldNs[] = {4000, 0, 700};
    pools_ = TwoPools::make(region_.bytes(), domain, seed + 1);
    make_files();
    machine_.emplace(CrashMachine::Options{.hold_ns = kHoldNs[seed % 3],
                                           .slow_memory = seed % 2 == 1,
                                           .seed = seed + 1,
                                           .servers = kServers});
    const auto memories = pools_.memories();
    machine_->record(memories, region_.bytes());
    allow_first();
    for (size_t i = 0; i < kServers; ++i) start_server(i);
    for (size_t i = 0; i < kClients; ++i) connect(i);
    const auto added = machine_->run(clients_[0]->add_data_server("local:extend-1"));
    PMSTORE_CHECK(added && *added == FilesProcess::kOther, "the second server is added");
    seed == 0 ? script() : draw();
    drain_beside_extensions();
    end();
  }

  Result<std::unique_ptr<Restarted>> restart(std::span<std::byte> memory) const override {
    PMSTORE_TRY(TwoPools pools, TwoPools::in(memory, domain_, false));
    return restarted_files(std::move(pools));
  }
  // A start takes some milliseconds, and there are thousands of events.
  uint64_t samples() const override { return 2; }
  uint64_t most_exhaustive() const override { return 2; }
  uint64_t inner_samples() const override { return 1; }
  uint64_t death_every() const override { return 2048; }

 private:
  static constexpr size_t kServers = 2;
  static constexpr size_t kClients = 2;
  struct Served {
    std::unique_ptr<fs::FilesServer> files;
    std::unique_ptr<Server> server;  // goes first
  };
  // A call of a client, on its way.
  struct Call {
    size_t client = 0;
    FileChange change;
    uint64_t number = 0;
    base::Task<void> task = {};
  };
  using Calls = std::list<Call>;

  static FileChange write(std::string file, uint64_t offset, size_t bytes, char letter) {
    return {Kind::kWrite, std::move(file), offset, std::string(bytes, letter)};
  }
  static FileChange append(std::string file, size_t bytes, char letter) {
    return {Kind::kAppend, std::move(file), 0, std::string(bytes, letter)};
  }

  // ---- what a run consists of ----

  void script();
  void draw();
  void draw_round();
  void drain_beside_extensions();

  // ---- the pieces of them ----

  void make_files();
  void start_server(size_t index);
  void connect(size_t client);
  void end();
  std::string content_of(const FileContents& contents) const;
  // Before anything is recorded.
  void allow_first() { allow(digests()); }
  std::vector<uint64_t> digests();
  void promise();
  void begin(Calls& calls, size_t client, FileChange change);
  base::Task<void> execute(Call& call);
  void finish(Calls& calls);
  void call(size_t client, FileChange change);
  void call_both(FileChange first, FileChange second, uint64_t ns);
  void die_amid(size_t client, FileChange change, uint64_t ns);
  void look(size_t client);
  uint64_t size_of(const std::string& file) const {
    return worlds_.contents().front().at(file).size();
  }

  const persist::Domain domain_;
  Random random_;
  model::PageBytes region_;
  TwoPools pools_;
  std::optional<CrashMachine> machine_;
  std::array<Served, kServers> servers_;
  std::array<std::unique_ptr<FileSystem>, kClients> clients_;
  FileWorlds worlds_;
};

// ---- what is right ----

// As FilesProcess::content() gives it.
std::string FilesExtendRun::content_of(const FileContents& contents) const {
  std::string all = fmt::format("/ mode 755 links 2 size {}\n", contents.size());
  for (const auto& [name, content] : contents) {
    const uint64_t data =
        content.empty() ? 1 : base::checksum64(extend_bytes_of(content), uint64_t{1});
    all += fmt::format("/{} mode 644 links 1 size {} data {:x}\n", name, content.size(), data);
  }
  return all;
}

std::vector<uint64_t> FilesExtendRun::digests() {
  std::vector<uint64_t> digests;
  for (const FileContents& contents : worlds_.contents()) {
    const std::string content = content_of(contents);
    digests.push_back(TwoPools::digest_of(content));
    describe(digests.back(), content);
  }
  return digests;
}

void FilesExtendRun::promise() {
  machine_->recorder().mark();
  allow(digests());
}

// What a client sees is a world; nothing else happens from here on.
void FilesExtendRun::look(size_t client) {
  FileContents found = worlds_.contents().front();
  for (auto& [name, content] : found) {
    const auto file = machine_->run(clients_[client]->open("/" + name, O_RDONLY));
    PMSTORE_CHECK(file.has_value(), "a file that is there can be opened");
    content.assign((*file)->attributes().size, '?');
    const auto got = machine_->run(
        (*file)->pread(std::as_writable_bytes(std::span(content.data(), content.size())), 0));
    PMSTORE_CHECK(got && *got == content.size(), "a file that is there can be read");
    PMSTORE_CHECK(machine_->run((*file)->close()), "what was read can be closed");
  }
  PMSTORE_CHECK(worlds_.settle(found), "each call happens as a whole, or not at all");
  promise();
}

// ---- servers and clients ----

// Before the record: power cuts of making a file system are those of other runs.
void FilesExtendRun::make_files() {
  auto opened = FilesProcess::open(*pools_.names);  // there is no other data server yet
  PMSTORE_CHECK(opened, opened ? "" : opened.error().message.c_str());
  FilesProcess& process = **opened;
  const FileContents made{
      {"a", ""}, {"b", std::string(2 * fs::kUnitBytes, 'p')}, {"inline", std::string(kSmall, 'i')}};
  for (const auto& [name, content] : made) {
    fs::NewFile file;
    file.mode = 0644;
    const auto ino = process.run(process.names().make({}, fs::kRootIno, name, file));
    PMSTORE_CHECK(ino, "a file is made");
    if (content.empty()) continue;
    const auto written = process.run(process.names().write(ino->ino, 0, extend_bytes_of(content)));
    PMSTORE_CHECK(written, "there is room for a file");
  }
  const auto content = process.content();
  PMSTORE_CHECK(content && *content == content_of(made), "a content is told as it is found");
  worlds_ = FileWorlds(made);
}

void FilesExtendRun::start_server(size_t index) {
  persist::Pool& pool = index == 0 ? *pools_.names : *pools_.other;
  base::Executor& executor = machine_->executor();
  ServerOptions options;
  options.discipline = LockDiscipline::kCpu;
  options.lease_ms = kExtendLeaseMs;
  options.devices = &machine_->server(index);
  options.device_landing = machine_->server(index).landing();
  auto server = machine_->run(Server::start(executor, pool, options));
  PMSTORE_CHECK(server, server ? "" : server.error().message.c_str());
  servers_[index].server = std::move(*server);
  fs::FilesServerOptions with;
  with.lease_ms = kExtendLeaseMs;
  with.now_ns = [] { return uint64_t{1}; };
  with.devices = &machine_->server(index);
  with.data_server = index != 0;
  auto files = machine_->run(fs::FilesServer::start(executor, pool, *servers_[index].server, with));
  PMSTORE_CHECK(files, files ? "" : files.error().message.c_str());
  servers_[index].files = std::move(*files);
  const fabric::Uri uri{fabric::Scheme::kLocal, fmt::format("extend-{}", index), 0};
  const auto at = machine_->run(servers_[index].server->listen(uri));
  PMSTORE_CHECK(at, at ? "" : at.error().message.c_str());
}

void FilesExtendRun::connect(size_t client) {
  fs::FileSystemOptions options;
  options.devices = &machine_->client(client);
  options.reconnect_timeout_ns = 20 * kExtendLeaseNs;
  const fabric::Uri uri{fabric::Scheme::kLocal, "extend-0", 0};
  auto made = machine_->run(FileSystem::connect(machine_->executor(), uri, options));
  PMSTORE_CHECK(made, made ? "" : made.error().message.c_str());
  clients_[client] = std::move(*made);
}

void FilesExtendRun::end() {
  trace_ = machine_->take();
  for (auto& client : clients_) client.reset();
  for (Served& served : servers_) served = {};
  pools_ = {};
  machine_.reset();
}

// ---- calls ----

base::Task<void> FilesExtendRun::execute(Call& call) {
  const FileChange& change = call.change;
  const auto file = co_await clients_[call.client]->open("/" + change.file, O_RDWR);
  PMSTORE_CHECK(file.has_value(), "a file that is there can be opened");
  bool done = false;
  if (change.kind == Kind::kTruncate) {
    done = (co_await (*file)->truncate(change.offset)).has_value();
  } else if (change.kind == Kind::kAppend) {
    done = (co_await (*file)->append(extend_bytes_of(change.data))).has_value();
  } else {
    done = (co_await (*file)->pwrite(extend_bytes_of(change.data), change.offset)).has_value();
  }
  PMSTORE_CHECK(done, "there is room for each call");
  worlds_.acknowledged(call.number);
  promise();
  const auto closed = co_await (*file)->close();
  PMSTORE_CHECK(closed.has_value(), "what is durable can be closed");
}

void FilesExtendRun::begin(Calls& calls, size_t client, FileChange change) {
  Call& call = calls.emplace_back(Call{client, std::move(change)});
  call.number = worlds_.begin(call.change);
  promise();
  call.task = execute(call);
  call.task.start();
}

void FilesExtendRun::finish(Calls& calls) {
  constexpr uint64_t kShortestNs = 20'000;
  constexpr uint64_t kMostNs = 20 * kExtendLeaseNs;
  for (Call& call : calls) {
    for (uint64_t ns = kShortestNs; ns < kMostNs && !call.task.done(); ns += ns / 8) {
      machine_->pass(ns);
    }
    PMSTORE_CHECK(call.task.done(), "a call ends");
  }
}

void FilesExtendRun::call(size_t client, FileChange change) {
  Calls calls;
  begin(calls, client, std::move(change));
  finish(calls);
}

// By both clients, the second one so much later.
void FilesExtendRun::call_both(FileChange first, FileChange second, uint64_t ns) {
  Calls calls;
  begin(calls, 0, std::move(first));
  machine_->pass(ns);
  begin(calls, 1, std::move(second));
  finish(calls);
  look(0);
}

// The client vanishes so much later. Until it is forgotten, what it has posted may take effect.
void FilesExtendRun::die_amid(size_t client, FileChange change, uint64_t ns) {
  {
    Calls calls;
    begin(calls, client, std::move(change));
    machine_->pass(ns);
  }
  clients_[client].reset();
  machine_->pass(3 * kExtendLeaseNs);
  look(1 - client);
  connect(client);
}

void FilesExtendRun::drain_beside_extensions() {
  // The other server has room for all of it then.
  const FileContents now = worlds_.contents().front();
  for (const auto& [name, content] : now) {
    if (content.size() > fs::kUnitBytes) call(1, {Kind::kTruncate, name, fs::kUnitBytes});
  }
  Calls calls;
  begin(calls, 0, write("a", size_of("a"), kLarge, 'y'));
  machine_->pass(random_.below(100'000));
  const auto draining = machine_->run(clients_[1]->drain_data_server(FilesProcess::kOther));
  PMSTORE_CHECK(draining.has_value(), "a server can be drained");
  finish(calls);
  call(1, write("b", size_of("b"), kLarge, 'z'));
  constexpr int kMostLooks = 100;
  bool is_gone = false;
  for (int i = 0; i < kMostLooks && !is_gone; ++i) {
    machine_->pass(kExtendLeaseNs / 4);
    const auto all = machine_->run(clients_[1]->data_servers());
    PMSTORE_CHECK(all.has_value(), "the data servers can be listed");
    for (const fs::DataServerInfo& each : *all) {
      is_gone |= each.index == FilesProcess::kOther && each.state == fs::DataServerState::kGone;
    }
  }
  PMSTORE_CHECK(is_gone, "a server that is drained is gone when it is empty");
  look(1);
}

// ---- runs ----

void FilesExtendRun::script() {
  call(0, write("a", 0, kLarge, 'a'));  // its first extents
  call_both(write("a", kLarge, kLarge, 'b'), write("b", 2 * fs::kUnitBytes, kLarge, 'c'), 0);
  die_amid(0, write("a", size_of("a"), kLarge + 500, 'd'), 45'000);
  // Where bytes of the dead client may lie; then what is behind that stays hidden.
  call(1, write("a", size_of("a"), kLarge, 'e'));
  call(1, {Kind::kTruncate, "a", kLarge + 70});
  call(0, append("a", 600, 'f'));
  // Each takes the room of the other, so both have the same letter.
  call_both(write("b", size_of("b"), kLarge, 'g'), append("b", 900, 'g'), 30'000);
  // It outgrows its inode.
  die_amid(1, write("inline", kSmall, kLarge, 'h'), 60'000);
  if (size_of("inline") == kSmall) call(0, write("inline", kSmall, kLarge, 'h'));
}

void FilesExtendRun::draw() {
  for (uint64_t rounds = 2 + random_.below(2); rounds > 0; --rounds) draw_round();
}

void FilesExtendRun::draw_round() {
  static constexpr const char* kFiles[] = {"a", "b", "inline"};
  const std::string file = kFiles[random_.below(std::size(kFiles))];
  const std::string other = file == "a" ? "b" : "a";
  const char letter = static_cast<char>('A' + random_.below(26));
  const size_t bytes = kLarge + random_.below(2) * random_.below(fs::kUnitBytes);
  const uint64_t ns = random_.below(150'000);
  const FileChange extends = write(file, size_of(file), bytes, letter);
  switch (random_.below(6)) {
    case 0: return call(random_.below(kClients), extends);
    case 1: return call_both(extends, write(other, size_of(other), kLarge, 'q'), ns);
    case 2: return call_both(extends, append(file, 1 + random_.below(5000), letter), ns);
    case 3: {
      call(0, {Kind::kTruncate, file, random_.below(size_of(file) + 1)});
      return call(1, write(file, size_of(file), kLarge, letter));
    }
    default: return die_amid(random_.below(kClients), extends, ns);
  }
}

}  // namespace

std::unique_ptr<RecordedRun> files_extend_run(const std::string& scenario, uint64_t seed,
                                              persist::Domain domain) {
  return std::make_unique<FilesExtendRun>(scenario, seed, domain);
}

}  // namespace pmstore::crash
