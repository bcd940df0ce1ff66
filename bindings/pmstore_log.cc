#include "bindings/pmstore_log.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <utility>

#include "bindings/session.h"
#include "fabric/uri.h"

using pmstore::Error;
using pmstore::ErrorCode;
using pmstore::make_error;
using pmstore::Result;
using pmstore::Status;
using namespace pmstore::log;

namespace {

constexpr uint64_t kNsPerMs = 1'000'000;
// follow() lets others in between.
constexpr uint64_t kFollowSliceNs = 5 * kNsPerMs;

pmstore_log_code code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return PMSTORE_LOG_INVALID_ARGUMENT;
    case ErrorCode::kNotFound: return PMSTORE_LOG_NOT_FOUND;
    case ErrorCode::kAlreadyExists: return PMSTORE_LOG_EXISTS;
    case ErrorCode::kFull: return PMSTORE_LOG_FULL;
    case ErrorCode::kTooLarge: return PMSTORE_LOG_TOO_LARGE;
    case ErrorCode::kBusy: return PMSTORE_LOG_BUSY;
    case ErrorCode::kBackPressure: return PMSTORE_LOG_BACK_PRESSURE;
    case ErrorCode::kSealed: return PMSTORE_LOG_SEALED;
    case ErrorCode::kFenced: return PMSTORE_LOG_FENCED;
    case ErrorCode::kTrimmed: return PMSTORE_LOG_TRIMMED;
    case ErrorCode::kDamaged: return PMSTORE_LOG_DAMAGED;
    case ErrorCode::kCommitUnknown: return PMSTORE_LOG_UNKNOWN;
    case ErrorCode::kDisconnected: return PMSTORE_LOG_DISCONNECTED;
    case ErrorCode::kTimeout: return PMSTORE_LOG_TIMEOUT;
    case ErrorCode::kUnsupported: return PMSTORE_LOG_UNSUPPORTED;
    default: return PMSTORE_LOG_FAILED;
  }
}

pmstore_log_code report(const Error& why, pmstore_log_error* error) {
  const pmstore_log_code code = code_of(why.code);
  if (error != nullptr) {
    const std::string text = why.to_string();
    const size_t bytes = std::min(text.size(), sizeof error->text - 1);
    error->code = code;
    std::memcpy(error->text, text.data(), bytes);
    error->text[bytes] = '\0';
  }
  return code;
}

Error null_argument() {
  return make_error(ErrorCode::kInvalidArgument, "a pointer that must be given is NULL");
}

// Runs `call() -> Status`; what it throws (there is no memory) is an error like any other.
template <typename Call>
pmstore_log_code guarded(pmstore_log_error* error, Call call) {
  try {
    const Status done = call();
    return done ? PMSTORE_LOG_OK : report(done.error(), error);
  } catch (const std::exception& thrown) {
    return report(make_error(ErrorCode::kIo, thrown.what()), error);
  }
}

// Likewise, holding the session.
template <typename Call>
pmstore_log_code locked(pmstore_log_session* session, pmstore_log_error* error, Call call) {
  if (session == nullptr) return report(null_argument(), error);
  return guarded(error, [&]() -> Status {
    const auto held = session->hold();
    return call();
  });
}

template <typename Call>
pmstore_log_code locked(pmstore_log* log, pmstore_log_error* error, Call call) {
  return locked(log == nullptr ? nullptr : &log->session, error, call);
}

pmstore_log_place place_of(const Appended& appended) {
  return {appended.lsn, appended.next_lsn, appended.index};
}

// Of a replicated log: a session with a replica that is current, from the first use on.
Status find_replica(pmstore_log& log) {
  if (log.at.client) return {};
  pmstore_log_session& session = log.session;
  PMSTORE_TRY(log.at, session.executor.run(open_current_replica(session.executor, log.at.info.name,
                                                                session.servers, session.options)));
  return {};
}

// The reader, from the first use on.
Result<LogReader*> reader_of(pmstore_log& log) {
  if (log.reader) return log.reader.get();
  pmstore_log_session& session = log.session;
  LogReaderOptions options;
  if (!session.client) {
    PMSTORE_TRY_STATUS(find_replica(log));
    options.current_replica = true;
  }
  LogClient& client = session.client ? *session.client : *log.at.client;
  PMSTORE_TRY(log.reader, session.executor.run(LogReader::open(client, log.at.info.id, options)));
  return log.reader.get();
}

ReplicatedLogOptions replicated_options(const pmstore_log_session& session, unsigned flags) {
  ReplicatedLogOptions options;
  options.client = session.options;
  options.producer.takeover =
      (flags & PMSTORE_LOG_STEAL) != 0 ? Takeover::kSteal : Takeover::kIfFree;
  return options;
}

Status open_replicated(pmstore_log& log, unsigned flags) {
  if ((flags & PMSTORE_LOG_EXCLUSIVE) == 0) return find_replica(log);
  pmstore_log_session& session = log.session;
  PMSTORE_TRY(log.replicated, session.executor.run(ReplicatedLog::open(
                                  session.executor, log.at.info.name, session.servers,
                                  replicated_options(session, flags))));
  return {};
}

Result<Appended> append_to(pmstore_log& log, std::span<const std::span<const std::byte>> batch) {
  pmstore_log_session& session = log.session;
  if (log.replicated) return session.executor.run(log.replicated->append_batch(batch));
  if (log.producer) return session.executor.run(log.producer->append_batch(batch));
  if (session.client) {
    auto appended = session.client->append_at_once(log.at.info.id, batch);
    if (!appended) return session.executor.run(session.client->append_batch(log.at.info.id, batch));
    session.take_turn();
    return std::move(*appended);
  }
  return make_error(ErrorCode::kUnsupported,
                    "a replicated log has one producer: open it with PMSTORE_LOG_EXCLUSIVE");
}

// `got` is next()'s or follow()'s.
Status take(LogReader& reader, const Result<LogEntry>& got, pmstore_log_entry& entry) {
  if (got) {
    entry = {{got->lsn, got->next_lsn, got->index}, got->payload.data(), got->payload.size()};
    return {};
  }
  if (got.code() == ErrorCode::kTrimmed) reader.seek(reader.start_lsn());
  return got.error();
}

Result<LogClientOptions> client_options(const pmstore_log_options* options) {
  LogClientOptions result;
  if (options == nullptr) return result;
  if (options->timeout_ms != 0) {
    result.call_timeout_ns = options->timeout_ms * kNsPerMs;
    result.connect_timeout_ns = result.call_timeout_ns;
  }
  result.reconnect_timeout_ns = options->ride_through_ms * kNsPerMs;
  if (options->assume_domain != nullptr) {
    PMSTORE_TRY(result.assume_domain, pmstore::persist::parse_domain(options->assume_domain));
  }
  return result;
}

}  // namespace

extern "C" {

pmstore_log_code pmstore_log_connect(const char* uri, const pmstore_log_options* options,
                                     pmstore_log_session** session, pmstore_log_error* error) {
  if (uri == nullptr || session == nullptr) return report(null_argument(), error);
  *session = nullptr;
  return guarded(error, [&]() -> Status {
    PMSTORE_TRY(auto parsed, pmstore::fabric::parse_uri(uri));
    PMSTORE_TRY(const auto with, client_options(options));
    auto made = std::make_unique<pmstore_log_session>();
    PMSTORE_TRY(made->client,
                made->executor.run(LogClient::connect(made->executor, std::move(parsed), with)));
    made->start_keeper();
    *session = made.release();
    return {};
  });
}

pmstore_log_code pmstore_log_connect_replicas(const char* const* uris, size_t count,
                                              const pmstore_log_options* options,
                                              pmstore_log_session** session,
                                              pmstore_log_error* error) {
  if (uris == nullptr || session == nullptr) return report(null_argument(), error);
  *session = nullptr;
  return guarded(error, [&]() -> Status {
    PMSTORE_TRY(const auto with, client_options(options));
    if (with.reconnect_timeout_ns > 0) {
      return make_error(ErrorCode::kInvalidArgument,
                        "ride_through_ms is not for replicated logs: leave it 0, and open the log "
                        "again when a member is back");
    }
    auto made = std::make_unique<pmstore_log_session>();
    made->options = with;
    if (count == 0) {
      return make_error(ErrorCode::kInvalidArgument, "no server is given: give at least one");
    }
    for (size_t i = 0; i < count; ++i) {
      if (uris[i] == nullptr) return null_argument();
      PMSTORE_TRY_STATUS(pmstore::fabric::parse_uri(uris[i]));
      made->servers.emplace_back(uris[i]);
    }
    made->start_keeper();
    *session = made.release();
    return {};
  });
}

void pmstore_log_disconnect(pmstore_log_session* session) { delete session; }

pmstore_log_code pmstore_log_create(pmstore_log_session* session, const char* name, uint64_t bytes,
                                    int trim_oldest, pmstore_log_error* error) {
  return locked(session, error, [&]() -> Status {
    if (name == nullptr) return null_argument();
    LogOptions options;
    options.bytes = bytes;
    options.when_full = trim_oldest != 0 ? FullPolicy::kTrimOldest : FullPolicy::kBackPressure;
    if (!session->client) {
      return session->executor.run(ReplicatedLog::create(
          session->executor, name, options, session->servers, replicated_options(*session, 0)));
    }
    const auto made = session->executor.run(session->client->create(name, options));
    return made ? Status{} : Status(made.error());
  });
}

pmstore_log_code pmstore_log_delete(pmstore_log_session* session, const char* name,
                                    pmstore_log_error* error) {
  return locked(session, error, [&]() -> Status {
    if (name == nullptr) return null_argument();
    if (!session->client) {
      return session->executor.run(
          ReplicatedLog::erase(session->executor, name, session->servers, session->options));
    }
    PMSTORE_TRY(const auto info, session->executor.run(session->client->open(name)));
    return session->executor.run(session->client->erase(info.id));
  });
}

pmstore_log_code pmstore_log_open(pmstore_log_session* session, const char* name, unsigned flags,
                                  pmstore_log** log, pmstore_log_error* error) {
  return locked(session, error, [&]() -> Status {
    if (name == nullptr || log == nullptr) return null_argument();
    *log = nullptr;
    const bool exclusive = (flags & PMSTORE_LOG_EXCLUSIVE) != 0;
    if ((flags & ~(PMSTORE_LOG_EXCLUSIVE | PMSTORE_LOG_STEAL)) != 0 ||
        (flags & (PMSTORE_LOG_EXCLUSIVE | PMSTORE_LOG_STEAL)) == PMSTORE_LOG_STEAL) {
      return make_error(ErrorCode::kInvalidArgument,
                        "flags are 0, PMSTORE_LOG_EXCLUSIVE, or that with PMSTORE_LOG_STEAL");
    }
    auto made = std::make_unique<pmstore_log>(*session);
    made->at.info.name = name;
    if (!session->client) {
      PMSTORE_TRY_STATUS(open_replicated(*made, flags));
      *log = made.release();
      return {};
    }
    PMSTORE_TRY(made->at.info, session->executor.run(session->client->open(name)));
    if (exclusive) {
      LogProducerOptions options;
      options.takeover = (flags & PMSTORE_LOG_STEAL) != 0 ? Takeover::kSteal : Takeover::kIfFree;
      PMSTORE_TRY(made->producer, session->executor.run(LogProducer::open(
                                      *session->client, made->at.info.id, options)));
    }
    *log = made.release();
    return {};
  });
}

pmstore_log_code pmstore_log_close(pmstore_log* log, pmstore_log_error* error) {
  if (log == nullptr) return PMSTORE_LOG_OK;
  return locked(log, error, [&]() -> Status {
    const std::unique_ptr<pmstore_log> owned(log);
    pmstore::Executor& executor = log->session.executor;
    if (log->replicated) return executor.run(log->replicated->close());
    return log->producer ? executor.run(log->producer->close()) : Status{};
  });
}

pmstore_log_code pmstore_log_append_batch(pmstore_log* log, const pmstore_log_bytes* entries,
                                          size_t count, pmstore_log_place* last,
                                          pmstore_log_error* error) {
  return locked(log, error, [&]() -> Status {
    if (entries == nullptr) return null_argument();
    std::array<std::span<const std::byte>, kMaxBatchEntries> payloads;
    if (count == 0 || count > payloads.size()) {
      return make_error(ErrorCode::kInvalidArgument, "1 to 256 entries are appended at a time");
    }
    for (size_t i = 0; i < count; ++i) {
      if (entries[i].data == nullptr) return null_argument();
      payloads[i] = {static_cast<const std::byte*>(entries[i].data), entries[i].bytes};
    }
    const std::span<const std::span<const std::byte>> batch(payloads.data(), count);
    PMSTORE_TRY(const Appended appended, append_to(*log, batch));
    if (log->producer || log->replicated) log->session.publish_soon();
    if (last != nullptr) *last = place_of(appended);
    return {};
  });
}

pmstore_log_code pmstore_log_append(pmstore_log* log, const void* data, size_t bytes,
                                    pmstore_log_place* place, pmstore_log_error* error) {
  const pmstore_log_bytes entry{data, bytes};
  return pmstore_log_append_batch(log, &entry, 1, place, error);
}

pmstore_log_code pmstore_log_read(pmstore_log* log, pmstore_log_entry* entry,
                                  pmstore_log_error* error) {
  return locked(log, error, [&]() -> Status {
    if (entry == nullptr) return null_argument();
    PMSTORE_TRY(LogReader* const reader, reader_of(*log));
    return take(*reader, log->session.executor.run(reader->next()), *entry);
  });
}

pmstore_log_code pmstore_log_follow(pmstore_log* log, uint32_t timeout_ms, pmstore_log_entry* entry,
                                    pmstore_log_error* error) {
  if (log == nullptr) return report(null_argument(), error);
  const uint64_t end_ns = log->session.clock.now_ns() + timeout_ms * kNsPerMs;
  while (true) {
    const uint64_t now_ns = log->session.clock.now_ns();
    const uint64_t left_ns = end_ns - std::min(end_ns, now_ns);
    pmstore_log_error slice{};
    const pmstore_log_code code = locked(log, &slice, [&]() -> Status {
      if (entry == nullptr) return null_argument();
      PMSTORE_TRY(LogReader* const reader, reader_of(*log));
      const auto got = log->session.executor.run(reader->follow(std::min(left_ns, kFollowSliceNs)));
      // Dropped, and perhaps deleted or added again since.
      if (!got && log->at.client &&
          (got.code() == ErrorCode::kConflict || got.code() == ErrorCode::kInvalidArgument)) {
        pmstore_log_session& session = log->session;
        PMSTORE_TRY_STATUS(session.executor.run(
            move_to_current_replica(session.servers, session.options, log->at, log->reader)));
        return make_error(ErrorCode::kTimeout, "it goes on at another replica");
      }
      return take(*reader, got, *entry);
    });
    if (code != PMSTORE_LOG_TIMEOUT || left_ns <= kFollowSliceNs) {
      if (code != PMSTORE_LOG_OK && error != nullptr) *error = slice;
      return code;
    }
    std::this_thread::yield();
  }
}

pmstore_log_code pmstore_log_seek(pmstore_log* log, uint64_t lsn, pmstore_log_error* error) {
  return locked(log, error, [&]() -> Status {
    PMSTORE_TRY(LogReader* const reader, reader_of(*log));
    reader->seek(lsn);
    return {};
  });
}

pmstore_log_code pmstore_log_seek_to_end(pmstore_log* log, pmstore_log_error* error) {
  return locked(log, error, [&]() -> Status {
    PMSTORE_TRY(LogReader* const reader, reader_of(*log));
    return log->session.executor.run(reader->seek_to_tail());
  });
}

pmstore_log_code pmstore_log_skip_damaged(pmstore_log* log, uint64_t* from, uint64_t* to,
                                          pmstore_log_error* error) {
  return locked(log, error, [&]() -> Status {
    PMSTORE_TRY(LogReader* const reader, reader_of(*log));
    PMSTORE_TRY(const DamagedRange range, log->session.executor.run(reader->skip_damaged()));
    if (from != nullptr) *from = range.from_lsn;
    if (to != nullptr) *to = range.to_lsn;
    return {};
  });
}

pmstore_log_code pmstore_log_trim(pmstore_log* log, uint64_t lsn, uint64_t* start,
                                  pmstore_log_error* error) {
  return locked(log, error, [&]() -> Status {
    pmstore_log_session& session = log->session;
    uint64_t now = 0;
    if (session.client) {
      PMSTORE_TRY(now, session.executor.run(session.client->trim(log->at.info.id, lsn)));
    } else {
      PMSTORE_TRY(now, session.executor.run(ReplicatedLog::trim(
                           session.executor, log->at.info.name, session.servers,
                           TrimPlace{lsn, lsn == 0 ? 1u : 0u}, session.options)));
    }
    if (start != nullptr) *start = now;
    return {};
  });
}

pmstore_log_code pmstore_log_seal(pmstore_log* log, pmstore_log_error* error) {
  return locked(log, error, [&]() -> Status {
    pmstore_log_session& session = log->session;
    if (session.client) return session.executor.run(session.client->seal(log->at.info.id));
    if (log->replicated) return session.executor.run(log->replicated->seal());
    return session.executor.run(ReplicatedLog::seal(
        session.executor, log->at.info.name, session.servers, replicated_options(session, 0)));
  });
}

pmstore_log_code pmstore_log_stat(pmstore_log* log, pmstore_log_info* info,
                                  pmstore_log_error* error) {
  return locked(log, error, [&]() -> Status {
    if (info == nullptr) return null_argument();
    pmstore_log_session& session = log->session;
    if (!session.client) {
      PMSTORE_TRY_STATUS(find_replica(*log));
    }
    LogClient& client = session.client ? *session.client : *log->at.client;
    PMSTORE_TRY(const LogInfo now, session.executor.run(client.open(log->at.info.name)));
    if (now.id != log->at.info.id) {
      return make_error(ErrorCode::kNotFound, "the log was deleted, and made again: open it again");
    }
    *info = {now.bytes,  now.start_lsn, now.tail_lsn,      now.next_index,
             now.sealed, now.exclusive, now.damaged.size()};
    return {};
  });
}

}  // extern "C"
