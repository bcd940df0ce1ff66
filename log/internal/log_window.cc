// What a LogReader READs: the words, the window, the words again.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "log/entry.h"
#include "log/internal/log_reader_state.h"

namespace pmstore::log {
namespace {

constexpr uint32_t kLeastWindowBytes = 256;
// READ together with the words when it is not known whether there is anything.
constexpr uint32_t kProbeBytes = 4096;
// Words are 8 bytes each, so a READ may see some of a change: then it is done again.
constexpr int kWordTries = 4;
// How often the oldest entry is looked for again because it was trimmed meanwhile.
constexpr int kStartTries = 16;

}  // namespace

LogReader::State::~State() { client.state_->retire(std::move(buffer)); }

// ---- what is known of the log ----

Status LogReader::State::check_id(const LogWords& words) const {
  if (words.id == log.reply.id) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("the log {} was deleted: open another one", log.name));
}

bool LogReader::State::take(const LogWords& words) {
  const bool possible = words.start_lsn <= words.tail_lsn &&
                        words.tail_lsn - words.start_lsn <= log.data_bytes() &&
                        is_boundary(words.start_lsn, log.data_bytes()) &&
                        is_boundary(words.tail_lsn, log.data_bytes());
  if (!possible) return false;
  start = words.start_lsn;
  tail = std::max(words.tail_lsn, options.unpublished_to_lsn);
  sealed = words.sealed != 0;
  return true;
}

Error LogReader::State::trimmed() const {
  return make_error(ErrorCode::kTrimmed,
                    fmt::format("the log {} begins at LSN {} now, {} is gone: seek there", log.name,
                                start, position));
}

Error LogReader::State::damaged() const {
  return make_error(ErrorCode::kDamaged,
                    fmt::format("the log {} has lost its entry at LSN {}: skip_damaged() goes on "
                                "with the next one",
                                log.name, position));
}

Status LogReader::State::nothing_there() const {
  if (sealed) {
    return make_error(ErrorCode::kSealed,
                      fmt::format("the log {} is sealed and ends at LSN {}", log.name, tail));
  }
  return make_error(ErrorCode::kNotFound,
                    fmt::format("the log {} has no entry at LSN {} yet", log.name, position));
}

// ---- READs ----

uint32_t LogReader::State::clipped(uint64_t bytes) const {
  const uint64_t left = log.data_bytes() - position % log.data_bytes();
  return static_cast<uint32_t>(std::min(bytes, left));
}

namespace {

// follow() says with Timeout that nothing came; a server that did not answer in time is lost.
Error lost(Error why) {
  if (why.code == ErrorCode::kTimeout) why.code = ErrorCode::kDisconnected;
  return why;
}

}  // namespace

// A log keeps its place in its extent for its life, so what is known of it holds in every session.
// Of a published entry nothing is lost with a session: the READs are done again on the next one.
// Access says that the extent was given back, and the next session whether the log was deleted: so
// that is asked once, without any patience too.
base::Task<Status> LogReader::State::post_reads(uint32_t bytes, bool probe) {
  LogClient::State& state = *client.state_;
  base::Executor& executor = client.executor();
  const uint64_t give_up_ns = executor.now_ns() + state.options.reconnect_timeout_ns;
  bool refused = false;
  while (true) {
    const auto link = co_await state.connected();
    if (!link) co_return lost(link.error());
    Status read = co_await post_reads_on(*link, bytes, probe);
    if (read || !lost_answer(read.error())) co_return std::move(read);
    if (read.code() == ErrorCode::kAccess && !std::exchange(refused, true)) continue;
    if (executor.now_ns() >= give_up_ns) co_return lost(read.error());
    co_await executor.sleep_for(LogClient::State::kRepeatPauseNs);
  }
}

// The words before, when it is a probe; the window; the words behind it.
base::Task<Status> LogReader::State::post_reads_on(LogClient::State::LinkRef link, uint32_t bytes,
                                                   bool probe) {
  LogClient::State& session = *client.state_;
  const uint64_t timeout_ns = session.options.call_timeout_ns;
  fabric::Connection& connection = link->connection();
  const bool chained = options.one_doorbell && connection.capabilities().read_after_read;
  PMSTORE_CO_TRY_STATUS(co_await buffer->settle(timeout_ns));
  buffer->clear(link);
  if (probe) buffer->read(kBeforeAt, sizeof(LogWords), session.words_at(log));
  if (probe && bytes > 0 && !chained) {
    PMSTORE_CO_TRY_STATUS(co_await buffer->execute(connection, timeout_ns));
    buffer->clear(link);
  }
  if (bytes > 0) {
    PMSTORE_CO_TRY(const fabric::RemoteAddress data, session.data_at(log, position));
    buffer->read(kWindowAt, bytes, data);
    if (!chained) {
      PMSTORE_CO_TRY_STATUS(co_await buffer->execute(connection, timeout_ns));
      buffer->clear(link);
    }
    buffer->read(kAfterAt, sizeof(LogWords), session.words_at(log));
  }
  co_return co_await buffer->execute(connection, timeout_ns);
}

base::Task<Status> LogReader::State::read_words() {
  for (int tries = 0; tries < kWordTries; ++tries) {
    PMSTORE_CO_TRY_STATUS(co_await post_reads(0, true));
    const LogWords words = words_in_buffer(kBeforeAt);
    PMSTORE_CO_TRY_STATUS(check_id(words));
    if (take(words)) co_return Status{};
  }
  co_return make_error(ErrorCode::kDamaged,
                       fmt::format("what the log {} says of its start and tail cannot be: its "
                                   "producer is broken, take the log over",
                                   log.name));
}

base::Task<Status> LogReader::State::read_window(uint32_t bytes, bool probe) {
  const uint64_t lsn = position;
  const uint64_t known_tail = tail;
  window_bytes = 0;
  if (buffer->bytes().size() < kWindowAt + bytes) {
    PMSTORE_CO_TRY(auto larger,
                   internal::ReadBuffer::create(*client.state_->device, kWindowAt + bytes));
    std::swap(buffer, larger);
    client.state_->retire(std::move(larger));
  }
  PMSTORE_CO_TRY_STATUS(co_await post_reads(bytes, probe));
  if (probe) {
    const LogWords before = words_in_buffer(kBeforeAt);
    PMSTORE_CO_TRY_STATUS(check_id(before));
    if (!take(before)) co_return co_await read_words();
    limit = tail;
  } else {
    limit = known_tail;
  }
  const LogWords after = words_in_buffer(kAfterAt);
  PMSTORE_CO_TRY_STATUS(check_id(after));
  take(after);
  if (after.start_lsn > lsn) {
    start = after.start_lsn;
    co_return Status{};
  }
  if (limit <= lsn) co_return Status{};
  window_lsn = lsn;
  window_bytes = std::min<uint64_t>(bytes, limit - lsn);
  PMSTORE_CHECK(kWindowAt + window_bytes <= buffer->bytes().size(), "the window is what was READ");
  co_return Status{};
}

base::Task<Status> LogReader::State::fetch(uint64_t at_least) {
  const uint64_t wanted = std::max<uint64_t>({at_least, options.window_bytes, kLeastWindowBytes});
  const bool any_start = from_start;
  for (int tries = 0; tries < kStartTries; ++tries) {
    if (from_start) {
      PMSTORE_CO_TRY_STATUS(co_await read_words());
      position = start;
      from_start = false;
    }
    if (position < start) {
      if (!any_start) co_return trimmed();
      from_start = true;
      continue;
    }
    if (position >= tail) {
      // Twice when it looks like the end: the seal may have been seen before the last entries were.
      for (int looks = 0; position >= tail && looks < (sealed ? 2 : 1); ++looks) {
        PMSTORE_CO_TRY_STATUS(
            co_await read_window(clipped(std::min<uint64_t>(wanted, kProbeBytes)), true));
      }
      if (position >= start && position >= tail) co_return nothing_there();
      if (held() >= at_least) co_return Status{};
      if (position < start) continue;
    }
    PMSTORE_CO_TRY_STATUS(co_await read_window(clipped(std::min(wanted, tail - position)), false));
    if (held() > 0) co_return Status{};
  }
  co_return trimmed();
}

}  // namespace pmstore::log
