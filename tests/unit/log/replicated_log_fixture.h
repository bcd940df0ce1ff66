// Three servers with logs over the in-process fabric, in virtual time, and one log that all have.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "log/log_host.h"
#include "log/replicated_log.h"
#include "tests/unit/log/log_pool.h"

namespace pmstore::log {

using base::Task;

inline constexpr size_t kServers = 3;
inline constexpr uint64_t kLogBytes = 16 * 1024;
inline constexpr uint64_t kSoonNs = 1'000'000'000;
inline constexpr uint64_t kLaterNs = 60'000'000'000;

class Server {
 public:
  Server(base::Executor& executor, size_t number, persist::Domain domain)
      : executor_(executor),
        number_(number),
        domain_(domain),
        region_(persist::round_up(kTestArea + 128 * 1024, uint64_t{4096})) {
    pool_ = persist::Pool::in_region(region_.bytes(), domain_, true).value();
    EXPECT_TRUE(LogStore::format(*pool_, kTestArea, 77 + number));
    start();
  }
  void start() {
    if (host_) return;
    pool_ = persist::Pool::in_region(region_.bytes(), domain_, false).value();
    LogHostOptions options;
    options.host.lease_ms = 200;
    host_ = LogHost::start(executor_, *pool_, options).value();
    executor_.run(host_->listen(*fabric::parse_uri(uri()))).value();
  }
  bool listen_also(const std::string& as) {
    return executor_.run(host_->listen(*fabric::parse_uri(as))).has_value();
  }
  // As a crash: the memory stays as it is.
  void kill() { host_.reset(); }
  bool up() const { return host_ != nullptr; }
  std::string uri() const { return fmt::format("local:replica{}", number_); }
  LogStore& store() { return host_->store(); }
  // Of its medium; the server runs.
  void damage_entry(std::string_view log, uint64_t lsn) {
    std::byte* const entry = data_in_store(store(), store().find(log)->id, lsn);
    entry[sizeof(EntryHeader)] ^= std::byte{1};
  }

 private:
  base::Executor& executor_;
  size_t number_;
  persist::Domain domain_;
  model::PageBytes region_;
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<LogHost> host_;
};

class ReplicatedLogTest : public testing::TestWithParam<persist::Domain> {
 protected:
  ReplicatedLogTest() {
    for (size_t i = 0; i < kServers; ++i) {
      servers_[i] = std::make_unique<Server>(executor_, i, GetParam());
    }
  }
  ~ReplicatedLogTest() override { log_.reset(); }

  template <typename T>
  T run(Task<T> task) {
    return executor_.run(std::move(task));
  }
  static Task<void> sleep(base::Executor& executor, uint64_t ns) {
    co_await executor.sleep_for(ns);
  }
  std::vector<std::string> uris(const std::vector<size_t>& which = {0, 1, 2}) const {
    std::vector<std::string> list;
    for (const size_t i : which) list.push_back(servers_[i]->uri());
    return list;
  }
  Status create(const std::vector<size_t>& which = {0, 1, 2}) {
    return run(ReplicatedLog::create(executor_, "log", {.bytes = kLogBytes}, uris(which), {}));
  }
  Result<std::unique_ptr<ReplicatedLog>> take(const std::vector<size_t>& which = {0, 1, 2},
                                              const ReplicatedLogOptions& options = {},
                                              bool* only_if_gone = nullptr) {
    return run(ReplicatedLog::open(executor_, "log", uris(which), options, only_if_gone));
  }
  // Fails the test when it cannot be had.
  bool open(const std::vector<size_t>& which = {0, 1, 2},
            const ReplicatedLogOptions& options = {}) {
    log_.reset();
    auto opened = take(which, options);
    if (!opened) ADD_FAILURE() << opened.error().to_string();
    if (opened) log_ = std::move(*opened);
    return opened.has_value();
  }
  static std::string text(uint64_t index) { return text_of(index, 20 + index * 37 % 300); }
  Result<Appended> append(uint64_t count = 1) {
    return run(append_task(*log_, log_->next_index(), count));
  }
  static Task<Result<Appended>> append_task(ReplicatedLog& log, uint64_t first, uint64_t count) {
    std::vector<std::string> texts;
    for (uint64_t i = 0; i < count; ++i) texts.push_back(text(first + i));
    std::vector<std::span<const std::byte>> payloads;
    for (const std::string& each : texts) payloads.push_back(std::as_bytes(std::span(each)));
    co_return co_await log.append_batch(payloads);
  }
  static Task<void> append_into(std::optional<Result<Appended>>& to, ReplicatedLog& log,
                                uint64_t first, uint64_t count) {
    to = co_await append_task(log, first, count);
  }
  std::unique_ptr<LogReader> follower(const CurrentReplica& at) {
    LogReaderOptions reading;
    reading.current_replica = true;
    return run(LogReader::open(*at.client, at.info.id, reading)).value();
  }
  // As a drop of the third that is interrupted when the first has recorded it.
  Status record_at_first_alone() {
    ReplicaPlace place;
    place.replicas = uris({0, 1});
    place.membership = 2;
    LogStore& first = servers_[0]->store();
    return first.set_membership(first.find("log")->id, 1, place);
  }
  std::vector<TestEntry> entries(size_t server) {
    return entries_of(servers_[server]->store(), "log");
  }
  // All replicas have the entries 1 to next_index() - 1, and nobody shows anything else.
  void expect_equal(const std::vector<size_t>& which = {0, 1, 2}) {
    run(sleep(executor_, 1'000'000));  // then the tail is published
    for (const size_t server : which) {
      const auto found = entries(server);
      EXPECT_EQ(found.size() + 1, log_->next_index()) << servers_[server]->uri();
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i], (TestEntry{i + 1, text(i + 1)})) << servers_[server]->uri();
      }
      EXPECT_EQ(servers_[server]->store().find("log")->tail_lsn, log_->tail_lsn());
    }
  }
  ReplicatedLogOptions dropping(const std::vector<size_t>& which, bool gone = false) const {
    ReplicatedLogOptions options;
    options.producer.takeover = Takeover::kSteal;
    options.drop = uris(which);
    options.dropped_are_gone = gone;
    return options;
  }
  static ReplicatedLogOptions stealing() {
    ReplicatedLogOptions options;
    options.producer.takeover = Takeover::kSteal;
    return options;
  }

  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  std::array<std::unique_ptr<Server>, kServers> servers_;
  std::unique_ptr<ReplicatedLog> log_;
};

inline std::string domain_of(const testing::TestParamInfo<persist::Domain>& info) {
  return info.param == persist::Domain::kCpuCache ? "one_sided" : "two_sided";
}

}  // namespace pmstore::log
