// The inside of LogProducer.
//
// Invariants: publisher->durable() <= appender's tail; the difference is in flight, or was when the
// appender failed. An entry has a number exactly when it was placed. Once `lost` is set, nothing is
// placed any more.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "log/internal/log_client_state.h"
#include "log/internal/tail_publisher.h"
#include "log/log_layout.h"
#include "log/log_producer.h"
#include "log/remote_appender.h"

namespace pmstore::log {

struct LogProducer::State final : RemoteAppender::RoomMaker {
  State(LogClient& session, KnownLog known_log, const LogProducerOptions& producer_options);
  ~State() override;

  // Handshake, then everything that needs its answer.
  base::Task<Status> connect(uint64_t membership);
  Status check_answer();
  base::Task<void> publish_when_idle();

  // Room in the ring: by looking how far it was trimmed, then by the log's policy.
  base::Task<Result<uint64_t>> make_room(uint64_t tail_lsn, uint64_t bytes) override;
  base::Task<Result<uint64_t>> read_start();
  base::Task<Result<uint64_t>> ask_for_room(uint64_t bytes);
  bool fits(uint64_t start_lsn, uint64_t tail_lsn, uint64_t bytes) const {
    return tail_lsn + bytes - start_lsn <= answer.data.bytes;
  }

  base::Task<Result<Appended>> append(RemoteAppender::Entries entries);
  Status check(const RemoteAppender::Entries& entries) const;
  // Why nothing can be appended any more: Fenced when another one has the log.
  base::Task<Error> why_lost(Error seen);
  base::Task<Status> publish_all();
  bool broken() const { return link->connection().broken(); }
  static Error closed_error() {
    return make_error(ErrorCode::kDisconnected, "the producer was closed: open another one");
  }

  base::Executor& executor;
  LogClient& client;
  KnownLog log;
  LogProducerOptions options;
  std::unique_ptr<service::Link> link;  // empty once it was closed
  LogProducerAnswer answer;
  std::unique_ptr<persist::RemoteWriter> writer;
  std::unique_ptr<internal::TailPublisher> publisher;
  std::unique_ptr<RemoteAppender> appender;
  std::unique_ptr<internal::ReadBuffer> words;
  LogEntryPrefix prefix{};
  uint64_t landed_lsn = 0;  // behind what is durable here
  uint64_t next_index = 1;
  fabric::Counters ended;  // of the connection, once it is gone
  std::optional<Error> lost;
  bool closing = false;
  size_t calls_under_way = 0;  // of publish(), agree() and set_membership()
  bool asking = false;
  base::WaitList asked;
  base::Task<void> publishing;
};

}  // namespace pmstore::log
