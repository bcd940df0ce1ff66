#include "pmstore/client/client_session.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "pmstore/client/rpc_calls.h"

namespace pmstore::internal {
namespace {

// Enough for every operation that one core can usefully have under way.
constexpr size_t kOpBuffers = kLockLists;
static_assert(kLocksPerList >= OpBuffer::kWords);

bool known_discipline(uint8_t discipline) {
  return discipline == static_cast<uint8_t>(LockDiscipline::kCpu) ||
         discipline == static_cast<uint8_t>(LockDiscipline::kRnic);
}

Error bad_hello(const char* what) {
  return make_error(ErrorCode::kProtocol, "the server's handshake " + std::string(what) +
                                              "; is it a pmstore server of this version?");
}

// Where a CPU of the server moves the data, a READ costs it as much as a request does, and a miss
// needs two READs one after the other. An RNIC, or this thread itself, needs no CPU of the server.
MissPath resolved(MissPath chosen, const fabric::Capabilities& fabric) {
  if (chosen != MissPath::kAuto) return chosen;
  const bool server_works = fabric.cpu_moves_data && !fabric.poster_moves_data;
  return server_works ? MissPath::kRpc : MissPath::kOneSided;
}

// What the client will compute addresses from.
const char* hello_flaw(const ServerHello& hello) {
  if (!known_discipline(hello.discipline)) return "names no lock discipline";
  if ((hello.padding_off & ~persist::PaddingRules::kOffBits) != 0) {
    return "names rules that this client does not know";
  }
  const uint64_t first_piece = std::min(hello.bucket_count, kBucketsPerPiece) * sizeof(Bucket);
  if (hello.bucket_count == 0 || hello.bucket_count > kMostBuckets ||
      hello.buckets.bytes < first_piece) {
    return "grants fewer buckets than the index has";
  }
  if (hello.words.bytes < lock_table_bytes(hello.records.bytes)) {
    return "grants fewer lock words than records";
  }
  if (hello.discipline != static_cast<uint8_t>(LockDiscipline::kRnic)) return nullptr;
  if (hello.owner == 0 || hello.owner > LockWord::kMaxOwner) return "gives no lock owner";
  return nullptr;
}

bool is_possible(const RingReply& granted) {
  const uint64_t bytes = granted.ring.bytes;
  return bytes >= log::kMinRingBytes - log::kRingHeaderBytes &&
         bytes % log::kRingHeaderBytes == 0 && granted.start_lsn <= granted.tail_lsn &&
         granted.tail_lsn - granted.start_lsn <= bytes &&
         log::is_boundary(granted.start_lsn, bytes) && log::is_boundary(granted.tail_lsn, bytes) &&
         granted.lock_lists.bytes == kLockListsBytes;
}

}  // namespace

fabric::Counters SessionBook::counters() const {
  fabric::Counters total = ended;
  for (ClientSession* session : live) total += session->connection().counters();
  return total;
}

base::Task<Result<SessionRef>> ClientSession::open(std::shared_ptr<fabric::Device> device,
                                                   std::shared_ptr<SessionBook> book,
                                                   fabric::Uri uri, SessionOptions options) {
  SessionRef session(new ClientSession(device, book));
  session->call_timeout_ns_ = options.call_timeout_ns;
  PMSTORE_CO_TRY(session->buffers_, BufferPool::create(*device, kOpBuffers));
  ClientHello hello;
  if (options.required_discipline) {
    hello.required_discipline = static_cast<uint8_t>(*options.required_discipline);
  }
  hello.reads_by_rpc = options.one_sided_reads ? 0 : 1;
  service::LinkOptions with;
  with.service = service::ServiceId::kStore;
  with.secret = options.secret;
  with.connect_timeout_ns = options.connect_timeout_ns;
  with.rpc.call_timeout_ns = options.call_timeout_ns;
  with.known_through = options.known_through;
  PMSTORE_CO_TRY(session->link_, co_await service::Link::open(*device, std::move(uri), with,
                                                              service::bytes_of(hello)));
  session->connection_ = &session->link_->connection();
  session->rpc_ = &session->link_->rpc();
  session->generation_ = ++book->last_generation;
  book->live.push_back(&*session);

  PMSTORE_CO_TRY_STATUS(session->check_hello(options));
  session->looked_ns_ = session->sent_ns_ = device->executor().now_ns();
  session->rpc_->on_notice([raw_session = &*session] {
    // A list that comes while it runs is the one that it ends with.
    if (raw_session->frames_.following()) return;
    raw_session->following_frames_ = follow_frames(*raw_session);
    raw_session->following_frames_.start();
  });
  session->calls_ = std::make_unique<RpcCalls>(*session);
  if (session->discipline() == LockDiscipline::kRnic) {
    PMSTORE_CO_TRY_STATUS(session->check_fabric());
    PMSTORE_CO_TRY(
        session->log_strategy_,
        persist::negotiate(options.log_strategy, session->link_->welcome().persist_capability(),
                           session->connection_->capabilities()));
    session->truncation_buffer_ = session->buffers_->try_take();
  }
  co_return std::move(session);
}

Status ClientSession::check_hello(const SessionOptions& options) {
  const std::span<const std::byte> answer = link_->body();
  if (answer.size() < sizeof(hello_)) return bad_hello("has the wrong length");
  std::memcpy(&hello_, answer.data(), sizeof(hello_));
  if (const char* flaw = hello_flaw(hello_)) return bad_hello(flaw);
  if (!frames_.start(hello_, answer.subspan(sizeof(hello_)))) {
    return bad_hello("lists frames that cannot be");
  }
  if (options.required_discipline && *options.required_discipline != discipline()) {
    return make_error(ErrorCode::kUnsupported,
                      "the server's lock discipline is " +
                          std::string(discipline_name(discipline())) + ", not " +
                          std::string(discipline_name(*options.required_discipline)) +
                          "; start it with the other one, or do not ask for one");
  }
  if (options.log_strategy != persist::WriteStrategy::kAuto &&
      discipline() != LockDiscipline::kRnic) {
    return make_error(ErrorCode::kUnsupported,
                      "strategy " + std::string(persist::strategy_name(options.log_strategy)) +
                          " has no use at a server whose lock discipline is cpu, which writes the "
                          "redo records itself; choose none, or a server with discipline rnic");
  }
  regions_.learn(RegionKind::kBuckets, 0, hello_.buckets);
  bucket_count_.start(hello_.bucket_count);
  const fabric::Capabilities& fabric = connection_->capabilities();
  one_sided_reads_ = options.one_sided_reads && fabric.read_after_read;
  misses_ = one_sided_reads_ ? resolved(options.misses, fabric) : MissPath::kRpc;
  return {};
}

std::vector<uint64_t> ClientSession::operations_under_way() const {
  std::vector<uint64_t> uses = buffers_->uses();
  // A session has that one to its end, and reads the first frame only.
  if (truncation_buffer_) uses[truncation_buffer_->number] = 0;
  return uses;
}

bool ClientSession::was_silent() {
  if (link_->welcome().lease_ms != 0) return false;  // pings keep it
  const uint64_t messages = connection_->counters().server_messages;
  if (std::exchange(messages_seen_, messages) != messages) sent_ns_ = looked_ns_;
  looked_ns_ = executor().now_ns();
  return looked_ns_ - sent_ns_ >= uint64_t{hello_.hear_ms} * 1'000'000;
}

base::Task<void> ClientSession::ask_alive() {
  const SessionRef self(this);
  if (!asking_alive_) {
    asking_alive_ = true;
    executor().spawn(send_ping(self));
  }
  while (asking_alive_) co_await alive_answered_.wait();
}

// A task of its own, as that which asks for a ring.
base::Task<void> ClientSession::send_ping(SessionRef session) {
  constexpr uint64_t kPauseNs = 50'000;
  const auto pong = co_await session->link_->call(service::kPingMethod, {}, 0);
  if (!pong) session->drop();
  const auto is_idle = [&] {
    return session->buffers_->have_ended(session->operations_under_way());
  };
  while (session->usable() && session->frames_.following() && is_idle()) {
    co_await session->executor().sleep_for(kPauseNs);
  }
  session->asking_alive_ = false;
  session->alive_answered_.notify_all();
}

Status ClientSession::check_fabric() {
  const fabric::Capabilities& fabric = connection_->capabilities();
  const bool ordered =
      fabric.read_after_read && fabric.write_after_write && fabric.atomic_after_write;
  if (fabric.atomics == fabric::AtomicScope::kNone || !ordered) {
    return make_error(ErrorCode::kUnsupported,
                      "lock discipline rnic needs a fabric with ordered remote atomics, which "
                      "this connection lacks; start the server with discipline cpu");
  }
  return {};
}

base::Task<Status> ClientSession::request_ring() {
  PMSTORE_CHECK(discipline() == LockDiscipline::kRnic, "under cpu the server logs");
  const SessionRef self(this);
  if (!ring_ && !asking_for_ring_) {
    // A task of its own: the request is made once, whichever of its callers is destroyed.
    asking_for_ring_ = true;
    executor().spawn(ask_for_ring(self));
  }
  while (asking_for_ring_) co_await ring_answered_.wait();
  if (ring_) co_return Status{};
  co_return Error(ring_answer_.error());
}

base::Task<void> ClientSession::ask_for_ring(SessionRef session) {
  session->ring_answer_ = co_await session->open_ring();
  PMSTORE_CHECK(session->ring_answer_.has_value() == session->has_ring(),
                "a ring is what a good answer brings");
  session->asking_for_ring_ = false;
  session->ring_answered_.notify_all();
}

base::Task<Status> ClientSession::open_ring() {
  std::array<std::byte, sizeof(RequestPrefix)> room;
  MessageWriter request(room);
  request.put(prefix());
  const auto answer = co_await rpc_->call(static_cast<uint16_t>(Method::kRing), request.message(),
                                          sizeof(RingReply));
  if (!answer) {
    // Without an answer the server may have granted it, and it does so once.
    if (answer.code() == ErrorCode::kTimeout) drop();
    co_return Error(answer.error());
  }
  MessageReader reader(answer->bytes());
  const auto granted = reader.get<RingReply>();
  if (!reader.complete() || !is_possible(granted))
    co_return malformed_reply("a request for a ring");
  auto ring =
      RedoRing::create(*device_, *connection_, *rpc_, granted,
                       link_->welcome().persist_capability(), log_strategy_, hello_.padding());
  if (!ring) {
    drop();  // as above
    co_return Error(ring.error());
  }
  ring_ = std::move(*ring);
  co_return Status{};
}

void ClientSession::call_directly(std::unique_ptr<StoreCalls> server) {
  PMSTORE_CHECK(discipline() == LockDiscipline::kCpu, "under rnic clients lock by themselves");
  calls_ = std::move(server);
  in_process_ = true;
  frames_.forget();
  one_sided_reads_ = false;
  misses_ = MissPath::kRpc;
}

size_t ClientSession::largest_commit_bytes() const {
  constexpr size_t kLargestWrite = 64 + kMaxKeyBytes + kMaxValueBytes + 8;
  return std::max<size_t>(rpc_->max_request_bytes(), kLargestWrite);
}

ClientSession::~ClientSession() {
  following_frames_ = {};
  std::erase(book_->live, this);
  if (connection_ != nullptr) book_->ended += connection_->counters();
  // The connection goes before the memory that its peer or its queue can still reach; the ring has
  // some of that, and only borrows the connection.
  link_.reset();
  ring_.reset();
}

base::Task<Status> ClientSession::execute_after(Status failed, OpBuffer& buffer) {
  if (failed || failed.code() != ErrorCode::kBackPressure) co_return std::move(failed);
  Status posted = co_await post(buffer, true);
  if (!posted) co_return std::move(posted);
  fabric::CompletionAwaiter completed(buffer.completion);
  const bool ok = co_await completed;
  ++connection_->mutable_counters().round_trips;
  if (!ok) co_return Error(connection_->why_broken());
  co_return Status{};
}

base::Task<Status> ClientSession::post(OpBuffer& buffer, bool signaled) {
  fabric::Completion* const completion = signaled ? &buffer.completion : nullptr;
  Status posted = co_await connection_->post_when_room(buffer.batch, completion, call_timeout_ns_);
  if (posted) {
    buffer.unsignaled = !signaled;
  } else if (posted.code() == ErrorCode::kTimeout) {
    drop();  // no completion tells what became of the earlier unsignaled requests
  }
  co_return std::move(posted);
}

Error ClientSession::malformed_reply(std::string_view method) {
  drop();
  return make_error(ErrorCode::kProtocol, "the server's reply to " + std::string(method) +
                                              " is malformed; the connection was given up");
}

}  // namespace pmstore::internal
