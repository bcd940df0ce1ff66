#include "tools/daemon/daemon_watch.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/epoll.h>

#include <utility>

namespace pmstore::tools {
namespace {

constexpr uint64_t kAnswerAgainNs = 1'000'000'000;

}  // namespace

bool is_open_tcp(const fabric::Uri& uri) {
  if (uri.scheme != fabric::Scheme::kTcp || uri.name == "localhost") return false;
  std::string host = uri.name;
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  in_addr four{};
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) != 127;
  in6_addr six{};
  if (inet_pton(AF_INET6, host.c_str(), &six) == 1) return !IN6_IS_ADDR_LOOPBACK(&six);
  return true;
}

DaemonWatch::DaemonWatch(DaemonConfig& config, DaemonLog& log, SessionLog& sessions,
                         PoolService& service, std::atomic<bool>& hangup, Reread reread)
    : config_(config),
      log_(log),
      sessions_(sessions),
      service_(service),
      hangup_(hangup),
      reread_(reread) {
  base::Executor& executor = service_.executor();
  executor.add_poller(this);
  auto served = ServedPool::announce(config.pool, service.uris());
  Status watched = served ? executor.watch(served->descriptor(), EPOLLIN, *this)
                          : Status(std::move(served.error()));
  if (watched) {
    served_ = std::move(*served);
  } else {
    log_.write(LogLevel::kWarning,
               "the server cannot be found by the pool's path: " + watched.error().message);
  }
}

DaemonWatch::~DaemonWatch() {
  if (served_) service_.executor().unwatch(served_->descriptor());
  service_.executor().remove_poller(this);
}

size_t DaemonWatch::poll() {
  size_t done = 0;
  if (hangup_.load(std::memory_order_relaxed) && hangup_.exchange(false)) {
    reload();
    ++done;
  }
  const uint64_t due_ns = next_event_ns();
  if (due_ns != kNoEvent && service_.executor().now_ns() >= due_ns) {
    sessions_.summarize();
    if (answer_again_ns_ == due_ns) asked_ = true;
    ++done;
  }
  if (std::exchange(asked_, false)) {
    answer();
    ++done;
  }
  return done;
}

void DaemonWatch::answer() {
  base::Executor& executor = service_.executor();
  const bool answered = served_->answer();
  // The socket stays readable while nobody can be accepted.
  if (answered == (answer_again_ns_ != kNoEvent)) {
    executor.change_watch(served_->descriptor(), answered ? uint32_t{EPOLLIN} : 0, *this);
  }
  answer_again_ns_ = answered ? kNoEvent : executor.now_ns() + kAnswerAgainNs;
}

void DaemonWatch::reload() {
  const auto next = reread_();
  if (!next) {
    log_.write(LogLevel::kError, "SIGHUP: every setting stays as it is: " + next.error().message);
    // The log's file may have been moved away all the same.
    if (const Status opened = log_.open(config_.log_file); !opened) {
      log_.write(LogLevel::kError, "SIGHUP: the log stays where it is: " + opened.error().message);
    }
    return;
  }
  if (const Status opened = log_.open(next->log_file); !opened) {
    log_.write(LogLevel::kError, "SIGHUP: every setting stays as it is: " + opened.error().message);
    return;
  }
  say_changes(*next);
  config_.log_file = next->log_file;
  config_.log_level = next->log_level;
  config_.outcome_retention_ms = next->outcome_retention_ms;
  log_.set_level(*parse_log_level(config_.log_level));
  service_.set_outcome_retention_ms(config_.outcome_retention_ms);
}

// Before the level changes, so that a log that becomes silent says so.
void DaemonWatch::say_changes(const DaemonConfig& next) {
  std::vector<std::string> changed;
  std::vector<std::string> need_restart;
  for (const DaemonConfig::Difference& difference : config_.differences(next)) {
    if (difference.may_change) {
      changed.push_back(
          fmt::format("{} is {}, was {}", difference.name, difference.next, difference.now));
    } else {
      need_restart.push_back(fmt::format("SIGHUP: {} stays {}: {} needs a restart", difference.name,
                                         difference.now, difference.next));
    }
  }
  log_.write(LogLevel::kInfo, changed.empty() ? "SIGHUP: log opened again; no setting changed"
                                              : fmt::format("SIGHUP: log opened again; {}",
                                                            fmt::join(changed, "; ")));
  for (const std::string& line : need_restart) log_.write(LogLevel::kWarning, line);
}

}  // namespace pmstore::tools
