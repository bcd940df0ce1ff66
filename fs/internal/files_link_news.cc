// FilesLink: the news of the server: stale maps, recalled delegations.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "fs/internal/files_link.h"

namespace pmstore::fs::internal {
namespace {

// News wait so long, so that several are confirmed at once. They are not urgent: the generation
// words keep stale maps from being used. Recalls are heard of by listen_to_recalls().
constexpr uint64_t kNewsPauseNs = 20'000'000;
constexpr uint32_t kNewsReplyBytes = 4096;
constexpr uint64_t kNsInMs = 1'000'000;

}  // namespace

class FilesLink::Dropping {
 public:
  explicit Dropping(FilesLink& link) : link_(link) {
    PMSTORE_CHECK(!link_.dropping_, "what is stale is dropped by one task at a time");
    link_.dropping_ = true;
  }
  Dropping(const Dropping&) = delete;
  Dropping& operator=(const Dropping&) = delete;
  ~Dropping() {
    link_.dropping_ = false;
    link_.dropped_.notify_all();
  }

 private:
  FilesLink& link_;
};

void FilesLink::note_news(uint64_t newest) {
  heard_ = std::max(heard_, newest);
  if (is_informed() || std::exchange(following_, true)) return;
  news_ = follow_news();
  news_.start();
}

// The answer to a request of then: the server knew this client, and there were no other news.
void FilesLink::note_sure(const service::Link& on, uint64_t sent_ns, uint64_t news) {
  if (link_.get() != &on) return;
  const uint64_t lease_ns = on.welcome().lease_ms * kNsInMs;
  known_until_ns_ = std::max(known_until_ns_, sent_ns + lease_ns);
  if (news > revoked_) return;
  sure_until_ns_ = std::max(sure_until_ns_, sent_ns + lease_ns);
}

// Until everything is confirmed, and the server knows.
base::Task<void> FilesLink::follow_news() {
  while (!is_informed() && usable()) {
    co_await executor_.sleep_for(kNewsPauseNs);
    if (is_informed()) break;  // another request has said it
    const Status fetched = co_await fetch_news(false);
    if (!fetched) break;  // keep_informed() tries again
  }
  following_ = false;
}

Result<FilesLink::Heard> FilesLink::news_of(std::span<const std::byte> answer) {
  fabric::MessageReader reader(answer);
  const auto head = reader.get<ReplyHead>();
  const auto news = reader.get<NewsReply>();
  Heard heard{news.through, news.all != 0, {}, {}};
  for (uint32_t i = 0; i < news.count && !reader.failed(); ++i) {
    heard.changed.push_back(Ino{reader.get<uint64_t>()});
  }
  for (uint32_t i = 0; i < news.recalls && !reader.failed(); ++i) {
    heard.recalled.push_back(Ino{reader.get<uint64_t>()});
  }
  if (reader.complete() && head.error == 0) return heard;
  return make_error(ErrorCode::kProtocol, "a malformed reply");
}

// Asks for what is new, drops what is stale, and says so with the next request.
base::Task<Status> FilesLink::fetch_news(bool waits) {
  if (!usable()) co_return make_error(ErrorCode::kDisconnected);
  const LinkRef on = link_;
  const uint64_t ticket_before = ticket();
  FilesCall request(waits ? FilesMethod::kAwaitNews : FilesMethod::kNews, false, kNewsReplyBytes);
  if (waits) {
    const uint64_t most_ns =
        std::min(on->welcome().lease_ms * kNsInMs / 4, options_.call_timeout_ns / 2);
    request.put(AwaitNewsRequest{static_cast<uint32_t>(most_ns / kNsInMs), 0});
  }
  const uint64_t sent_ns = executor_.now_ns();
  Heard heard;
  {
    auto answered = co_await send(*on, request, 0);
    if (!answered) co_return std::move(answered.error());
    auto news = news_of(answered->bytes());
    if (!news) {
      on->drop();
      co_return std::move(news.error());
    }
    heard = std::move(*news);
  }
  if (ticket() != ticket_before) co_return Status{};  // these are news of another time
  host_.revoke(heard);
  revoked_ = std::max(revoked_, heard.through);
  note_sure(*on, sent_ns, heard.through);
  const uint64_t through = heard.through;
  while (dropping_) co_await dropped_.wait();
  const Dropping dropping(*this);
  if (ticket() != ticket_before) co_return Status{};
  UnlandedWrites unlanded = co_await host_.drop(std::move(heard));
  if (ticket() != ticket_before) co_return Status{};
  if (holds_back_ || !unlanded.empty()) {
    PMSTORE_CO_TRY_STATUS(co_await confirm_beside(*on, through, std::move(unlanded)));
    if (ticket() != ticket_before) co_return Status{};
  }
  untold_ |= through > confirmed_;
  confirmed_ = std::max(confirmed_, through);
  heard_ = std::max(heard_, through);
  co_return Status{};
}

base::Task<Status> FilesLink::confirm_beside(service::Link& on, uint64_t through,
                                             UnlandedWrites unlanded) {
  FilesCall request(FilesMethod::kConfirm, false, 0);
  // At which data server is not known here: the next list takes them back.
  const std::set<Ino> doubts = doubts_;
  if (!doubts.empty()) unlanded[0].inos.insert(doubts.begin(), doubts.end());
  std::vector<UnlandedWrite> writes;
  for (auto& [server, files] : unlanded) {
    if (files.any || writes.size() + files.inos.size() + unlanded.size() > kMaxUnlandedWrites) {
      files.inos = {Ino{}};
    }
    for (const Ino ino : files.inos) writes.push_back({raw(ino), server, {}});
  }
  PMSTORE_CHECK(writes.size() <= kMaxUnlandedWrites, "each server has its place");
  request.put(ConfirmRequest{through, static_cast<uint32_t>(writes.size()), 0});
  for (const UnlandedWrite& each : writes) request.put(each);
  // It is known there from when it is sent: the next one takes it back.
  holds_back_ = true;
  const auto answered = co_await send(on, request, 0);
  if (!answered) co_return std::move(answered.error());
  for (const Ino ino : doubts) doubts_.erase(ino);
  holds_back_ = !writes.empty() || !doubts_.empty();
  co_return Status{};
}

base::Task<PosixStatus> FilesLink::ask_whether_known() {
  const FilesCall request(FilesMethod::kNews, false, kNewsReplyBytes);
  const auto answered = co_await call(request);
  if (!answered) co_return PosixError(answered.error());
  co_return PosixStatus{};
}

void FilesLink::listen() {
  if (!usable() || std::exchange(listening_, true)) return;
  listens_ = listen_to_recalls();
  listens_.start();
}

// While there are delegations; and until the last recall is confirmed.
base::Task<void> FilesLink::listen_to_recalls() {
  while (usable() && (host_.has_delegations() || untold_)) {
    const bool waits = host_.has_delegations();
    const Status fetched = co_await fetch_news(waits);
    if (!fetched) break;  // keep_informed() tries again
  }
  listening_ = false;
}

// Keeps the lease, hears of news when nothing else is called, and makes the session again while
// files are open.
base::Task<void> FilesLink::keep_informed() {
  uint64_t called = 0;
  while (!reconnector_.closed()) {
    const uint64_t lease_ms = link_ == nullptr ? 0 : link_->welcome().lease_ms;
    co_await executor_.sleep_for(std::max<uint64_t>(lease_ms / 4, 50) * kNsInMs);
    if (!usable()) {
      if (opened_.empty() && owed_.empty()) continue;
      // While the server is away the next turn tries again.
      [[maybe_unused]] const Status again = co_await reconnector_.connected();
      continue;
    }
    if (host_.has_delegations()) listen();
    const bool quiet = std::exchange(called, calls_) == calls_;
    if (following_ || listening_ || (!quiet && !holds_back_)) continue;
    // Without success the next turn tries again.
    [[maybe_unused]] const Status fetched = co_await fetch_news(false);
    called = calls_;
    note_news(confirmed_);
  }
}

}  // namespace pmstore::fs::internal
