#include "pmstore/layout/shard_record.h"

#include <cstring>
#include <string>

#include "base/check.h"

namespace pmstore {

namespace {

Error later_release(const std::string& what) {
  return make_error(ErrorCode::kVersionMismatch,
                    what + ", which this release does not know; use the release that wrote it");
}

Error malformed_record() { return make_error(ErrorCode::kBadPool, "a malformed record"); }

// What only a later release writes.
Status check_known(const ShardRecordHeader& header) {
  if (header.features != 0) {
    return later_release("a record with feature bits " + std::to_string(header.features));
  }
  if (header.kind < ShardRecordKind::kRedo || header.kind > ShardRecordKind::kMark) {
    return later_release("a record of kind " + std::to_string(static_cast<int>(header.kind)));
  }
  if (header.replicas != 0) return later_release("a transaction with replicas");
  if (header.partition != 0 || header.home_partition != 0) {
    return later_release("a transaction of another partition than the first");
  }
  return {};
}

template <typename T>
bool take(std::span<const std::byte>& from, T& value) {
  if (from.size() < sizeof(T)) return false;
  std::memcpy(&value, from.data(), sizeof(T));
  from = from.subspan(sizeof(T));
  return true;
}

template <typename T>
void put(std::vector<std::byte>& to, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace

// ---- writing ----

ShardRedoBuilder::ShardRedoBuilder(std::span<std::byte> room, ClientId client, uint64_t epoch,
                                   std::span<const ShardParticipant> participants)
    : room_(room), used_(shard_header_bytes(participants.size())) {
  PMSTORE_CHECK(room.size() >= used_, "the caller reserves room for the header");
  PMSTORE_CHECK(participants.size() <= kMostParticipants, "the caller bounds the participants");
  ShardRecordHeader header{};
  header.kind = ShardRecordKind::kRedo;
  header.participants = static_cast<uint16_t>(participants.size());
  header.client = client;
  header.epoch = epoch;
  std::memcpy(room.data(), &header, sizeof header);
  if (participants.empty()) return;
  std::memcpy(room.data() + sizeof header, participants.data(), participants.size_bytes());
}

std::span<const std::byte> ShardRedoBuilder::add(SlotOffset slot, TableId table, uint64_t version,
                                                 RecordState state, std::string_view key,
                                                 std::string_view value) {
  const size_t image_bytes = record_bytes(key.size(), value.size());
  const size_t total = shard_write_bytes(image_bytes);
  PMSTORE_CHECK(total <= room_.size() - used_, "the caller reserves room for every write");
  ShardWrite write{};
  write.offset = raw(slot);
  write.image_bytes = static_cast<uint32_t>(image_bytes);
  std::memcpy(room_.data() + used_, &write, sizeof write);
  const auto image = room_.subspan(used_ + sizeof write, total - sizeof write);
  build_record(image, slot, table, version, state, key, value);
  std::memset(image.data() + image_bytes, 0, image.size() - image_bytes);
  used_ += total;
  ++writes_;
  return image.first(image_bytes);
}

std::span<const std::byte> ShardRedoBuilder::finish() {
  std::memcpy(room_.data() + offsetof(ShardRecordHeader, writes), &writes_, sizeof writes_);
  return room_.first(used_);
}

size_t mark_bytes(const CoordinatorMark& mark) {
  size_t bytes = sizeof(ShardRecordHeader) + sizeof(MarkHeader);
  for (const CoordinatorMark::Session& each : mark.sessions) {
    bytes += sizeof(MarkedSession) + each.committed.size() * sizeof(uint64_t);
  }
  return bytes;
}

std::vector<std::byte> encode_mark(const CoordinatorMark& mark, uint64_t epoch) {
  std::vector<std::byte> bytes;
  bytes.reserve(mark_bytes(mark));
  ShardRecordHeader header{};
  header.kind = ShardRecordKind::kMark;
  header.epoch = epoch;
  header.writes = static_cast<uint32_t>(mark.sessions.size());
  put(bytes, header);
  put(bytes, MarkHeader{mark.through_lsn, mark.floor});
  for (const CoordinatorMark::Session& each : mark.sessions) {
    put(bytes, MarkedSession{each.client, each.known_from, each.highest,
                             static_cast<uint32_t>(each.committed.size()), 0});
    for (const uint64_t number : each.committed) put(bytes, number);
  }
  PMSTORE_CHECK(bytes.size() == mark_bytes(mark), "the size was computed from the same clients");
  return bytes;
}

std::vector<std::byte> encode_decision(ShardRecordKind kind, ClientId client, uint64_t epoch,
                                       std::span<const ShardParticipant> participants,
                                       ShardDecision decision) {
  PMSTORE_CHECK(kind == ShardRecordKind::kCommit || kind == ShardRecordKind::kAbort,
                "a transaction is committed or aborted");
  std::vector<std::byte> bytes;
  bytes.reserve(decision_bytes(participants.size()));
  ShardRecordHeader header{};
  header.kind = kind;
  header.participants = static_cast<uint16_t>(participants.size());
  header.client = client;
  header.epoch = epoch;
  put(bytes, header);
  for (const ShardParticipant& each : participants) put(bytes, each);
  put(bytes, decision);
  PMSTORE_CHECK(bytes.size() == decision_bytes(participants.size()), "its size is known before");
  return bytes;
}

// ---- reading ----

Result<ShardRecordReader> ShardRecordReader::open(std::span<const std::byte> payload,
                                                  uint64_t last_epoch) {
  ShardRecordReader reader;
  if (!take(payload, reader.header_)) return malformed_record();
  const ShardRecordHeader& header = reader.header_;
  PMSTORE_TRY_STATUS(check_known(header));
  if (header.zero != 0 || header.zero_end != 0 || header.epoch > last_epoch) {
    return malformed_record();
  }
  const size_t list_bytes = header.participants * sizeof(ShardParticipant);
  const bool may_list = header.kind == ShardRecordKind::kRedo ||  //
                        header.kind == ShardRecordKind::kCommit;
  if (header.participants > (may_list ? kMostParticipants : 0) || list_bytes > payload.size()) {
    return malformed_record();
  }
  reader.participants_ = payload.first(list_bytes);
  for (const ShardParticipant& each : reader.participants()) {
    if (each.partition != 0 || each.shard != 0) {
      return later_release("a transaction of another partition than the first");
    }
    if (each.zero != 0) return malformed_record();
  }
  reader.rest_ = payload.subspan(list_bytes);
  reader.left_ = header.writes;
  return reader;
}

Result<ShardRecordReader> ShardRecordReader::open_whole(std::span<const std::byte> payload,
                                                        uint64_t last_epoch) {
  PMSTORE_TRY(const ShardRecordReader reader, open(payload, last_epoch));
  if (reader.kind() == ShardRecordKind::kMark) {
    PMSTORE_TRY_STATUS(reader.mark());
    return reader;
  }
  if (reader.kind() != ShardRecordKind::kRedo) {
    PMSTORE_TRY_STATUS(reader.decision());
    return reader;
  }
  ShardRecordReader walked = reader;
  while (walked.next()) {
  }
  if (walked.malformed()) return malformed_record();
  return reader;
}

std::optional<LoggedWrite> ShardRecordReader::next() {
  PMSTORE_CHECK(kind() == ShardRecordKind::kRedo, "only redo records have writes");
  if (left_ == 0) {
    malformed_ |= !rest_.empty();
    return std::nullopt;
  }
  malformed_ = true;
  ShardWrite write;
  std::span<const std::byte> rest = rest_;
  if (!take(rest, write)) return std::nullopt;
  const size_t image_room = shard_write_bytes(write.image_bytes) - sizeof write;
  if (write.partition != 0 || write.extent != 0 || write.zero != 0 || image_room > rest.size()) {
    return std::nullopt;
  }
  const auto slot = static_cast<SlotOffset>(write.offset);
  const auto image = rest.first(write.image_bytes);
  const auto record = check_record(image, slot);
  if (!record || record->bytes() != write.image_bytes) return std::nullopt;
  rest_ = rest.subspan(image_room);
  --left_;
  malformed_ = false;
  return LoggedWrite{slot, image, *record};
}

Result<CoordinatorMark> ShardRecordReader::mark() const {
  PMSTORE_CHECK(kind() == ShardRecordKind::kMark, "only marks list clients");
  CoordinatorMark mark;
  MarkHeader header;
  std::span<const std::byte> rest = rest_;
  if (!take(rest, header)) return malformed_record();
  mark.through_lsn = header.through_lsn;
  mark.floor = header.floor;
  for (uint32_t i = 0; i < header_.writes; ++i) {
    MarkedSession marked;
    if (!take(rest, marked)) return malformed_record();
    if (marked.zero != 0 || rest.size() / sizeof(uint64_t) < marked.committed) {
      return malformed_record();
    }
    CoordinatorMark::Session session{marked.client, marked.known_from, marked.highest, {}};
    session.committed.resize(marked.committed);
    for (uint64_t& number : session.committed) take(rest, number);
    mark.sessions.push_back(std::move(session));
  }
  if (!rest.empty()) return malformed_record();
  return mark;
}

Result<ShardDecision> ShardRecordReader::decision() const {
  PMSTORE_CHECK(kind() == ShardRecordKind::kCommit || kind() == ShardRecordKind::kAbort,
                "only commit and abort records decide");
  ShardDecision decision;
  std::span<const std::byte> rest = rest_;
  const bool named = kind() == ShardRecordKind::kAbort || is_shared();
  if (!take(rest, decision) || !rest.empty() || header_.writes != 0 || !named) {
    return malformed_record();
  }
  return decision;
}

std::vector<ShardParticipant> ShardRecordReader::participants() const {
  std::vector<ShardParticipant> participants(header_.participants);
  if (!participants.empty()) {
    std::memcpy(participants.data(), participants_.data(), participants_.size());
  }
  return participants;
}

std::optional<ShardRecordReader> open_whole_redo(std::span<const std::byte> payload,
                                                 uint64_t last_epoch) {
  auto record = ShardRecordReader::open_whole(payload, last_epoch);
  if (!record || record->kind() != ShardRecordKind::kRedo || record->is_shared()) {
    return std::nullopt;
  }
  return std::move(*record);
}

}  // namespace pmstore
