// The inside of LogReader.
//
// Invariants: the window's bytes were READ after a tail was seen that is at least `limit`, and
// before words which said that the log still began at or before the window; so every entry in it
// that ends at or before `limit` was durable and whole. Only what the window holds is parsed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "log/internal/log_client_state.h"
#include "log/internal/log_parse.h"
#include "log/log_reader.h"

namespace pmstore::log {

struct LogReader::State {
  // Of the buffer: the words as READ before the window and behind it, then the window.
  static constexpr size_t kBeforeAt = 0;
  static constexpr size_t kAfterAt = sizeof(LogWords);
  static constexpr size_t kWindowAt = 256;

  State(LogClient& session, KnownLog known_log, const LogReaderOptions& reader_options)
      : client(session), log(std::move(known_log)), options(reader_options) {}
  ~State();

  base::Task<Status> read_words();
  // Fills the window from `position` on; empty when that is trimmed. Without a probe, `tail` was
  // seen before, and lies behind; a probe looks at it as well.
  base::Task<Status> read_window(uint32_t bytes, bool probe);
  base::Task<Status> post_reads(uint32_t window_bytes, bool probe);
  base::Task<Status> post_reads_on(LogClient::State::LinkRef link, uint32_t window_bytes,
                                   bool probe);
  // Makes the window hold so many bytes from `position` on, or all there are up to the tail or to
  // the end of the data area. NotFound, Sealed, Trimmed.
  base::Task<Status> fetch(uint64_t at_least);
  // Walks over pads to the next entry, which the window then holds whole: `found`.
  base::Task<Status> find();
  base::Task<Result<LogEntry>> next();
  base::Task<Result<DamagedRange>> skip_damaged();

  LogWords words_in_buffer(size_t at) const {
    LogWords words;
    std::memcpy(&words, buffer->bytes().data() + at, sizeof words);
    return words;
  }
  Status check_id(const LogWords& words) const;
  // False: they are of two moments, or nonsense.
  bool take(const LogWords& words);
  uint32_t clipped(uint64_t bytes) const;
  uint64_t held() const {
    return position - window_lsn < window_bytes ? window_bytes - (position - window_lsn) : 0;
  }
  std::span<const std::byte> at_position() const {
    return buffer->bytes().subspan(kWindowAt + (position - window_lsn), held());
  }
  internal::ParsedEntry parse() const {
    return internal::parse_log_entry(at_position(), position,
                                     {log.data_bytes(), limit, log.reply.salt});
  }
  bool follows_the_last(const internal::ParsedEntry& entry) const;
  // At the tail: is the replica still current? Conflict: no; InvalidArgument: its log is no more.
  // Asks now and then.
  base::Task<Status> watch_membership();
  enum class Standing : uint8_t {
    kCurrent,
    kDropped,  // the members have gone on without it
    kDeleted,  // they have another log of that name now
  };
  base::Task<Result<Standing>> standing();
  Error trimmed() const;
  Error damaged() const;
  Status nothing_there() const;

  LogClient& client;
  KnownLog log;
  LogReaderOptions options;
  std::unique_ptr<internal::ReadBuffer> buffer;
  uint64_t position = 0;
  bool from_start = true;  // `position` is not known before the words are READ
  // As last seen.
  uint64_t start = 0;
  uint64_t tail = 0;
  bool sealed = false;
  uint64_t window_lsn = 0;
  uint64_t window_bytes = 0;
  uint64_t limit = 0;
  internal::ParsedEntry found;
  // Of a replica: since when nothing has come and the members were not asked; since when they could
  // not be.
  bool replicated = false;
  bool news = true;
  uint64_t quiet_since_ns = 0;
  std::optional<uint64_t> unknown_since_ns;
  // The entry before `expected_lsn`, if that is where reading goes on.
  uint64_t expected_lsn = UINT64_MAX;
  uint64_t last_index = 0;
  uint32_t last_incarnation = 0;
};

}  // namespace pmstore::log
