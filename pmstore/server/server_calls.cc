// What the server does for each RPC method. docs/protocol.md lists them.

#include <cstring>
#include <string>
#include <utility>

#include "base/atomic_copy.h"
#include "pmstore/server/server_state.h"

namespace pmstore::internal {

namespace {

using service::bytes_of;

bool is_answered_after_failure(Method method) {
  return method == Method::kStat || method == Method::kOutcome;
}

bool is_rnic_method(Method method) {
  return method == Method::kReserve || method == Method::kRelease || method == Method::kApply ||
         method == Method::kTruncate || method == Method::kRing;
}

}  // namespace

// Two-sided log appends, into this client's own ring and nowhere else.
void ServerCore::on_persist_write(service::Session& session, fabric::RpcCall call) {
  const auto& caller = static_cast<Session&>(session);
  if (!caller.may_log()) return persist_service.on_call(std::move(call), 0, 0);
  const log::Ring& ring = store->rings().at(*caller.ring);
  persist_service.on_call(std::move(call), ring.data_offset(), ring.position().data_bytes);
}

// What does not decode is refused when its turn comes.
void ServerCore::on_waiting(uint16_t method, std::span<const std::byte> body) {
  if (static_cast<Method>(method) != Method::kGet) return;
  MessageReader reader(body);
  const auto request = reader.get<GetRequest>();
  const auto key = reader.get_bytes(request.key_bytes);
  if (!reader.complete() || key.size() > kMaxKeyBytes) return;
  if (expected.add(static_cast<TableId>(request.table), key)) ++totals.gets_expected;
}

void ServerCore::on_call(service::Session& caller, fabric::RpcCall call,
                         std::span<const std::byte> body) {
  auto& session = static_cast<Session&>(caller);
  const auto method = static_cast<Method>(call.method());
  if (store->failed() && !is_answered_after_failure(method)) {
    call.reply_error(store->failure());
    return look_for_failure();
  }
  if (is_rnic_method(method)) {
    if (discipline != LockDiscipline::kRnic || changer() == nullptr) {
      return call.reply_error(
          make_error(ErrorCode::kUnsupported, "this server's lock discipline is cpu"));
    }
    std::shared_ptr<Session> keep = places[session.place].session;
    if (method == Method::kRing) {
      // Once in a session; the answer of a refusal comes first.
      const bool again = session.may_log() || session.asks_for_ring;
      if (again || !body.empty()) return drop_malformed(session, call);
      return rings.ask(std::move(keep), std::move(call));
    }
    if (!session.may_log()) return drop_malformed(session, call);
    ++session.active;
    run(serve_rnic(std::move(keep), std::move(call)));
    return;
  }
  serve(session, call, body);
  look_for_failure();
  follow_frames();
}

// The service of a pool ends when something could not be made durable: what is in memory may be
// more than what a restart finds.
void ServerCore::look_for_failure() {
  if (store->failed()) host.tell_failure(store->failure());
}

void ServerCore::serve(Session& session, fabric::RpcCall& call, std::span<const std::byte> body) {
  MessageReader reader(body);
  switch (static_cast<Method>(call.method())) {
    case Method::kCommit: return serve_commit(session, call, body);
    case Method::kGet: {
      const auto request = reader.get<GetRequest>();
      const auto key = reader.get_bytes(request.key_bytes);
      if (!reader.complete() || key.size() > kMaxKeyBytes) return drop_malformed(session, call);
      ++totals.gets;
      expected.ask_for_records();
      auto got = store->get(static_cast<TableId>(request.table), key, call.reply_room());
      if (!got && got.code() == ErrorCode::kConflict && group.finish()) {
        got = store->get(static_cast<TableId>(request.table), key, call.reply_room());
      }
      return got ? call.reply_filled(*got) : call.reply_error(got.error());
    }
    case Method::kScan: {
      const auto request = reader.get<ScanRequest>();
      if (!reader.complete()) return drop_malformed(session, call);
      ++totals.scans;
      auto got = store->scan(request, call.reply_room());
      if (!got && got.code() == ErrorCode::kConflict && group.finish()) {
        got = store->scan(request, call.reply_room());
      }
      return got ? call.reply_filled(*got) : call.reply_error(got.error());
    }
    case Method::kRangeScan: return serve_range_scan(session, call, body);
    case Method::kOpenTable: {
      auto opened = open_table(call, body);
      if (opened) return;
      if (opened.code() == ErrorCode::kProtocol) return drop_malformed(session, call);
      return call.reply_error(opened.error());
    }
    case Method::kListTables:
      return reader.complete() ? list_tables(call) : drop_malformed(session, call);
    case Method::kRegions: {
      const auto request = reader.get<RegionsRequest>();
      if (!reader.complete() || !RegionTable::is_kind(request.kind)) {
        return drop_malformed(session, call);
      }
      if (request.kind == RegionKind::kRecords) {
        if (request.first != 0 || request.confirmed > region_list) {
          return drop_malformed(session, call);
        }
        confirm_list(session, request.confirmed);
        return run(serve_frames(places[session.place].session, std::move(call)));
      }
      return run(serve_regions(places[session.place].session, std::move(call), request));
    }
    case Method::kDropTable: return serve_drop_table(session, call, body);
    case Method::kTableUsage: return serve_table_usage(session, call, body);
    case Method::kOutcome: {
      const auto request = reader.get<OutcomeRequest>();
      if (!reader.complete()) return drop_malformed(session, call);
      auto answer = answer_outcome(session, request);
      return answer ? call.reply(bytes_of(*answer)) : call.reply_error(answer.error());
    }
    case Method::kLock:
    case Method::kPrepare:
    case Method::kDecide:
    case Method::kVote:
    case Method::kUndecided: return serve_two_phase(session, call, body);
    case Method::kStat: {
      if (!reader.complete()) return drop_malformed(session, call);
      const std::string text = server_stat_json(*this);
      return call.reply(std::as_bytes(std::span(text)));
    }
    default: return drop_malformed(session, call);
  }
}

std::span<std::byte> ServerCore::request_copy(size_t bytes) {
  if (bytes > copy_bytes_) {
    copy_bytes_ = persist::round_up(bytes, 64 << 10);
    copy_ = std::make_unique_for_overwrite<std::byte[]>(copy_bytes_);
  }
  return {copy_.get(), bytes};
}

void ServerCore::serve_commit(Session& session, fabric::RpcCall& call,
                              std::span<const std::byte> body) {
  // A copy, because the client can write its request ring meanwhile: what is checked is what is
  // used.
  const std::span<std::byte> copy = request_copy(body.size());
  base::copy_from_shared(copy.data(), body.data(), body.size());
  const auto request = decode_commit(session.client, copy);
  if (!request || !use_number(session, *request)) return drop_malformed(session, call);
  if (discipline != LockDiscipline::kCpu) {
    const Status valid =
        request->write_count == 0
            ? store->validate(session.owner(), *request)
            : Status(make_error(ErrorCode::kUnsupported, "this server's lock discipline is rnic"));
    return answer_commit(session, call, valid);
  }
  const auto committed = group.commit(session, *request);
  if (committed) return answer_commit(session, call, *committed);
  group.wait_for_the_drain(places[session.place].session, std::move(call));
}

// A number is executed once, whatever its outcome was, and not any more when the client has called
// its outcome known.
bool ServerCore::use_number(Session& session, const CommitView& request) {
  if (request.write_count == 0) return true;
  const bool numbered = request.sequence >= session.first_sequence &&
                        request.sequence - session.first_sequence < kSessionSequences &&
                        request.sequence > session.known_through;
  return numbered && session.executed.use(request.sequence);
}

// After an error the session may be gone.
void ServerCore::count_commit(Session& session, const Status& committed) {
  if (committed) {
    ++totals.commits;
    ++session.commits;
  } else if (committed.code() == ErrorCode::kConflict) {
    ++totals.conflicts;
  }
}

void ServerCore::answer_commit(Session& session, fabric::RpcCall& call, const Status& committed) {
  count_commit(session, committed);
  committed ? call.reply(bytes_of(CommitReply{})) : call.reply_error(committed.error());
}

Result<OutcomeReply> ServerCore::answer_outcome(Session& session, const OutcomeRequest& request) {
  const TxId id{request.client, request.sequence};
  const bool own = id.client == session.client;
  group.finish();  // it may end this session
  PMSTORE_TRY(const Outcome outcome, store->outcome(id, own, executor.now_ns()));
  if (outcome == Outcome::kCommitted) return OutcomeReply{outcome};
  // "Aborted" is final, so it must not be the answer for a transaction that may still arrive. A
  // client asks about its own transaction only when that has ended, or in a later session, when the
  // transaction's session is fenced and resolved; and it never uses the number again.
  if (may_still_commit(id, own)) {
    return make_error(ErrorCode::kCommitUnknown, "the client of " + id.to_string() +
                                                     " is still connected; ask when it is not");
  }
  return OutcomeReply{outcome};
}

bool ServerCore::may_still_commit(TxId id, bool own) const {
  for (const Place& place : places) {
    if (place.resolving && place.resolving->client == id.client) return true;
    const bool at_work = place.session && place.session->client == id.client;
    if (at_work && !own && id.sequence >= place.session->first_sequence) return true;
  }
  return false;
}

Status ServerCore::open_table(fabric::RpcCall& call, std::span<const std::byte> body) {
  MessageReader reader(body);
  const auto request = reader.get<OpenTableRequest>();
  const std::string_view name = reader.get_bytes(request.name_bytes);
  if (!reader.complete() || request.kind > TableKind::kOrdered) {
    return make_error(ErrorCode::kProtocol);
  }
  OpenTableReply reply{};
  auto table = store->catalog().find(name);
  if (table && request.create == 2) {
    return make_error(ErrorCode::kAlreadyExists,
                      "there is a table '" + std::string(name) + "' in this pool");
  }
  if (!table) {
    if (request.create == 0) {
      return make_error(ErrorCode::kUnknownTable, "no table '" + std::string(name) +
                                                      "' in this pool: see pmstore table list");
    }
    PMSTORE_TRY(table, store->create_table(name, request.kind));
    reply.created = 1;
  }
  reply.table = raw(*table);
  call.reply(bytes_of(reply));
  return {};
}

void ServerCore::list_tables(fabric::RpcCall& call) {
  MessageWriter writer(call.reply_room());
  writer.put(static_cast<uint32_t>(store->catalog().tables().size()));
  for (const TableInfo& table : store->catalog().tables()) {
    writer.put(raw(table.id));
    writer.put(static_cast<uint8_t>(table.name.size()));
    writer.put_bytes(table.name);
  }
  if (writer.overflowed()) {
    return call.reply_error(make_error(ErrorCode::kTooLarge, "the tables do not fit in the reply"));
  }
  call.reply_filled(writer.bytes());
}

// The endpoint outlives the task: shut_down() destroys tasks first.
base::Task<void> ServerCore::serve_regions(std::shared_ptr<Session> session, fabric::RpcCall call,
                                           RegionsRequest request) {
  RegionTable& regions = *regions_at(*session->endpoint).growing;
  co_await regions.provide_from(request.kind, request.first);
  const auto bytes = regions.answer(request.kind, request.first, call.reply_room());
  bytes ? call.reply_filled(*bytes) : call.reply_error(bytes.error());
}

// ---- discipline rnic ----

base::Task<void> ServerCore::serve_rnic(std::shared_ptr<Session> session, fabric::RpcCall call) {
  const uint64_t begun = session->held_locks.request_begins();
  const Status served = co_await serve_rnic_body(*session, call);
  session->held_locks.request_ends(begun);
  if (!served) {
    if (served.code() == ErrorCode::kProtocol) {
      drop_malformed(*session, call);
    } else {
      call.reply_error(served.error());
    }
  }
  PMSTORE_CHECK(session->active > 0, "resolving waits until a session's handlers have ended");
  --session->active;
  look_for_failure();
  follow_frames();
}

base::Task<Status> ServerCore::serve_rnic_body(Session& session, fabric::RpcCall& call) {
  MessageReader reader(call.request().subspan(sizeof(RequestPrefix)));
  log::Ring& ring = store->rings().at(*session.ring);
  switch (static_cast<Method>(call.method())) {
    case Method::kReserve: {
      const auto request = reader.get<ReserveRequest>();
      const std::string key(reader.get_bytes(request.key_bytes));  // see serve_commit()
      if (!reader.complete() || key.size() > kMaxKeyBytes) {
        co_return make_error(ErrorCode::kProtocol);
      }
      const auto table = static_cast<TableId>(request.table);
      auto reserved =
          co_await store->reserve(*changer(), session.owner(), table, key, request.value_bytes,
                                  request.move != 0, {request.sequence, request.scanned != 0});
      if (!reserved) co_return reserved.error();
      call.reply(bytes_of(*reserved));
      co_return Status{};
    }
    case Method::kRelease: {
      // The whole request is checked before any slot is released.
      if (call.request().size() % sizeof(uint64_t) != 0) co_return make_error(ErrorCode::kProtocol);
      while (!reader.complete()) {
        const auto slot = static_cast<SlotOffset>(reader.get<uint64_t>());
        if (reader.failed()) co_return make_error(ErrorCode::kProtocol);
        const Status released = co_await store->release(*changer(), session.owner(), slot);
        if (!released) co_return released;
      }
      call.reply({});
      co_return Status{};
    }
    case Method::kApply: {
      const auto request = reader.get<ApplyRequest>();
      if (!reader.complete()) co_return make_error(ErrorCode::kProtocol);
      PMSTORE_CO_TRY(const auto entry, ring.entry_at(request.lsn));
      // A copy, because the client can write its ring meanwhile: what is checked is what is
      // applied.
      const std::vector<std::byte> redo(entry.payload.begin(), entry.payload.end());
      const Status applied = co_await store->apply(*changer(), session.owner(), redo);
      if (!applied) co_return applied;
      ++totals.applied;
      ++session.commits;
      call.reply({});
      co_return Status{};
    }
    case Method::kTruncate: {
      const auto request = reader.get<TruncateRequest>();
      if (!reader.complete()) co_return make_error(ErrorCode::kProtocol);
      if (request.tail_lsn > ring.position().tail_lsn) {
        PMSTORE_CO_TRY_STATUS(ring.note_tail(request.tail_lsn));
      }
      PMSTORE_CO_TRY_STATUS(store->truncate_through(ring, request.through_lsn));
      const TruncateReply reply{ring.position().start_lsn};
      call.reply(bytes_of(reply));
      co_return Status{};
    }
    default: co_return make_error(ErrorCode::kProtocol);
  }
}

}  // namespace pmstore::internal
