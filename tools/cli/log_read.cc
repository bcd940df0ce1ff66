// pmstore log read and follow
#include <atomic>
#include <cmath>
#include <csignal>
#include <optional>

#include "log/log_reader.h"
#include "tools/cli/bytes_text.h"
#include "tools/cli/log_session.h"

namespace pmstore::tools {
namespace {

std::atomic<bool> interrupted{false};
void on_interrupt(int) { interrupted.store(true); }

// Prints entries as they arrive. The JSON of read is one object, so it is collected; the JSON of
// follow is one object per line.
class EntryPrinter {
 public:
  EntryPrinter(const LogCommandOptions& options, bool collect)
      : framing_(options.parsed_framing()), json_(options.session.json), collect_(collect) {}

  void entry(const log::LogEntry& entry) {
    ++count_;
    const std::string_view payload(reinterpret_cast<const char*>(entry.payload.data()),
                                   entry.payload.size());
    if (!json_) {
      print_text(framed(framing_, payload));
      return;
    }
    nlohmann::ordered_json object = {
        {"lsn", entry.lsn}, {"index", entry.index}, {"payload", json_bytes(payload)}};
    if (collect_) {
      entries_.push_back(std::move(object));
    } else {
      print_json(object);
    }
  }

  void damaged(std::string_view what, const log::DamagedRange& range) {
    lost_ = true;
    lost_ranges_.push_back({{"from_lsn", range.from_lsn}, {"to_lsn", range.to_lsn}});
    fail(kProgram, what,
         fmt::format("entries from lsn {} to {} were lost to the medium; it goes on behind them",
                     range.from_lsn, range.to_lsn));
  }

  int end(const std::string& name, uint64_t next_lsn) {
    if (json_ && collect_) {
      print_json({{"log", name},
                  {"entries", std::move(entries_)},
                  {"next_lsn", next_lsn},
                  {"damaged", std::move(lost_ranges_)}});
    }
    return lost_ ? kFailed : kDone;
  }
  uint64_t count() const { return count_; }

 private:
  Framing framing_;
  bool json_;
  bool collect_;
  bool lost_ = false;
  uint64_t count_ = 0;
  nlohmann::ordered_json entries_ = nlohmann::ordered_json::array();
  nlohmann::ordered_json lost_ranges_ = nlohmann::ordered_json::array();
};

base::Task<Status> stand_at_begin(log::LogReader& reader, const log::LogInfo& info,
                                  const LogCommandOptions& options) {
  if (options.from_tail) co_return co_await reader.seek_to_tail();
  if (options.from_lsn > info.tail_lsn) {
    co_return make_error(ErrorCode::kInvalidArgument,
                         fmt::format("lsn {} is beyond the log's end, {}; give one that an append "
                                     "or a read has printed",
                                     options.from_lsn, info.tail_lsn));
  }
  reader.seek(options.from_lsn);
  co_return Status{};
}

// Deals with an error of next() or follow() that reading survives; gives it back when it does not.
base::Task<Status> go_on_after(log::LogReader& reader, const Error& error, std::string_view what,
                               EntryPrinter& printer) {
  if (error.code == ErrorCode::kDamaged) {
    PMSTORE_CO_TRY(const log::DamagedRange range, co_await reader.skip_damaged());
    printer.damaged(what, range);
    co_return Status{};
  }
  if (error.code == ErrorCode::kTrimmed) {
    if (printer.count() > 0) {
      fail(kProgram, what,
           fmt::format("entries from lsn {} to {} were trimmed before they were read; it goes on "
                       "behind them",
                       reader.position(), reader.start_lsn()));
    }
    reader.seek(reader.start_lsn());
    co_return Status{};
  }
  co_return error;
}

bool at_end(const Error& error) {
  return error.code == ErrorCode::kNotFound || error.code == ErrorCode::kSealed;
}

// A requested LSN without an entry is an error; an entry that is trimmed during the read is not.
std::optional<Error> not_there(const LogCommandOptions& options, const EntryPrinter& printer,
                               const log::LogReader& reader, const log::LogInfo& info,
                               const Error& error) {
  if (options.from_lsn == 0 || printer.count() > 0) return std::nullopt;
  if (error.code == ErrorCode::kTrimmed) return error;
  if (error.code != ErrorCode::kDamaged || reader.position() != options.from_lsn) {
    return std::nullopt;
  }
  for (const log::DamagedRange& range : info.damaged) {
    if (range.from_lsn <= options.from_lsn && options.from_lsn < range.to_lsn) return std::nullopt;
  }
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("no entry begins at lsn {}, or it was lost just now; give an lsn "
                                "that an append or a read has printed",
                                options.from_lsn));
}

// A replica is known to be current.
log::LogReaderOptions reading(const log::LogInfo& info) {
  log::LogReaderOptions options;
  options.current_replica = !info.replicas.empty();
  return options;
}

base::Task<int> read_entries(log::LogClient& client, const log::LogInfo& info,
                             const LogCommandOptions& options) {
  const std::string what = what_of("read", options);
  auto reader = co_await log::LogReader::open(client, info.id, reading(info));
  if (!reader) co_return fail(kProgram, what, reader.error());
  const Status began = co_await stand_at_begin(**reader, info, options);
  if (!began) co_return fail(kProgram, what, began.error());
  EntryPrinter printer(options, /*collect=*/true);
  while (options.limit == 0 || printer.count() < options.limit) {
    const auto entry = co_await (*reader)->next();
    if (entry) {
      if (entry->index >= options.from_index) printer.entry(*entry);
      continue;
    }
    if (at_end(entry.error())) break;
    if (const auto gone = not_there(options, printer, **reader, info, entry.error())) {
      co_return fail(kProgram, what, *gone);
    }
    const Status on = co_await go_on_after(**reader, entry.error(), what, printer);
    if (!on) co_return fail(kProgram, what, on.error());
  }
  co_return printer.end(options.name, (*reader)->position());
}

void end_on_interrupt() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

// `at`: a replica, or the only server that has the log (`client` then).
base::Task<int> follow_entries(log::LogClient& client, const log::LogInfo& info,
                               const LogCommandOptions& options,
                               log::CurrentReplica* at = nullptr) {
  constexpr uint64_t kLookForInterruptNs = 100'000'000;
  const std::string what = what_of("follow", options);
  auto reader = co_await log::LogReader::open(client, info.id, reading(info));
  if (!reader) co_return fail(kProgram, what, reader.error());
  const Status began = co_await stand_at_begin(**reader, info, options);
  if (!began) co_return fail(kProgram, what, began.error());
  EntryPrinter printer(options, /*collect=*/false);
  const double wait_ns = options.wait_seconds.value_or(HUGE_VAL) * 1e9;
  base::Executor& executor = client.executor();  // the client may change
  uint64_t last_ns = executor.now_ns();
  uint64_t heard_ns = last_ns;  // of the server
  while (!interrupted.load() && (options.limit == 0 || printer.count() < options.limit)) {
    const auto entry = co_await (*reader)->follow(kLookForInterruptNs);
    const uint64_t now_ns = executor.now_ns();
    const bool waits = static_cast<double>(now_ns - last_ns) < wait_ns;
    if (entry) {
      last_ns = heard_ns = now_ns;
      printer.entry(*entry);
      std::fflush(stdout);
      continue;
    }
    if (entry.code() == ErrorCode::kSealed) break;
    if (entry.code() == ErrorCode::kTimeout) {
      if (!waits) break;
      heard_ns = now_ns;
      continue;
    }
    if (entry.code() == ErrorCode::kDisconnected && waits &&
        now_ns - heard_ns < options.ride_through_ns()) {
      continue;
    }
    if (const auto gone = not_there(options, printer, **reader, info, entry.error())) {
      co_return fail(kProgram, what, *gone);
    }
    // Dropped, and perhaps deleted or added again since.
    if (at != nullptr &&
        (entry.code() == ErrorCode::kConflict || entry.code() == ErrorCode::kInvalidArgument)) {
      const Status moved = co_await log::move_to_current_replica(
          options.replicas, log_client_options(options.session), *at, *reader);
      if (!moved) co_return fail(kProgram, what, moved.error());
      continue;
    }
    const Status on = co_await go_on_after(**reader, entry.error(), what, printer);
    if (!on) co_return fail(kProgram, what, on.error());
  }
  co_return printer.end(options.name, (*reader)->position());
}

}  // namespace

base::Task<int> read_log(log::LogClient& client, const LogCommandOptions& options) {
  const auto info = co_await open_single(client, options);
  if (!info) co_return fail(kProgram, what_of("read", options), info.error());
  co_return co_await read_entries(client, *info, options);
}

base::Task<int> read_replicas(base::Executor& executor, const LogCommandOptions& options) {
  const auto at = co_await log::open_current_replica(executor, options.name, options.replicas,
                                                     log_client_options(options.session));
  if (!at) {
    co_return fail(kProgram, what_of("read", options),
                   at.error().message + advice(at.error(), options));
  }
  co_return co_await read_entries(*at->client, at->info, options);
}

base::Task<int> follow_log(log::LogClient& client, const LogCommandOptions& options) {
  end_on_interrupt();
  const auto info = co_await open_single(client, options);
  if (!info) co_return fail(kProgram, what_of("follow", options), info.error());
  co_return co_await follow_entries(client, *info, options);
}

base::Task<int> follow_replicas(base::Executor& executor, const LogCommandOptions& options) {
  end_on_interrupt();
  auto at = co_await log::open_current_replica(executor, options.name, options.replicas,
                                               log_client_options(options.session));
  if (!at) {
    co_return fail(kProgram, what_of("follow", options),
                   at.error().message + advice(at.error(), options));
  }
  co_return co_await follow_entries(*at->client, at->info, options, &*at);
}

}  // namespace pmstore::tools
