// Of LogService: exclusive producers: who gets a log, and who loses it.
#include <algorithm>
#include <string>

#include "base/check.h"
#include "log/internal/log_service_state.h"

namespace pmstore::log::internal {

LogProducers::LogProducers(LogStore& store)
    : Service({.id = service::ServiceId::kProducer, .name = "producer"}),
      store_(store),
      persist_service_(store.memory()) {}

// A producer keeps others from its log, so it has to show that it is there and not only connected.
bool LogProducers::needs_lease(const service::Session&) const { return true; }

// One for each log at most, so their number is bounded.
Result<std::vector<std::byte>> LogProducers::admit(service::Session& admitted,
                                                   std::span<const std::byte> body) {
  auto& session = static_cast<ProducerSession&>(admitted);
  fabric::MessageReader reader(body);
  const auto hello = reader.get<ProducerHello>();
  const bool known = hello.takeover == Takeover::kIfFree || hello.takeover == Takeover::kSteal;
  const bool padded = std::all_of(std::begin(hello.padding), std::end(hello.padding),
                                  [](uint8_t byte) { return byte == 0; });
  if (!reader.complete() || !known || !padded) {
    return make_error(ErrorCode::kProtocol, "a malformed hello of a producer");
  }
  PMSTORE_TRY_STATUS(store_.may_acquire(hello.log, hello.membership));
  if (const auto holder = holders_.find(hello.log); holder != holders_.end()) {
    const auto old = holder->second->shared_from_this();
    const bool itself = old->client == session.client;
    if (!itself && hello.takeover != Takeover::kSteal) {
      return make_error(ErrorCode::kBusy,
                        "another producer has this log; wait until its lease ends, or steal it");
    }
    if (!itself) ++fenced_;
    holders_.erase(holder);  // the log passes on; it is not released in between
    // After it no WRITE of the old producer can arrive.
    host().end(*old, SessionEnd::kReplaced);
  }
  const auto granted = store_.acquire(hello.log, hello.membership);
  // The one before is fenced also when the pool is lost for this process.
  look_for_failure(store_, host());
  if (!granted) return granted.error();
  session.log = hello.log;
  auto answer = grant(session, *granted);
  if (answer) {
    holders_[session.log] = &session;
  } else {
    (void)store_.release(session.log);
  }
  return answer;
}

Result<std::vector<std::byte>> LogProducers::grant(ProducerSession& session,
                                                   const LogStore::Grant& granted) {
  const auto writable = fabric::Access::kRemoteRead | fabric::Access::kRemoteWrite;
  session.data_offset = granted.data_offset;
  session.data_bytes = granted.position.data_bytes;
  PMSTORE_CHECK(store_.memory().contains(session.data_offset, session.data_bytes),
                "a producer would write outside of its log");
  fabric::Device& device = *session.endpoint->device;
  const auto data = store_.memory().mapping().subspan(session.data_offset, session.data_bytes);
  PMSTORE_TRY(auto data_region, device.register_memory(data, writable));
  const auto tail = std::as_writable_bytes(std::span(granted.tail_word, 1));
  PMSTORE_TRY(auto tail_region, device.register_memory(tail, writable));
  LogProducerAnswer answer;
  answer.data = data_region->remote();
  answer.tail = tail_region->remote();
  answer.start_lsn = granted.position.start_lsn;
  answer.tail_lsn = granted.position.tail_lsn;
  answer.next_index = granted.next_index;
  answer.incarnation = granted.position.incarnation;
  answer.salt = granted.position.salt;
  answer.padding_off = granted.padding.off_bits();
  session.grants.push_back(std::move(data_region));
  session.grants.push_back(std::move(tail_region));
  return service::message_of(answer);
}

void LogProducers::on_ended(service::Session& ended, std::optional<SessionEnd> why) {
  const auto& session = static_cast<const ProducerSession&>(ended);
  if (why == SessionEnd::kSilent || why == SessionEnd::kKicked) ++fenced_;
  const auto holder = holders_.find(session.log);
  if (holder == holders_.end() || holder->second != &session) return;
  holders_.erase(holder);
  // Io: nothing of this pool is served any more, and the next start walks the log.
  (void)store_.release(session.log);
}

void LogProducers::describe(const service::Session& session, SessionReport& report) const {
  report.log = static_cast<const ProducerSession&>(session).log;
}

// ---- requests ----

void LogProducers::on_persist_write(service::Session& session, fabric::RpcCall call) {
  const auto& producer = static_cast<const ProducerSession&>(session);
  persist_service_.on_call(std::move(call), producer.data_offset, producer.data_bytes);
  look_for_failure(store_, host());
}

void LogProducers::on_call(service::Session& session, fabric::RpcCall call,
                           std::span<const std::byte> body) {
  const Status served = serve(static_cast<ProducerSession&>(session), call, body);
  look_for_failure(store_, host());
  if (served) return;
  if (served.code() == ErrorCode::kProtocol) return host().drop_malformed(session, call);
  call.reply_error(served.error());
}

Status LogProducers::serve(ProducerSession& session, fabric::RpcCall& call,
                           std::span<const std::byte> body) {
  fabric::MessageReader reader(body);
  switch (static_cast<LogMethod>(call.method())) {
    case LogMethod::kMakeRoom: {
      const auto request = reader.get<MakeRoomRequest>();
      if (!reader.complete()) return malformed_request();
      PMSTORE_TRY(const uint64_t start, store_.make_room(session.log, request.bytes));
      call.reply(service::bytes_of(TrimReply{start}));
      return {};
    }
    case LogMethod::kSetMembership: {
      const auto request = reader.get<MembershipRequest>();
      ReplicaPlace replica;
      replica.self = request.self;
      replica.membership = request.membership;
      replica.replicas = get_uris(reader, request.replicas);
      if (!reader.complete()) return malformed_request();
      PMSTORE_TRY_STATUS(store_.set_membership(session.log, request.expected, replica));
      call.reply({});
      return {};
    }
    case LogMethod::kAgree: {
      const auto request = reader.get<AgreeRequest>();
      if (!reader.complete()) return malformed_request();
      PMSTORE_TRY_STATUS(store_.agree(session.log, request.membership));
      call.reply({});
      return {};
    }
    default: return malformed_request();
  }
}

}  // namespace pmstore::log::internal
