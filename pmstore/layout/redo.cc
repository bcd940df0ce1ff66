#include "pmstore/layout/redo.h"

#include "base/check.h"

namespace pmstore {

RedoBuilder::RedoBuilder(std::span<std::byte> room, uint64_t client, uint64_t pool)
    : room_(room), used_(redo_header_bytes(1)) {
  PMSTORE_CHECK(room.size() >= used_, "the caller reserves room for the redo header");
  const RedoHeader header{client, 1, 0};
  std::memcpy(room.data(), &header, sizeof(header));
  std::memcpy(room.data() + sizeof(header), &pool, sizeof(pool));
}

std::span<const std::byte> RedoBuilder::add(SlotOffset slot, TableId table, uint64_t version,
                                            RecordState state, std::string_view key,
                                            std::string_view value) {
  const size_t image_bytes = record_bytes(key.size(), value.size());
  const size_t total = redo_write_bytes(image_bytes);
  PMSTORE_CHECK(total <= room_.size() - used_, "the caller reserves room for every write");
  const RedoWrite write{raw(slot), static_cast<uint32_t>(image_bytes), 0};
  std::memcpy(room_.data() + used_, &write, sizeof(write));
  auto image = room_.subspan(used_ + sizeof(write), total - sizeof(write));
  build_record(image, slot, table, version, state, key, value);
  std::memset(image.data() + image_bytes, 0, image.size() - image_bytes);
  used_ += total;
  ++writes_;
  return image.first(image_bytes);
}

std::span<const std::byte> RedoBuilder::finish() {
  std::memcpy(room_.data() + offsetof(RedoHeader, writes), &writes_, sizeof(writes_));
  return room_.first(used_);
}

std::optional<RedoReader> RedoReader::open(std::span<const std::byte> payload, uint64_t pool) {
  RedoReader reader;
  uint64_t participant;
  if (payload.size() < redo_header_bytes(1)) return std::nullopt;
  std::memcpy(&reader.header_, payload.data(), sizeof(RedoHeader));
  std::memcpy(&participant, payload.data() + sizeof(RedoHeader), sizeof(participant));
  if (reader.header_.participants != 1 || participant != pool) return std::nullopt;
  reader.rest_ = payload.subspan(redo_header_bytes(1));
  reader.left_ = reader.header_.writes;
  return reader;
}

std::optional<RedoReader::Write> RedoReader::next() {
  if (left_ == 0) {
    malformed_ |= !rest_.empty();
    return std::nullopt;
  }
  RedoWrite write;
  malformed_ = true;
  if (rest_.size() < sizeof(write)) return std::nullopt;
  std::memcpy(&write, rest_.data(), sizeof(write));
  const size_t total = redo_write_bytes(write.image_bytes);
  if (write.zero != 0 || total > rest_.size()) return std::nullopt;
  const auto slot = static_cast<SlotOffset>(write.slot);
  const auto image = rest_.subspan(sizeof(write), write.image_bytes);
  const auto record = check_record(image, slot);
  if (!record || record->bytes() != write.image_bytes) return std::nullopt;
  rest_ = rest_.subspan(total);
  --left_;
  malformed_ = false;
  return Write{slot, image, *record};
}

bool is_whole_redo(std::span<const std::byte> payload, uint64_t pool) {
  auto redo = RedoReader::open(payload, pool);
  if (!redo) return false;
  while (redo->next()) {
  }
  return !redo->malformed();
}

}  // namespace pmstore
