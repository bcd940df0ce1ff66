// ClientsSide: the servers, crashes, and what is compared.
#include "tests/scenario/fs/model/clients_side.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <functional>

#include "base/check.h"
#include "pmstore/client.h"
#include "tests/scenario/fs/model/operation_arguments.h"

namespace pmstore::fs::model {
namespace {

constexpr uint64_t kAreaBytes = 16 << 20;
// What the servers have for a moment: news, quarantine, moves.
constexpr uint64_t kSettleNs = 3 * FilesWorld::kLeaseNs;
// A call over a restart ends within so many steps of a tenth of a lease.
constexpr int kMostSteps = 1000;

persist::Domain domain_of(const Setting& setting) {
  return setting.by_message ? persist::Domain::kNone : persist::Domain::kCpuCache;
}

}  // namespace

ClientsSide::ClientsSide(Setting setting)
    : setting_(setting), world_(domain_of(setting), 0, [this] { return now_; }) {
  for (size_t i = 0; i < kServers; ++i) {
    servers_.push_back(std::make_unique<DataServerPool>(world_, fmt::format("data-{}", i),
                                                        kAreaBytes, domain_of(setting)));
  }
  for (size_t i = 0; i < kClients; ++i) connect(i);
  for (size_t i = 0; i < kServers; ++i) add(i);
  AttributeChange all{.set = AttributeChange::kMode, .mode = 0777};
  PMSTORE_CHECK(run(programs_[0].files->set_attributes({}, kRootIno, all)),
                "the root is everybody's");
}

ClientsSide::~ClientsSide() { programs_die(); }

void ClientsSide::connect(size_t program) {
  FileSystemOptions options = world_.options();
  // Nothing is random.
  options.secret = ClientSecret::of_number(100 + secrets_++);
  options.sync = setting_.fsync ? DataSync::kFsync : DataSync::kAlways;
  options.atomic_writes = setting_.atomic;
  programs_[program].files = world_.connect(options);
  PMSTORE_CHECK(programs_[program].files != nullptr, "a client connects");
  programs_[program].files->set_cache(&programs_[program].cache);
}

void ClientsSide::programs_die() {
  for (Open& slot : slots_) slot = {};
  for (Program& program : programs_) program = {};
}

void ClientsSide::crash_server(uint64_t which) {
  const size_t data_server = which % (2 * kServers);
  if (data_server >= kServers) {
    world_.crash();
    world_.start();
  } else {
    servers_[data_server]->crash();
    servers_[data_server]->start();
  }
  ++restarts_;
}

void ClientsSide::crash(const Operation& operation) {
  if (operation.flag) programs_die();
  crash_server(operation.mode);
  // A power cut of everything.
  if (operation.mode % 4 == 3) {
    for (uint64_t i = 0; i <= kServers; ++i) crash_server(i);
  }
  if (!operation.flag) return;
  for (size_t i = 0; i < kClients; ++i) connect(i);
}

void ClientsSide::restart() {
  programs_die();
  for (size_t i = 0; i < kClients; ++i) connect(i);
}

std::optional<Outcome> ClientsSide::apply(const Operation& operation, uint64_t now) {
  now_ = now;
  crashed_within_ = false;
  if (operation.kind == Kind::kMove) {
    move(operation);
    return Outcome{};
  }
  if (operation.kind == Kind::kForget) {
    const size_t program = operation.slot % kClients;
    for (size_t slot = program; slot < kSlots; slot += kClients) slots_[slot] = {};
    if (!operation.flag) run(programs_[program].files->close());
    programs_[program] = {};
    connect(program);
    return Outcome{};
  }
  std::optional<Outcome> outcome;
  const auto keep = [](base::Task<Outcome> task,
                       std::optional<Outcome>& result) -> base::Task<void> {
    result = co_await std::move(task);
  };
  base::Task<void> running = keep(execute(operation), outcome);
  if (operation.interrupt != 0) return interrupt(running, outcome, operation);
  run(std::move(running));
  return outcome;
}

// An odd number: the programs die with the server. Else they wait for it.
std::optional<Outcome> ClientsSide::interrupt(base::Task<void>& running,
                                              std::optional<Outcome>& outcome,
                                              const Operation& operation) {
  const uint64_t turns = operation.interrupt * (1 + operation.offset % 8);
  running.start();
  for (uint64_t turn = 1; turn < turns && !running.done(); ++turn) {
    if (!world_.executor().run_once()) world_.let_time_pass(1000);
  }
  if (running.done()) return outcome;
  crashed_within_ = true;
  crash_server(operation.bytes);
  if (operation.interrupt % 2 == 1) return std::nullopt;
  for (int i = 0; i < kMostSteps && !running.done(); ++i) {
    world_.let_time_pass(FilesWorld::kLeaseNs / 10);
  }
  PMSTORE_CHECK(running.done(), "a call ends when its server is there again");
  return outcome;
}

void ClientsSide::add(size_t server) {
  const auto added = run(programs_[0].files->add_data_server(servers_[server]->uri()));
  PMSTORE_CHECK(added, added ? "" : added.error().to_string().c_str());
  index_[server] = *added;
  draining_[server] = false;
}

// One is drained at a time, so that there is room.
void ClientsSide::move(const Operation& operation) {
  if (operation.mode % 2 == 1) return use_all_servers();
  if (std::any_of(draining_.begin(), draining_.end(), [](bool each) { return each; })) return;
  const size_t server = operation.slot % kServers;
  const auto drained = run(programs_[0].files->drain_data_server(index_[server]));
  PMSTORE_CHECK(drained, drained ? "" : drained.error().to_string().c_str());
  draining_[server] = true;
}

void ClientsSide::use_all_servers() {
  for (size_t i = 0; i < kServers; ++i) {
    if (!draining_[i]) continue;
    draining_[i] = !run(programs_[0].files->drain_data_server(index_[i], true));
    // It was empty, and is gone.
    if (draining_[i]) add(i);
  }
}

base::Task<std::string> ClientsSide::read_whole(Program& program, Attributes attributes) {
  const auto file = co_await program.files->open_file({}, attributes.ino, 0);
  if (!file) co_return "cannot be opened: " + file.error().to_string();
  // This open counts for later ones: what the cache had before it may be old.
  if (!(*file)->keeps_cache()) program.cache.drop(attributes.ino);
  std::string data(attributes.size, '?');
  const auto got = co_await (*file)->pread(std::as_writable_bytes(std::span(data)), 0);
  if (!got) co_return "cannot be read: " + got.error().to_string();
  if (*got != data.size()) co_return fmt::format("{} bytes of {}", *got, data.size());
  // That of another descriptor says whether something may be lost.
  [[maybe_unused]] const auto closed = co_await (*file)->close();
  co_return fmt::format("data {}", std::hash<std::string>()(data));
}

base::Task<std::string> ClientsSide::dump_inode(Program& program, Attributes attributes,
                                                std::string path) {
  FileSystem& client = *program.files;
  std::string all = fmt::format("{} {}\n", path, attributes_text(attributes, false));
  const Caller root;
  auto names = co_await client.list_xattrs(root, attributes.ino);
  if (!names) co_return all + "  attributes that cannot be read\n";
  std::sort(names->begin(), names->end());
  for (const std::string& name : *names) {
    const auto value = co_await client.get_xattr(root, attributes.ino, name);
    all += fmt::format("  {} {}\n", name, std::hash<std::string>()(value ? text_of(*value) : "?"));
  }
  if (attributes.type == FileType::kRegular) {
    all += "  " + co_await read_whole(program, attributes) + "\n";
  }
  if (attributes.type == FileType::kSymlink) {
    const auto target = co_await client.read_link(attributes.ino);
    all += fmt::format("  data {}\n", std::hash<std::string>()(target ? *target : "?"));
  }
  co_return all;
}

base::Task<std::string> ClientsSide::dump_directory(Program& program, Ino directory,
                                                    std::string path) {
  FileSystem& client = *program.files;
  const auto attributes = co_await client.get_attributes(directory);
  if (!attributes) co_return path + " cannot be read\n";
  std::string all = co_await dump_inode(program, *attributes, path);
  uint64_t cookie = 0;
  while (true) {
    const Caller root;
    const auto page = co_await client.read_directory(root, directory, cookie, 100, true);
    if (!page) co_return all + path + " cannot be listed\n";
    if (page->empty()) co_return all;
    for (const auto& listed : *page) {
      const std::string name = path + "/" + listed.entry.name;
      if (listed.entry.type == FileType::kDirectory) {
        all += co_await dump_directory(program, listed.entry.ino, name);
      } else {
        all += co_await dump_inode(program, *listed.attributes, name);
      }
    }
    cookie = page->back().entry.cookie;
  }
}

std::string ClientsSide::dump() {
  // By each client in its turn; slots by the client that has them.
  std::string all = run(dump_directory(programs_[dumps_++ % kClients], kRootIno, ""));
  for (unsigned i = 0; i < kSlots; ++i) {
    if (!slots_[i].is_file) continue;
    Program& program = programs_[i % kClients];
    const auto attributes = run(program.files->get_attributes(slots_[i].file->ino()));
    all += attributes ? fmt::format("slot {} {}\n  {}\n", i, attributes_text(*attributes, false),
                                    run(read_whole(program, *attributes)))
                      : fmt::format("slot {} cannot be read\n", i);
  }
  return all;
}

std::string ClientsSide::check() {
  world_.let_time_pass(kSettleNs);
  ClientOptions options;
  options.secret = ClientSecret::of_number(100 + secrets_++);
  auto store = run(Client::connect(world_.executor(), world_.uri(), options));
  if (!store) return store.error().to_string();
  const auto servers = run(programs_[0].files->data_servers());
  if (!servers) return servers.error().to_string();
  const auto found = run(check_namespace(**store, {{0, 0, servers->front().end}}, false));
  run((*store)->close());
  if (!found) return found.error().to_string();
  std::string wrong;
  for (const std::string& line : found->damage) wrong += line + "\n";
  const auto usage = run(programs_[1].files->usage());
  if (!usage) return usage.error().to_string();
  if (usage->inodes != found->inodes) {
    wrong += fmt::format("{} inodes are counted, but there are {}\n", usage->inodes, found->inodes);
  }
  return wrong;
}

base::Task<std::string> ClientsSide::remove_all(FileSystem& client, std::string path) {
  const std::string shown = path.empty() ? "/" : path;
  while (true) {
    const auto page = co_await client.list(shown);
    if (!page) co_return path + " cannot be listed: " + page.error().to_string();
    if (page->empty()) co_return std::string();
    for (const auto& listed : *page) {
      const std::string name = path + "/" + listed.entry.name;
      if (listed.entry.type == FileType::kDirectory) {
        const std::string wrong = co_await remove_all(client, name);
        if (!wrong.empty()) co_return wrong;
      }
      const auto removed = co_await client.remove(name);
      if (!removed) co_return name + " cannot be removed: " + removed.error().to_string();
    }
  }
}

std::string ClientsSide::finish() {
  for (unsigned slot = 0; slot < kSlots; ++slot) {
    if (run(close(slot)) != 0) return "a file cannot be closed\n";
  }
  use_all_servers();
  std::string wrong = run(remove_all(*programs_[0].files, ""));
  world_.let_time_pass(kSettleNs);
  const auto usage = run(programs_[1].files->usage());
  if (!usage) return wrong + usage.error().to_string();
  if (usage->free_bytes != usage->data_bytes || usage->quarantined_bytes != 0) {
    wrong += fmt::format("of {} bytes {} are free, {} in quarantine\n", usage->data_bytes,
                         usage->free_bytes, usage->quarantined_bytes);
  }
  for (size_t i = 0; i < kServers; ++i) {
    if (!servers_[i]->is_zero()) wrong += fmt::format("data server {}: free and not zero\n", i);
  }
  if (testing::UnitTest::GetInstance()->Failed()) wrong += "an expectation of the world failed\n";
  return wrong;
}

}  // namespace pmstore::fs::model
