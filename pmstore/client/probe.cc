#include "pmstore/client/probe.h"

#include <array>
#include <string>
#include <string_view>

#include "base/check.h"
#include "pmstore/layout/protocol.h"

namespace pmstore::internal {
namespace {

// What is read of a record, of the index and of the ring.
constexpr uint32_t kPieceBytes = 64;
// Where in the buffer the pieces go.
constexpr uint32_t kRecordAt = 0;
constexpr uint32_t kBucketAt = kPieceBytes;
constexpr uint32_t kRingAt = 2 * kPieceBytes;
// The words of the buffer.
constexpr size_t kReadWord = 0;
constexpr size_t kSwappedWord = 1;

Error failed(std::string_view what, const Error& why) {
  return make_error(why.code, std::string(what) + ": " + why.message);
}

// The server goes through a commit as far as it goes without writes: it says whether it still makes
// anything durable.
base::Task<Status> commit_nothing(ClientSession& session) {
  const CommitView nothing{};
  const Status answer = co_await session.calls().commit(nothing);
  if (!answer) co_return failed("a commit of nothing", answer.error());
  co_return Status{};
}

base::Task<Status> execute(ClientSession& session, OpBuffer& buffer, std::string_view what) {
  Status done = co_await session.execute(buffer);
  if (!done) done = co_await session.execute_after(std::move(done), buffer);
  if (!done) co_return failed(what, done.error());
  co_return Status{};
}

// One at a time, so that the error can say which it was.
base::Task<Status> read_regions(ClientSession& session, OpBuffer& buffer) {
  buffer.batch.clear();
  buffer.batch.read(buffer.at(kRecordAt, kPieceBytes), session.record_at(SlotOffset{0}));
  PMSTORE_CO_TRY_STATUS(co_await execute(session, buffer, "a READ of the records"));
  buffer.batch.clear();
  buffer.batch.read(buffer.word_at(kReadWord), session.word_at(SlotOffset{0}));
  PMSTORE_CO_TRY_STATUS(co_await execute(session, buffer, "a READ of the lock words"));
  buffer.batch.clear();
  buffer.batch.read(buffer.at(kBucketAt, kPieceBytes), session.bucket_at(0));
  co_return co_await execute(session, buffer, "a READ of the index");
}

// Whatever the word has become since it was read, it stays what it is.
base::Task<Status> swap_word(ClientSession& session, OpBuffer& buffer) {
  const uint64_t word = buffer.word(kReadWord);
  buffer.batch.clear();
  buffer.batch.compare_swap(buffer.word_at(kSwappedWord), session.word_at(SlotOffset{0}), word,
                            word);
  co_return co_await execute(session, buffer, "a compare-and-swap of a lock word");
}

// The free space of this client's ring is nobody's but its own.
base::Task<Status> rewrite_ring(ClientSession& session, OpBuffer& buffer) {
  PMSTORE_CO_TRY_STATUS(co_await session.request_ring());
  RedoRing& ring = session.ring();
  // An entry that came between the READ and the WRITE would be overwritten.
  const RedoRing::KeptFree kept(ring);
  const uint64_t offset = ring.free_offset();
  const fabric::LocalBuffer piece = buffer.at(kRingAt, kPieceBytes);
  if (ring.free_bytes() < piece.bytes) {
    co_return make_error(ErrorCode::kBackPressure, "the redo ring is full; try again later");
  }
  buffer.batch.clear();
  buffer.batch.read(piece, ring.granted().ring.at(offset));
  PMSTORE_CO_TRY_STATUS(co_await execute(session, buffer, "a READ of the redo ring"));
  const std::array<persist::RemotePiece, 1> pieces = {{{piece, offset}}};
  const auto written = co_await ring.writer().write(pieces);
  if (!written) co_return failed("a durable write of the redo ring", written.error());
  co_return Status{};
}

}  // namespace

base::Task<Result<PoolProbe>> probe_pool(Connector& connector, const TransactionNumbers& numbers) {
  PMSTORE_CO_TRY(const SessionRef session, co_await connector.connected());
  if (!numbers.nothing_running() || session->passive > 0) {
    co_return make_error(ErrorCode::kInvalidArgument,
                         "a transaction of this client commits; probe before or after it");
  }
  PMSTORE_CO_TRY_STATUS(co_await commit_nothing(*session));
  auto buffer = session->buffers().try_take();
  if (!buffer) buffer = co_await session->buffers().take();
  PoolProbe probe;
  if (session->one_sided_reads()) {
    PMSTORE_CO_TRY_STATUS(co_await read_regions(*session, *buffer));
    probe.read = true;
  }
  if (session->discipline() == LockDiscipline::kRnic) {
    if (!probe.read) {  // what is to be swapped is not known yet
      PMSTORE_CO_TRY_STATUS(co_await read_regions(*session, *buffer));
    }
    PMSTORE_CO_TRY_STATUS(co_await swap_word(*session, *buffer));
    probe.swapped = true;
    PMSTORE_CO_TRY_STATUS(co_await rewrite_ring(*session, *buffer));
    probe.wrote = true;
  }
  co_return probe;
}

}  // namespace pmstore::internal
