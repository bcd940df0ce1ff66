// Reads the entries that were appended in a lap, and trims them.
#include <fmt/format.h>

#include "log/log_reader.h"
#include "tools/bench/log_load_run.h"

namespace pmstore::tools {

Task<Status> LogLoad::check() {
  for (size_t i = 0; i < logs_.size(); ++i) {
    PMSTORE_CO_TRY_STATUS(co_await check(i));
  }
  co_return Status{};
}

Result<LogLoad::Acknowledged> LogLoad::take_acknowledged(size_t number) {
  Acknowledged all;
  for (Producer& producer : producers_) {
    if (producer.log != number) continue;
    for (Worker& worker : producer.workers) {
      for (const Worker::Acked& acked : worker.acked) {
        for (uint64_t i = 0; i < acked.entries; ++i) {
          all.emplace_back(acked.first_index + i, log_tag(worker.stream, acked.first_number + i));
        }
        if (acked.first_index <= worker.last_index) {
          return make_error(ErrorCode::kBadPool,
                            fmt::format("one producer's appends have indexes {} and then {}",
                                        worker.last_index, acked.first_index));
        }
        worker.last_index = acked.first_index + acked.entries - 1;
      }
      worker.acked.clear();
    }
  }
  return all;
}

Task<Result<uint64_t>> LogLoad::check_at(LogClient& session, const LoadedLog& log,
                                         const Acknowledged& acknowledged, uint64_t& next_index) {
  LogAudit audit(payloads_, log.next_index);
  for (const auto& [index, tag] : acknowledged) audit.expect(index, tag);
  uint64_t id = log.id;
  log::LogReaderOptions reading;
  if (!servers_.empty()) {
    PMSTORE_CO_TRY(const auto info, co_await session.open(log.name));
    id = info.id;
    reading.current_replica = true;  // it is this run's
  }
  PMSTORE_CO_TRY(const auto reader, co_await log::LogReader::open(session, id, reading));
  reader->seek(log.next_lsn);
  uint64_t next_lsn = log.next_lsn;
  while (true) {
    const auto entry = co_await reader->next();
    if (!entry && entry.code() == ErrorCode::kNotFound) break;
    if (!entry) co_return Error(entry.error());
    audit.see(*entry);
    next_lsn = entry->next_lsn;
  }
  next_index = audit.next_index();
  result_.audit += audit.finish();
  const auto start = co_await session.trim(id, next_lsn);
  if (!start) co_return Error(start.error());
  co_return next_lsn;
}

Task<Status> LogLoad::check(size_t number) {
  LoadedLog& log = logs_[number];
  PMSTORE_CO_TRY(const Acknowledged acknowledged, take_acknowledged(number));
  uint64_t next_index = 0;
  uint64_t next_lsn = 0;
  if (servers_.empty()) {
    PMSTORE_CO_TRY(next_lsn,
                   co_await check_at(*producers_[0].client, log, acknowledged, next_index));
  }
  for (size_t i = 0; i < servers_.size(); ++i) {
    const uint64_t other = next_lsn;
    PMSTORE_CO_TRY(next_lsn, co_await check_at(*servers_[i].client, log, acknowledged, next_index));
    if (i == 0 || next_lsn == other) continue;
    co_return make_error(ErrorCode::kBadPool,
                         fmt::format("{} ends at lsn {} on {}, and at {} on {}", log.name, other,
                                     servers_[i - 1].uri, next_lsn, servers_[i].uri));
  }
  log.next_index = next_index;
  log.next_lsn = next_lsn;
  co_return Status{};
}

}  // namespace pmstore::tools
