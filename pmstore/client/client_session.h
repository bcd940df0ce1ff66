// ClientSession: one connection of a client, from its handshake to its end, with everything that
// belongs to it: RPC, registered buffers, and under lock discipline rnic the redo ring, for which
// it asks when a commit needs one.
//
// Reference counted, because operations that were under way when the connection broke still unwind
// while the next operation has already made a new session. Invariant: a session that is not
// usable() never becomes usable again. Threads: the executor's.
#pragma once

#include <coroutine>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/connection.h"
#include "fabric/device.h"
#include "fabric/rpc.h"
#include "pmstore/client.h"
#include "pmstore/client/bucket_count_hint.h"
#include "pmstore/client/buffer_pool.h"
#include "pmstore/client/frame_regions.h"
#include "pmstore/client/leaf_routes.h"
#include "pmstore/client/redo_ring.h"
#include "pmstore/client/region_directory.h"
#include "pmstore/client/shard_id.h"
#include "pmstore/layout/bucket_layout.h"
#include "pmstore/layout/lock_list_layout.h"
#include "pmstore/layout/lock_word.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/server/store_calls.h"
#include "service/link.h"

namespace pmstore::internal {

class ClientSession;

// Posts a buffer's batch with one doorbell and waits for it: one round trip, one completion. The
// waiting coroutine may be destroyed meanwhile.
class BufferAwaiter : public fabric::Connection::ExecuteAwaiter {
 public:
  BufferAwaiter(fabric::Connection& connection, OpBuffer& buffer)
      : ExecuteAwaiter(connection, unused(buffer).batch, buffer.completion) {
    if (posted()) buffer.unsignaled = false;  // the completion covers all earlier work
  }

 private:
  static OpBuffer& unused(OpBuffer& buffer) {
    PMSTORE_CHECK(buffer.completion.idle() || buffer.completion.done(),
                  "an earlier request of this buffer would end the wait for this one");
    return buffer;
  }
};

// Non-atomic counted reference: a session stays on one thread.
class SessionRef {
 public:
  SessionRef() = default;
  explicit SessionRef(ClientSession* session);
  SessionRef(const SessionRef& other) : SessionRef(other.session_) {}
  SessionRef(SessionRef&& other) noexcept : session_(std::exchange(other.session_, nullptr)) {}
  SessionRef& operator=(SessionRef other) noexcept {
    std::swap(session_, other.session_);
    return *this;
  }
  ~SessionRef();
  explicit operator bool() const { return session_ != nullptr; }
  ClientSession* operator->() const { return session_; }
  ClientSession& operator*() const { return *session_; }

 private:
  ClientSession* session_ = nullptr;
};

// What all sessions of one client share. Outlives them.
struct SessionBook {
  fabric::Counters ended;
  std::vector<ClientSession*> live;
  uint64_t last_generation = 0;

  fabric::Counters counters() const;
};

struct SessionOptions {
  ClientSecret secret;
  std::shared_ptr<const uint64_t> known_through;  // as service::LinkOptions
  uint64_t call_timeout_ns = 0;
  uint64_t connect_timeout_ns = 0;
  bool one_sided_reads = true;
  MissPath misses = MissPath::kAuto;
  persist::WriteStrategy log_strategy = persist::WriteStrategy::kAuto;
  std::optional<LockDiscipline> required_discipline;
};

class ClientSession {
 public:
  // Connects and does the handshake. Errors of Device::connect(). VersionMismatch: the server is of
  // another release. Protocol: its hello is malformed. Unsupported: `options` ask for more than the
  // server or the fabric has.
  static base::Task<Result<SessionRef>> open(std::shared_ptr<fabric::Device> device,
                                             std::shared_ptr<SessionBook> book, fabric::Uri uri,
                                             SessionOptions options);
  ~ClientSession();

  bool usable() const { return !link_->dropped() && calls_->connected(); }
  // Makes it unusable: no operation starts on it any more. The next operation reconnects, and the
  // server fences this session before it accepts the new one.
  void drop() { link_->drop(); }
  // The reason why it is unusable, for a message. CHECK: !usable().
  Error why_unusable() const { return link_->why_unusable(); }

  const ServerHello& hello() const { return hello_; }
  service::Link& link() const { return *link_; }
  uint64_t generation() const { return generation_; }
  // What the server holds: one shard, which is all of the only partition.
  ShardId shard() const { return {}; }
  LockDiscipline discipline() const { return static_cast<LockDiscipline>(hello_.discipline); }
  bool one_sided_reads() const { return one_sided_reads_; }
  // Never kAuto. CHECK: kRpc where no read is one-sided.
  MissPath misses() const { return misses_; }
  bool one_sided_commit() const { return hello_.one_sided_commit != 0; }
  fabric::Connection& connection() { return *connection_; }
  fabric::RpcClient& rpc() { return *rpc_; }
  // What it has the server do in transactions and reads.
  StoreCalls& calls() { return *calls_; }
  // The server is in this process: it is called from here on, not sent messages, and also for every
  // read. Lock discipline cpu only (CHECK).
  void call_directly(std::unique_ptr<StoreCalls> server);
  bool in_process() const { return in_process_; }
  // Of a commit as a message, and of what one transaction may hold. The largest single write fits,
  // so that it is the connection that refuses it.
  size_t largest_commit_bytes() const;
  BufferPool& buffers() { return *buffers_; }
  // Pages of ordered tables are READ where misses() is kOneSided.
  LeafRoutes& leaf_routes() { return leaf_routes_; }
  // Lock discipline rnic: what a commit logs into. Asks the server for it when it is not there;
  // calls at the same time share one request. BackPressure, Full: the server has none now, and a
  // later call may ask again. Errors of the connection; Protocol: the answer is malformed. The
  // waiting coroutine may be destroyed.
  base::Task<Status> request_ring();
  bool has_ring() const { return ring_ != nullptr; }
  RedoRing& ring() { return *ring_; }
  // What its writes use; kTwoSided where the server writes the redo records itself.
  persist::WriteStrategy log_strategy() const { return log_strategy_; }
  // Lock discipline rnic: the buffer of truncations. A commit that holds a buffer and waits for
  // room in the ring thus never waits for another buffer.
  OpBuffer& truncation_buffer() { return *truncation_buffer_; }
  // The number of tasks that go on after their commit was acknowledged.
  unsigned passive = 0;
  Executor& executor() { return device_->executor(); }
  uint64_t call_timeout_ns() const { return call_timeout_ns_; }

  // Whether there can be such a slot: it has a lock word.
  bool in_slot_space(SlotOffset slot, uint64_t bytes) const {
    return raw(slot) % 64 == 0 && raw(slot) < hello_.words.bytes * 8 &&
           lock_table_bytes(raw(slot) + bytes) <= hello_.words.bytes;
  }
  // Whether this client may access the slot's record; else it asks the server for it.
  bool in_records(SlotOffset slot, uint64_t bytes) const { return frames_.holds(slot, bytes); }
  FrameRegions& frames() { return frames_; }
  // BufferPool::uses() of the operations that may access records that can go.
  std::vector<uint64_t> operations_under_way() const;
  // The server may have ended the session, or is about to: a list of frames is to be confirmed, a
  // ping is under way; or the session has no lease, knows frames that may go, and has sent nothing
  // for ServerHello::hear_ms before the last call of this. Call it before each operation.
  bool may_have_ended() {
    return frames_.following() || asking_alive_ || (frames_.knows_later() && was_silent());
  }
  // Asks the server whether the session is alive, and drops the session when it is not. Calls at
  // the same time share one ping. While no operation is under way, a list of frames that the server
  // tells of is confirmed too: nothing may drive the executor between two operations. The waiting
  // coroutine may be destroyed.
  base::Task<void> ask_alive();
  // Addresses in the server's memory. Requires of `slot`: in_records(), or in_slot_space() for its
  // word.
  fabric::RemoteAddress record_at(SlotOffset slot) const { return frames_.at(slot); }
  fabric::RemoteAddress word_at(SlotOffset slot) const {
    return hello_.words.at(lock_word_offset(raw(slot)));
  }
  // Lock discipline rnic: the list of what the commit that holds `buffer` locks.
  fabric::RemoteAddress lock_list_of(const OpBuffer& buffer) const {
    return ring_->granted().lock_lists.at(buffer.number * kLockListBytes);
  }
  RegionDirectory& regions() { return regions_; }
  BucketCountHint& bucket_count() { return bucket_count_; }
  // Else fetch_regions() may get to know it; until then it is the server that looks there.
  bool knows_bucket(uint64_t bucket) const { return address_of(bucket).has_value(); }
  // Requires knows_bucket() (CHECK).
  fabric::RemoteAddress bucket_at(uint64_t bucket) const {
    const auto address = address_of(bucket);
    PMSTORE_CHECK(address.has_value(), "only a bucket whose region is known can be READ");
    return *address;
  }

  // Posts the batch of `buffer` and waits for it; see execute_after().
  BufferAwaiter execute(OpBuffer& buffer) { return BufferAwaiter(*connection_, buffer); }
  // Continues after execute(buffer) has failed with `failed`. When the send queue was full, posts
  // the batch again until there is room, and waits for it; Timeout, and the session is dropped: no
  // room in time. Returns every other `failed` as it is.
  base::Task<Status> execute_after(Status failed, OpBuffer& buffer);
  // Posts the batch, and waits for room in the send queue first. Errors as execute_after();
  // Disconnected: not posted. `signaled`: the end of the batch finishes the buffer's completion.
  base::Task<Status> post(OpBuffer& buffer, bool signaled);

  // The first bytes of every request.
  RequestPrefix prefix() const { return link_->prefix(); }
  // A reply did not decode. Drops the session and returns the error for the caller.
  Error malformed_reply(std::string_view method);

 private:
  friend class SessionRef;
  ClientSession(std::shared_ptr<fabric::Device> device, std::shared_ptr<SessionBook> book)
      : device_(std::move(device)),
        book_(std::move(book)),
        ring_answered_(device_->executor()),
        alive_answered_(device_->executor()) {}
  Status check_hello(const SessionOptions& options);
  bool was_silent();
  Status check_fabric();
  static base::Task<void> ask_for_ring(SessionRef session);
  static base::Task<void> send_ping(SessionRef session);
  base::Task<Status> open_ring();
  std::optional<fabric::RemoteAddress> address_of(uint64_t bucket) const {
    return regions_.find(RegionKind::kBuckets, bucket / kBucketsPerPiece,
                         bucket % kBucketsPerPiece * sizeof(Bucket), sizeof(Bucket));
  }

  std::shared_ptr<fabric::Device> device_;  // first: goes last
  std::shared_ptr<SessionBook> book_;
  std::unique_ptr<BufferPool> buffers_;
  BufferLease truncation_buffer_;
  std::unique_ptr<service::Link> link_;
  fabric::RpcClient* rpc_ = nullptr;          // of the link
  fabric::Connection* connection_ = nullptr;  // of the link
  std::unique_ptr<StoreCalls> calls_;
  std::unique_ptr<RedoRing> ring_;
  bool asking_for_ring_ = false;  // ask_for_ring() runs
  Status ring_answer_;            // of the last time
  base::WaitList ring_answered_;
  bool asking_alive_ = false;  // send_ping() runs
  base::WaitList alive_answered_;
  persist::WriteStrategy log_strategy_ = persist::WriteStrategy::kTwoSided;
  ServerHello hello_;
  FrameRegions frames_;
  base::Task<void> following_frames_;
  LeafRoutes leaf_routes_;
  RegionDirectory regions_;
  BucketCountHint bucket_count_;
  uint64_t generation_ = 0;
  uint64_t call_timeout_ns_ = 0;
  uint32_t references_ = 0;
  // Of was_silent().
  uint64_t messages_seen_ = 0;
  uint64_t looked_ns_ = 0;
  uint64_t sent_ns_ = 0;  // a message was sent then, or later
  bool one_sided_reads_ = false;
  bool in_process_ = false;
  MissPath misses_ = MissPath::kRpc;
};

inline SessionRef::SessionRef(ClientSession* session) : session_(session) {
  if (session_ != nullptr) ++session_->references_;
}
inline SessionRef::~SessionRef() {
  if (session_ != nullptr && --session_->references_ == 0) delete session_;
}

}  // namespace pmstore::internal
