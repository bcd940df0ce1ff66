#include "tests/crash/log_content.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checksum.h"
#include "base/random.h"
#include "tests/crash/version_one.h"

namespace pmstore::log {
namespace {

constexpr size_t kWorkBytes = 100;

std::string payload_of(uint64_t index, size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('A' + (index * 7 + i) % 58);
  return text;
}

}  // namespace

std::string LogContent::append(size_t bytes) {
  std::string payload = payload_of(next_index, bytes);
  entries.push_back({next_index++, payload});
  return payload;
}

uint64_t Content::digest() const {
  if (!area) return crash::kNothing;
  uint64_t digest = 1;
  for (const auto& [name, log] : logs) {
    digest = base::checksum64(std::as_bytes(std::span(name)), digest);
    digest = base::mix64(digest ^ log.id) + (log.sealed ? 1 : 0);
    digest = base::mix64(digest ^ log.next_index);
    digest = base::mix64(digest ^ log.identity);
    for (const TestEntry& entry : log.entries) {
      digest = base::checksum64(std::as_bytes(std::span(entry.payload)), digest ^ entry.index);
    }
  }
  return digest;
}

std::string Content::text() const {
  std::string list = area ? "logs" : "no area";
  for (const auto& [name, log] : logs) {
    list += fmt::format(" {}(id {}{}, next {}, entries", name, log.id, log.sealed ? ", sealed" : "",
                        log.next_index);
    for (const TestEntry& entry : log.entries) {
      list += fmt::format(" {}({})", entry.index, entry.payload.size());
    }
    list += ")";
  }
  return list;
}

Result<Content> content_of(const LogStore& store) {
  Content content{true, {}};
  for (const LogInfo& info : store.list()) {
    if (!info.damaged.empty()) return make_error(ErrorCode::kDamaged, info.name);
    PMSTORE_TRY(auto entries, read_entries(store, info.name));
    content.logs[info.name] = {info.id, info.sealed, info.next_index, std::move(entries),
                               info.identity};
  }
  if (store.damaged_places() > 0) return make_error(ErrorCode::kDamaged, "a place");
  return content;
}

Result<Content> recover(persist::Pool& pool, std::unique_ptr<LogStore>& store,
                        uint64_t new_identity) {
  store.reset();
  PMSTORE_TRY_STATUS(check_version_one(pool));
  auto opened = LogStore::open(pool, new_identity);
  if (!opened) {
    const bool none = opened.code() == ErrorCode::kNotFound || opened.code() == ErrorCode::kBadPool;
    return none ? Result<Content>(Content{}) : opened.error();
  }
  store = std::move(*opened);
  return content_of(*store);
}

Status append_to(LogStore& store, uint64_t id, const std::vector<std::string>& payloads) {
  std::vector<std::span<const std::byte>> spans;
  for (const std::string& each : payloads) spans.push_back(std::as_bytes(std::span(each)));
  // Of lone entries one half by each of their ways.
  const bool at_once = spans.size() == 1 && spans[0].size() % 2 == 0;
  if (at_once && store.append_durable(id, spans[0])) return {};
  auto appended = store.append(id, spans);
  if (!appended) return appended.error();
  PMSTORE_TRY_STATUS(store.commit_appends());
  return {};
}

Result<Content> work_on(LogStore& store, Content content, uint64_t highest_id) {
  for (auto& [name, log] : content.logs) {
    if (log.sealed) continue;
    PMSTORE_TRY_STATUS(append_to(store, log.id, {log.append(kWorkBytes)}));
    // Trim-oldest may have dropped what was there.
    PMSTORE_TRY(const auto entries, read_entries(store, name));
    if (entries.empty() || !(entries.back() == log.entries.back())) {
      return make_error(ErrorCode::kDamaged, "a lost entry in " + name);
    }
    if (entries.size() < log.entries.size()) log.trim(entries.size());
  }
  if (content.logs.size() < kMostLogs) {
    const uint64_t identity = identity_behind(content.digest());
    PMSTORE_TRY(const LogInfo made,
                store.create(fmt::format("new{}", content.logs.size()),
                             {kScriptLogBytes, FullPolicy::kTrimOldest, identity}));
    for (const auto& [name, log] : content.logs) highest_id = std::max(highest_id, log.id);
    if (made.id <= highest_id) {
      return make_error(ErrorCode::kConflict, fmt::format("id {} is used again", made.id));
    }
    content.logs[made.name] = {made.id, false, 1, {}, identity};
  }
  return content;
}

}  // namespace pmstore::log

namespace pmstore::crash {
namespace {

constexpr size_t kRestartedBytes = 100;  // payload of what work() appends
constexpr uint64_t kMostRoom = 1024;     // that it takes

}  // namespace

Result<std::unique_ptr<Restarted>> RestartedLogs::open(std::span<std::byte> memory,
                                                       persist::Domain domain,
                                                       uint64_t new_identity) {
  auto process = std::make_unique<RestartedLogs>();
  process->new_identity_ = new_identity;
  PMSTORE_TRY(process->pool_, persist::Pool::in_region(memory, domain, false));
  return process;
}

Result<uint64_t> RestartedLogs::recover() {
  PMSTORE_TRY(content_, log::recover(*pool_, store_, new_identity_));
  return content_.digest();
}

// An area whose making was cut off is never finished: docs/limits.md.
Result<uint64_t> RestartedLogs::work() {
  if (!store_) return kNothing;
  const uint64_t turn = content_.digest() % 3;
  for (auto& [name, log] : content_.logs) {
    PMSTORE_TRY(const log::LogInfo info, store_->info(log.id));
    const bool roomy = info.tail_lsn + kMostRoom < info.start_lsn + info.bytes;
    if (log.sealed || turn == 2 || (turn == 0 && !roomy)) continue;
    if (turn == 0) {
      PMSTORE_TRY_STATUS(log::append_to(*store_, log.id, {log.append(kRestartedBytes)}));
    } else {
      PMSTORE_TRY([[maybe_unused]] auto grant, store_->acquire(log.id, info.membership));
      PMSTORE_TRY_STATUS(store_->release(log.id));
    }
    return content_.digest();
  }
  if (content_.logs.size() < log::kMostLogs) {
    const uint64_t identity = log::identity_behind(content_.digest());
    PMSTORE_TRY(const log::LogInfo made,
                store_->create(fmt::format("new{}", content_.logs.size()),
                               {log::kScriptLogBytes, log::FullPolicy::kTrimOldest, identity}));
    content_.logs[made.name] = {made.id, false, 1, {}, identity};
  } else {
    auto& [name, log] = *content_.logs.begin();
    PMSTORE_TRY_STATUS(log::as_status(store_->trim_below_index(log.id, log.next_index)));
    log.trim(0);
  }
  return content_.digest();
}

}  // namespace pmstore::crash
