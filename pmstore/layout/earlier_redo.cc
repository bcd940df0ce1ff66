#include "pmstore/layout/earlier_redo.h"

#include <cstring>

namespace pmstore {

std::optional<EarlierRedoReader> EarlierRedoReader::open_whole(std::span<const std::byte> payload,
                                                               uint64_t pool) {
  EarlierRedoHeader header;
  uint64_t participant;
  if (payload.size() < kEarlierRedoHeaderBytes) return std::nullopt;
  std::memcpy(&header, payload.data(), sizeof(header));
  std::memcpy(&participant, payload.data() + sizeof(header), sizeof(participant));
  if (header.participants != 1 || participant != pool) return std::nullopt;
  EarlierRedoReader reader;
  reader.rest_ = payload.subspan(kEarlierRedoHeaderBytes);
  reader.left_ = header.writes;
  EarlierRedoReader walked = reader;
  while (walked.next()) {
  }
  if (walked.malformed()) return std::nullopt;
  return reader;
}

std::optional<LoggedWrite> EarlierRedoReader::next() {
  if (left_ == 0) {
    malformed_ |= !rest_.empty();
    return std::nullopt;
  }
  EarlierRedoWrite write;
  malformed_ = true;
  if (rest_.size() < sizeof(write)) return std::nullopt;
  std::memcpy(&write, rest_.data(), sizeof(write));
  const size_t total = earlier_redo_write_bytes(write.image_bytes);
  if (write.zero != 0 || total > rest_.size()) return std::nullopt;
  const auto slot = static_cast<SlotOffset>(write.slot);
  const auto image = rest_.subspan(sizeof(write), write.image_bytes);
  const auto record = check_record(image, slot);
  if (!record || record->bytes() != write.image_bytes) return std::nullopt;
  rest_ = rest_.subspan(total);
  --left_;
  malformed_ = false;
  return LoggedWrite{slot, image, *record};
}

}  // namespace pmstore
