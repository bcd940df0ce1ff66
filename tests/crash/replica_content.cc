#include "tests/crash/replica_content.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/random.h"
#include "tests/unit/log/log_entries.h"

namespace pmstore::crash {

using log::ReplicatedLog;
using log::ReplicatedLogOptions;

uint64_t ReplicaContent::digest() const {
  uint64_t digest = base::mix64(gone + 1);
  for (const uint64_t each : {last, least_first, most_first}) digest = base::mix64(digest ^ each);
  for (const size_t member : members) digest = base::mix64(digest ^ (member + 100));
  return digest;
}

std::string ReplicaContent::text() const {
  return fmt::format("entries {}{} to {} on servers {}, gone {}", least_first,
                     most_first == least_first ? "" : fmt::format(" or {}", most_first), last,
                     fmt::join(members, " "), gone);
}

Result<ReplicaContent> replica_content(ReplicaServers& servers, ReplicatedLog& log) {
  ReplicaContent content;
  content.gone = servers.count();
  content.last = log.next_index() - 1;
  content.least_first = UINT64_MAX;
  content.most_first = 0;
  for (const std::string& uri : log.replicas()) {
    const size_t server = ReplicaServers::number_of(uri);
    content.members.push_back(server);
    const auto wrong = [&](const std::string& what) {
      return make_error(ErrorCode::kDamaged, uri + ": " + what);
    };
    PMSTORE_TRY(const log::LogInfo info, servers.info(server));
    if (info.membership != log.membership() || info.replicas != log.replicas()) {
      return wrong(fmt::format("it says membership {}", info.membership));
    }
    if (info.identity != kReplicatedIdentity) return wrong("it has another log");
    if (!info.damaged.empty()) return wrong("something is damaged");
    PMSTORE_TRY(const auto entries,
                log::read_entries(servers.host(server).store(), kReplicatedName));
    const uint64_t last = entries.empty() ? info.next_index - 1 : entries.back().index;
    if (last != content.last) {
      return wrong(fmt::format("it has entries up to {}, not {}", last, content.last));
    }
    const uint64_t first = entries.empty() ? info.next_index : entries.front().index;
    content.least_first = std::min(content.least_first, first);
    content.most_first = std::max(content.most_first, first);
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].index == first + i && entries[i].payload == replica_text(entries[i].index)) {
        continue;
      }
      return wrong(fmt::format("entry {} is another one", first + i));
    }
  }
  return content;
}

Result<std::unique_ptr<Restarted>> RestartedReplicas::open(std::span<std::byte> memory,
                                                           size_t servers, persist::Domain domain) {
  std::unique_ptr<RestartedReplicas> made(new RestartedReplicas(memory, servers, domain));
  PMSTORE_TRY_STATUS(made->servers_.open());
  return std::unique_ptr<Restarted>(std::move(made));
}

Status RestartedReplicas::take_over(const std::vector<std::string>& servers,
                                    ReplicatedLogOptions options) {
  log_.reset();
  options.client = servers_.client();
  options.producer.takeover = log::Takeover::kSteal;
  auto opened =
      executor_.run(ReplicatedLog::open(executor_, kReplicatedName, servers, std::move(options)));
  if (!opened) return opened.error();
  log_ = std::move(*opened);
  return {};
}

// A member that alone has the log is never lost for good, because then the log would be lost
// rightly.
Status RestartedReplicas::start() {
  gone_ = servers_.gone();
  for (size_t i = 0; i < servers_.count(); ++i) {
    const Status started = servers_.start(i);
    if (!started) {
      return make_error(started.code(),
                        servers_.uri(i) + " does not start: " + started.error().message);
    }
  }
  if (gone_ < servers_.count()) {
    const auto info = servers_.info(gone_);
    const std::vector<std::string> alone = {servers_.uri(gone_)};
    if (info && info->replicas == alone) gone_ = servers_.count();
  }
  for (size_t i = 0; i < servers_.count(); ++i) {
    const auto info = servers_.info(i);
    if (!info && info.code() == ErrorCode::kNotFound) continue;  // to be added just now
    if (!info) return info.error();
    seen_ = std::max(seen_, info->next_index - 1);
    if (i != gone_) membership_ = std::max(membership_, info->membership);
  }
  if (gone_ < servers_.count()) servers_.kill(gone_);
  return servers_.set_gone(gone_);
}

Result<ReplicaContent> RestartedReplicas::content() {
  PMSTORE_TRY_STATUS(executor_.run(log_->publish()));
  PMSTORE_TRY(ReplicaContent content, replica_content(servers_, *log_));
  content.gone = gone_;
  return content;
}

Result<uint64_t> RestartedReplicas::recover() {
  PMSTORE_TRY_STATUS(start());
  std::vector<std::string> here;
  for (size_t i = 0; i < servers_.count(); ++i) {
    if (servers_.runs(i)) here.push_back(servers_.uri(i));
  }
  Status opened;
  if (gone_ < servers_.count()) {
    ReplicatedLogOptions options;
    options.drop = {servers_.uri(gone_)};
    options.dropped_are_gone = true;
    opened = take_over(here, options);
  }
  if (gone_ == servers_.count() || (!opened && opened.code() == ErrorCode::kNotFound)) {
    opened = take_over(here, {});  // all are there, or it was no member
  }
  if (!opened) {
    return make_error(opened.code(), "it cannot be taken over: " + opened.error().message);
  }
  PMSTORE_TRY(const ReplicaContent shown, replica_content(servers_, *log_));  // to readers
  PMSTORE_TRY(const ReplicaContent found, content());
  if (shown.last != found.last) return make_error(ErrorCode::kDamaged, "not all is published");
  if (found.last < seen_) {
    return make_error(
        ErrorCode::kDamaged,
        fmt::format("readers saw entry {}, and {} is the last one", seen_, found.last));
  }
  if (log_->membership() < membership_) {
    return make_error(ErrorCode::kDamaged, fmt::format("membership {} came back, and {} had been",
                                                       log_->membership(), membership_));
  }
  return found.digest();
}

Status RestartedReplicas::change_members() {
  const std::vector<std::string> members = log_->replicas();
  for (size_t i = 0; i < servers_.count(); ++i) {
    const std::string uri = servers_.uri(i);
    if (!servers_.runs(i) || std::find(members.begin(), members.end(), uri) != members.end()) {
      continue;
    }
    return executor_.run(log_->add(uri, true));
  }
  if (members.size() == 1) return {};
  ReplicatedLogOptions options;
  options.drop = {members.back()};
  return take_over(members, options);
}

Result<uint64_t> RestartedReplicas::work() {
  if (log_->next_index() % 3 == 0) {
    PMSTORE_TRY_STATUS(change_members());
  } else {
    const auto appended = executor_.run(append_texts(*log_, 1));
    if (!appended) return appended.error();
  }
  PMSTORE_TRY(const ReplicaContent now, content());
  return now.digest();
}

}  // namespace pmstore::crash
