// Reading what was appended in a lap, and trimming it.
#include <fmt/format.h>

#include "log/log_reader.h"
#include "tools/log_load_run.h"

namespace pmstore::tools {

using log::LogClient;

Task<Status> LogLoad::check() {
  for (size_t i = 0; i < logs_.size(); ++i) {
    PMSTORE_CO_TRY_STATUS(co_await check(i));
  }
  co_return Status{};
}

Task<Status> LogLoad::check(size_t number) {
  LoadedLog& log = logs_[number];
  LogClient& session = *producers_[0].client;
  LogAudit audit(payloads_, log.next_index);
  for (Producer& producer : producers_) {
    if (producer.log != number) continue;
    for (Worker& worker : producer.workers) {
      for (const Worker::Acked& acked : worker.acked) {
        for (uint32_t i = 0; i < options_.batch; ++i) {
          audit.expect(acked.first_index + i, log_tag(worker.stream, acked.first_number + i));
        }
        if (acked.first_index <= worker.last_index) {
          co_return make_error(ErrorCode::kBadPool,
                               fmt::format("one producer's appends have indexes {} and then {}",
                                           worker.last_index, acked.first_index));
        }
        worker.last_index = acked.first_index + options_.batch - 1;
      }
      worker.acked.clear();
    }
  }
  PMSTORE_CO_TRY(const auto reader, co_await log::LogReader::open(session, log.id, {}));
  reader->seek(log.next_lsn);
  while (true) {
    const auto entry = co_await reader->next();
    if (!entry && entry.code() == ErrorCode::kNotFound) break;
    if (!entry) co_return Error(entry.error());
    audit.see(*entry);
    log.next_lsn = entry->next_lsn;
  }
  log.next_index = audit.next_index();
  result_.audit += audit.finish();
  const auto start = co_await session.trim(log.id, log.next_lsn);
  if (!start) co_return Error(start.error());
  co_return Status{};
}

}  // namespace pmstore::tools
