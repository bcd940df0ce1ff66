#include "tests/crash/replica_servers.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/check.h"
#include "fabric/uri.h"
#include "log/log_store.h"

namespace pmstore::crash {
namespace {

constexpr uint64_t kAreaBytes = 40 * 1024;
constexpr uint64_t kServerBytes = 160 * 1024;
constexpr uint64_t kWordBytes = 4096;
constexpr uint64_t kNobody = 0;

}  // namespace

size_t ReplicaServers::memory_bytes(size_t servers) { return servers * kServerBytes + kWordBytes; }

std::span<std::byte> ReplicaServers::part(std::span<std::byte> memory, size_t server) {
  return memory.subspan(server * kServerBytes, kServerBytes);
}

void ReplicaServers::format(std::span<std::byte> memory, size_t servers, persist::Domain domain) {
  for (size_t i = 0; i < servers; ++i) {
    auto pool = persist::Pool::in_region(part(memory, i), domain, true);
    PMSTORE_CHECK(pool && log::LogStore::format(**pool, kAreaBytes, 77 + i), "it is large enough");
  }
}

ReplicaServers::ReplicaServers(base::Executor& executor, std::span<std::byte> memory,
                               size_t servers, persist::Domain domain, CrashMachine* machine)
    : executor_(executor), memory_(memory), domain_(domain), machine_(machine), servers_(servers) {
  PMSTORE_CHECK(memory.size() == memory_bytes(servers), "the memory is that of so many servers");
}

std::string ReplicaServers::uri(size_t server) { return fmt::format("local:replica{}", server); }

size_t ReplicaServers::number_of(const std::string& uri) {
  return static_cast<size_t>(uri.back() - '0');
}

std::vector<std::string> ReplicaServers::uris() const {
  std::vector<std::string> all;
  for (size_t i = 0; i < count(); ++i) all.push_back(uri(i));
  return all;
}

Status ReplicaServers::open() {
  for (size_t i = 0; i < count(); ++i) {
    PMSTORE_TRY(servers_[i].pool, persist::Pool::in_region(part(memory_, i), domain_, false));
  }
  word_ = std::make_unique<persist::Memory>(memory_.last(kWordBytes),
                                            persist::MemoryOptions{.domain = domain_});
  return {};
}

std::vector<persist::Memory*> ReplicaServers::memories() {
  std::vector<persist::Memory*> all;
  for (Server& server : servers_) all.push_back(&server.pool->memory());
  all.push_back(word_.get());
  return all;
}

Status ReplicaServers::start(size_t server) {
  log::LogHostOptions options;
  if (machine_ != nullptr) {
    options.host.device_landing = machine_->server(server).landing();
    options.host.devices = &machine_->server(server);
  }
  Server& starting = servers_[server];
  PMSTORE_TRY(starting.host, log::LogHost::start(executor_, *starting.pool, options));
  const auto listening = executor_.run(starting.host->listen(*fabric::parse_uri(uri(server))));
  if (!listening) return listening.error();
  return {};
}

Result<log::LogInfo> ReplicaServers::info(size_t server) const {
  return servers_[server].host->store().find(kReplicatedName);
}

log::LogClientOptions ReplicaServers::client() const {
  log::LogClientOptions options;
  if (machine_ != nullptr) options.devices = &machine_->client(0);
  return options;
}

// ---- who is gone ----

size_t ReplicaServers::gone() const {
  uint64_t word = 0;
  std::memcpy(&word, word_->base(), sizeof word);
  return word == kNobody ? count() : word - 1;
}

void ReplicaServers::store_gone(uint64_t word) {
  word_->store64(reinterpret_cast<uint64_t*>(word_->base()), word);
}

Status ReplicaServers::set_gone(size_t server) {
  store_gone(server == count() ? kNobody : server + 1);
  word_->flush(word_->base(), sizeof(uint64_t));
  const auto durable = word_->drain();
  if (!durable) return durable.error();
  return {};
}

void ReplicaServers::doubt_who_is_gone() {
  for (size_t i = 0; i < count(); ++i) store_gone(i + 1);
  store_gone(kNobody);
}

// ---- entries ----

std::string replica_text(uint64_t index) {
  std::string text(20 + index * 37 % 300 + (index % 3 == 0 ? 1800 : 0), '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + (index + i) % 26);
  return text;
}

base::Task<Result<log::Appended>> append_texts(log::ReplicatedLog& log, uint64_t count) {
  std::vector<std::string> texts;
  for (uint64_t i = 0; i < count; ++i) texts.push_back(replica_text(log.next_index() + i));
  std::vector<std::span<const std::byte>> payloads;
  for (const std::string& each : texts) payloads.push_back(std::as_bytes(std::span(each)));
  co_return co_await log.append_batch(payloads);
}

}  // namespace pmstore::crash
