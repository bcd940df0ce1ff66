#include "pmstore/batch_writer.h"

#include <optional>
#include <utility>

#include "base/check.h"
#include "pmstore/client/client_state.h"
#include "pmstore/client/commit_room.h"

namespace pmstore {

// Invariants: `room` counts the records of the batch, as if none of them had to move; so they fit a
// transaction, or nearly. The first `begin` records of the batch are durable, and counted.
struct BatchWriter::State {
  State(Client& client_of_all, TableId its_table) : client(client_of_all), table(its_table) {}

  bool take(std::string_view key, std::string_view value);
  Task<Status> write_batch();
  Task<Status> write(size_t from, size_t to);
  bool may_fit_in_two(const Status& done) const;

  Client& client;
  const TableId table;
  RecordPage batch;
  size_t begin = 0;  // a task that was destroyed may have written these first ones
  std::optional<internal::CommitRoom> room;  // empty: so is the batch
  uint64_t written = 0;
  uint64_t transactions = 0;
};

BatchWriter::BatchWriter(Client& client, TableId table)
    : state_(std::make_unique<State>(client, table)) {}
BatchWriter::~BatchWriter() = default;

uint64_t BatchWriter::written() const { return state_->written; }
uint64_t BatchWriter::transactions() const { return state_->transactions; }

// False: the batch has no room for the record. A record that has the batch for itself has room
// always: its commit says what is wrong.
bool BatchWriter::State::take(std::string_view key, std::string_view value) {
  const internal::Connector& connector = client.state_->connector;
  if (!room) room.emplace(connector.info().discipline);
  internal::CommitRoom with = *room;
  with.add_write(key.size(), value.size(), /*may_move=*/false);
  const bool fits = with.fits(connector.info().max_redo_bytes, connector.largest_commit_bytes());
  if (!fits && !batch.empty()) return false;
  *room = with;
  batch.add(key, value);
  return true;
}

Task<Status> BatchWriter::put(std::string_view key, std::string_view value) {
  if (Status sizes = check_sizes(key, value); !sizes) co_return std::move(sizes);
  if (state_->take(key, value)) co_return Status{};
  Status done = co_await state_->write_batch();
  if (!done) co_return std::move(done);
  const bool taken = state_->take(key, value);
  PMSTORE_CHECK(taken, "an empty batch takes every record");
  co_return Status{};
}

Task<Status> BatchWriter::flush() { return state_->write_batch(); }

Task<Status> BatchWriter::State::write_batch() {
  Status done = co_await write(begin, batch.size());
  batch.clear();
  begin = 0;
  room.reset();
  co_return std::move(done);
}

// Records that have to move take more room than was counted, and what transactions of several
// servers hold of the log leaves less of it. A server that has no place for a session is another
// matter.
bool BatchWriter::State::may_fit_in_two(const Status& done) const {
  if (done.code() == ErrorCode::kTooLarge) return true;
  return done.code() == ErrorCode::kBackPressure && client.state_->connector.has_usable_session();
}

Task<Status> BatchWriter::State::write(size_t from, size_t to) {
  if (from == to) co_return Status{};
  const auto body = [&](Transaction& transaction) -> Task<Status> {
    for (size_t i = from; i < to; ++i) transaction.put(table, batch[i].key, batch[i].value);
    co_return Status{};
  };
  Status done = co_await retry(client, body);
  if (done) {
    begin = to;
    written += to - from;
    ++transactions;
    co_return std::move(done);
  }
  if (!may_fit_in_two(done) || to - from == 1) co_return std::move(done);
  const size_t middle = from + (to - from) / 2;
  done = co_await write(from, middle);
  if (done) done = co_await write(middle, to);
  co_return std::move(done);
}

}  // namespace pmstore
