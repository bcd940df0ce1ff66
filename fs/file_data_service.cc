#include "fs/file_data_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/atomic_copy.h"
#include "base/check.h"
#include "fabric/message.h"
#include "fs/internal/data_session.h"
#include "persist/memory.h"
#include "persist/persist_ranges_message.h"

namespace pmstore::fs {

using internal::DataSession;

namespace {

Result<internal::AreaRegions::Section> regions_at(fabric::Device& device,
                                                  const LocalDataSpace::Reachable& section) {
  constexpr auto kRead = fabric::Access::kRemoteRead;
  internal::AreaRegions::Section made;
  PMSTORE_TRY(made.units,
              device.register_memory(section.units, kRead | fabric::Access::kRemoteWrite));
  PMSTORE_TRY(made.words, device.register_memory(section.words, kRead));
  return made;
}

Error malformed_write() {
  return make_error(ErrorCode::kProtocol, "a malformed write of file data");
}

struct DecodedWrite {
  std::span<const DataWritePiece> pieces() const { return {table.data(), count}; }
  std::array<DataWritePiece, kMaxDataPieces> table;
  size_t count = 0;
  const std::byte* data = nullptr;
};

// The table is copied before it is checked: the ring that it came in stays writable for the client.
Status decode(std::span<const std::byte> body, uint64_t area_bytes, DecodedWrite& out) {
  DataWriteRequest request;
  if (body.size() < sizeof request) return malformed_write();
  base::copy_from_shared(&request, body.data(), sizeof request);
  const auto rest = body.subspan(sizeof request);
  const size_t table_bytes = size_t{request.pieces} * sizeof(DataWritePiece);
  if (request.pieces == 0 || request.pieces > kMaxDataPieces || request.reserved != 0 ||
      rest.size() < table_bytes) {
    return malformed_write();
  }
  out.count = request.pieces;
  base::copy_from_shared(out.table.data(), rest.data(), table_bytes);
  out.data = rest.data() + table_bytes;
  uint64_t data_bytes = 0;
  bool inside = true;
  for (const DataWritePiece& piece : out.pieces()) {
    if (piece.bytes == 0 || piece.reserved != 0 || piece.extent % kUnitBytes != 0) {
      return malformed_write();
    }
    data_bytes += piece.bytes;
    inside &= piece.offset < area_bytes && piece.bytes <= area_bytes - piece.offset &&
              piece.extent <= piece.offset;
  }
  if (data_bytes != rest.size() - table_bytes) return malformed_write();
  if (inside) return {};
  return make_error(ErrorCode::kAccess, "a write of file data outside of its extent or the area");
}

constexpr size_t kMaxGroup = 1024;  // writes that wait for one drain

void acknowledge(persist::Persisted /*pieces*/, fabric::RpcCall& call) {
  if (call.method() == kDataPersistMethod) return call.reply({});
  call.reply(service::bytes_of(DataWriteReply{}));
}

}  // namespace

FileDataService::FileDataService(LocalDataSpace& space, size_t max_sessions)
    // The service bounds them itself: one that comes back has its place already.
    : Service({.id = service::ServiceId::kFileData, .name = "file data"}),
      space_(space),
      max_sessions_(max_sessions),
      groups_(space.area().memory().domain() == persist::Domain::kNone),
      wake_(space.executor()) {
  committing_ = commit_groups();
  committing_.start();
}

base::Task<Result<std::unique_ptr<service::EndpointPart>>> FileDataService::open(
    service::Endpoint& endpoint) {
  auto regions = std::make_unique<AreaRegions>();
  for (const LocalDataSpace::Reachable& section : space_.reachable()) {
    PMSTORE_CO_TRY(regions->sections[section.first_unit], regions_at(*endpoint.device, section));
  }
  co_return std::unique_ptr<service::EndpointPart>(std::move(regions));
}

// ---- sections of the area ----

Result<bool> FileDataService::register_one() {
  for (const LocalDataSpace::Reachable& section : space_.reachable()) {
    for (const auto& endpoint : host().endpoints()) {
      auto& regions = static_cast<AreaRegions&>(*endpoint->parts[slot()]);
      if (regions.sections.contains(section.first_unit)) continue;
      PMSTORE_TRY_STATUS(regions_of(*endpoint, section));
      return true;
    }
  }
  return false;
}

void FileDataService::withdraw(uint64_t first_unit) {
  for (const auto& endpoint : host().endpoints()) {
    static_cast<AreaRegions&>(*endpoint->parts[slot()]).sections.erase(first_unit);
  }
}

bool FileDataService::reaches(uint64_t first_unit) const {
  const auto& endpoints = host().endpoints();
  return std::any_of(endpoints.begin(), endpoints.end(), [&](const auto& endpoint) {
    return static_cast<const AreaRegions&>(*endpoint->parts[slot()]).sections.contains(first_unit);
  });
}

// An endpoint that was opened while a section was made may lack it.
Result<const internal::AreaRegions::Section*> FileDataService::regions_of(
    service::Endpoint& endpoint, const LocalDataSpace::Reachable& section) const {
  auto& regions = static_cast<AreaRegions&>(*endpoint.parts[slot()]);
  auto found = regions.sections.find(section.first_unit);
  if (found == regions.sections.end()) {
    PMSTORE_TRY(auto made, regions_at(*endpoint.device, section));
    found = regions.sections.emplace(section.first_unit, std::move(made)).first;
  }
  PMSTORE_CHECK(found->second.units->bytes().data() == section.units.data(),
                "regions go before their section does");
  return &found->second;
}

Status FileDataService::sections(service::Session& session, fabric::RpcCall& call,
                                 std::span<const std::byte> body) {
  if (!body.empty()) {
    return make_error(ErrorCode::kProtocol, "a malformed question about sections of a file area");
  }
  DataSections head;
  head.end = space_.end();
  std::vector<DataSection> all;
  for (const LocalDataSpace::Reachable& section : space_.reachable()) {
    if (section.first_unit == 0) continue;
    PMSTORE_TRY(const auto* const regions, regions_of(*session.endpoint, section));
    all.push_back({section.offset, regions->units->remote(), regions->words->remote()});
  }
  head.count = static_cast<uint32_t>(all.size());
  fabric::MessageWriter writer(call.reply_room());
  writer.put(head);
  for (const DataSection& each : all) writer.put(each);
  if (writer.overflowed()) {
    return make_error(ErrorCode::kTooLarge,
                      "the sections of the file area do not fit in the reply");
  }
  call.reply_filled(writer.bytes());
  return {};
}

// ---- sessions ----

std::shared_ptr<service::Session> FileDataService::make_session() const {
  return std::make_shared<DataSession>();
}

Result<std::vector<std::byte>> FileDataService::admit(service::Session& session,
                                                      std::span<const std::byte> body) {
  fabric::MessageReader reader(body);
  if (body.size() == sizeof(AreaOwnerHello)) {
    return admit_owner(session, reader.get<AreaOwnerHello>());
  }
  if (refusal_) return *refusal_;
  const auto hello = reader.get<FileDataHello>();
  if (!reader.complete() || hello.instance == 0) {
    return make_error(ErrorCode::kProtocol, "a malformed hello for file data");
  }
  if (hello.area != 0 && hello.area != space_.area().identity()) {
    return make_error(ErrorCode::kNotFound,
                      "another file area is served here: is this the file system's data server?");
  }
  service::Session* before = nullptr;
  if (const auto found = sessions_of_.find(session.client); found != sessions_of_.end()) {
    for (service::Session* const each : found->second) {
      if (static_cast<const DataSession*>(each)->instance == hello.instance) before = each;
    }
  }
  if (before == nullptr) {
    PMSTORE_TRY_STATUS(make_place());
  }
  const auto& regions = static_cast<const AreaRegions&>(*session.endpoint->parts[slot()]);
  const AreaRegions::Section& first = regions.sections.at(0);
  FileDataAnswer answer;
  answer.area = space_.area().identity();
  answer.units = first.units->remote();
  answer.words = first.words->remote();
  static_cast<DataSession&>(session).instance = hello.instance;
  sessions_of_[session.client].push_back(&session);
  // Behind that: the client is not gone in between.
  if (before != nullptr) host().end(*before, SessionEnd::kReplaced);
  return service::message_of(answer);
}

Status FileDataService::make_place() {
  if (sessions() < max_sessions_) return {};
  // A client whose handshake has not ended keeps no other client out.
  if (service::Session* const leaves = host().oldest_hello(*this)) {
    host().end(*leaves, SessionEnd::kReplaced);
    return {};
  }
  return make_error(ErrorCode::kBackPressure,
                    fmt::format("all {} places for file data sessions are taken; try again later",
                                max_sessions_));
}

void FileDataService::on_ended(service::Session& session, std::optional<SessionEnd>) {
  if (static_cast<const DataSession&>(session).is_owner) {
    if (owner_ == &session) owner_ = nullptr;
    return;
  }
  const auto found = sessions_of_.find(session.client);
  PMSTORE_CHECK(found != sessions_of_.end() && std::erase(found->second, &session) == 1,
                "only a session that was admitted ends, once");
  if (!found->second.empty()) return;
  sessions_of_.erase(found);
  if (on_client_gone) on_client_gone(session.client);
}

void FileDataService::refuse(const Error& why) {
  refusal_ = why;
  end_all_clients();
}

std::vector<ClientId> FileDataService::clients() const {
  std::vector<ClientId> all;
  all.reserve(sessions_of_.size());
  for (const auto& [client, sessions] : sessions_of_) all.push_back(client);
  return all;
}

size_t FileDataService::end_sessions(const ClientId& client, SessionEnd why) {
  const ClientId whose = client;  // may lie in what goes
  size_t ended = 0;
  for (auto found = sessions_of_.find(whose); found != sessions_of_.end();
       found = sessions_of_.find(whose)) {
    host().end(*found->second.back(), why);
    ++ended;
  }
  return ended;
}

// ---- requests ----

void FileDataService::on_call(service::Session& session, fabric::RpcCall call,
                              std::span<const std::byte> body) {
  const bool is_owner = static_cast<const DataSession&>(session).is_owner;
  Status written;
  if (is_owner) {
    written = on_owner_call(session, call, body);
  } else {
    switch (call.method()) {
      case kDataWriteMethod: written = write(call, body); break;
      case kDataPersistMethod: written = persist(call, body); break;
      case kDataSectionsMethod: written = sections(session, call, body); break;
      default: return host().drop_malformed(session, call);
    }
  }
  if (written) return;
  if (written.code() == ErrorCode::kProtocol) return host().drop_malformed(session, call);
  if (written.code() == ErrorCode::kIo) host().tell_failure(written.error());
  call.reply_error(written.error());
}

Status FileDataService::write(fabric::RpcCall& call, std::span<const std::byte> body) {
  DecodedWrite decoded;
  PMSTORE_TRY_STATUS(decode(body, space_.end(), decoded));
  // Words change on this thread only: what is right here stays right until the bytes are stored. A
  // map that names a section of before is out of date, too.
  for (const DataWritePiece& piece : decoded.pieces()) {
    const uint64_t reached = piece.offset + piece.bytes - piece.extent;
    const bool is_there = space_.bytes_at(piece.extent, reached) != nullptr;
    if (is_there && space_.word_at(piece.extent) == piece.generation) continue;
    ++stale_writes_;
    call.reply(service::bytes_of(DataWriteReply{.stale = 1}));
    return {};
  }
  persist::Memory& memory = space_.area().memory();
  const std::byte* data = decoded.data;
  for (const DataWritePiece& piece : decoded.pieces()) {
    std::byte* const to = space_.bytes_at(piece.offset, piece.bytes);
    memory.write_non_temporal(to, data, piece.bytes);  // rule H7
    data += piece.bytes;
  }
  return drain_for(call);
}

Status FileDataService::persist(fabric::RpcCall& call, std::span<const std::byte> body) {
  persist::PersistRanges decoded;
  PMSTORE_TRY_STATUS(persist::decode_persist_ranges(body, space_.end(), decoded));
  for (const persist::RemoteRange& range : decoded.ranges()) {
    // What was written to a section that is gone is no file's any more.
    const std::byte* const first = space_.bytes_at(range.offset, range.bytes);
    if (first != nullptr) space_.area().memory().flush(first, range.bytes);
  }
  return drain_for(call);
}

Status FileDataService::drain_for(fabric::RpcCall& call) {
  if (groups_) {
    stored_.push_back(std::move(call));
    if (stored_.size() < kMaxGroup) {
      wake_.notify_one();
    } else {
      commit();
    }
    return {};
  }
  PMSTORE_TRY(const persist::Persisted durable, space_.area().memory().drain());
  acknowledge(durable, call);
  return {};
}

base::Task<void> FileDataService::commit_groups() {
  while (true) {
    if (stored_.empty()) co_await wake_.wait();
    commit();
  }
}

void FileDataService::commit() {
  if (stored_.empty()) return;
  std::vector<fabric::RpcCall> group;
  group.swap(stored_);  // an answer may end a session, which commits the group: the next one
  PMSTORE_CHECK(group.size() <= kMaxGroup, "the group is bounded");
  const auto durable = space_.area().memory().drain();
  for (fabric::RpcCall& call : group) {
    if (durable) {
      acknowledge(*durable, call);
    } else {
      call.reply_error(durable.error());
    }
  }
  if (!durable) host().tell_failure(durable.error());
}

}  // namespace pmstore::fs
