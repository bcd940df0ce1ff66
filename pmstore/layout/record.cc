#include "pmstore/layout/record.h"

#include <cstring>

#include "base/check.h"
#include "base/checksum.h"
#include "base/checksum_copy.h"

namespace pmstore {
namespace {

constexpr size_t kSummedFrom = offsetof(RecordHeader, version);
// Larger records are seldom in the caches.
constexpr size_t kFarBytes = 8192;

uint64_t record_checksum(std::span<const std::byte> record, SlotOffset slot) {
  return base::checksum64(record.subspan(kSummedFrom), raw(slot));
}

// The record that the header describes, if there can be such a one; its checksum is not checked.
std::optional<RecordView> described_record(std::span<const std::byte> image) {
  if (image.size() < sizeof(RecordHeader)) return std::nullopt;
  const auto* header = reinterpret_cast<const RecordHeader*>(image.data());
  const bool live = header->state == RecordState::kLive;
  const bool tombstone = header->state == RecordState::kTombstone;
  if (!live && !tombstone) return std::nullopt;
  const uint16_t key_bytes = header->key_bytes();
  if (key_bytes == 0 || key_bytes > kMaxKeyBytes) return std::nullopt;
  if (header->value_bytes > kMaxValueBytes) return std::nullopt;
  if (tombstone && header->value_bytes != 0) return std::nullopt;
  static constexpr uint8_t kNoBytes[sizeof(header->reserved)] = {};
  if (std::memcmp(header->reserved, kNoBytes, sizeof(kNoBytes)) != 0) return std::nullopt;
  if (header->version > kMaxRecordVersion) return std::nullopt;
  if (record_bytes(key_bytes, header->value_bytes) > image.size()) return std::nullopt;
  const auto* body = reinterpret_cast<const char*>(image.data() + sizeof(RecordHeader));
  return RecordView{header, std::string_view(body, key_bytes),
                    std::string_view(body + key_bytes, header->value_bytes)};
}

}  // namespace

size_t build_record(std::span<std::byte> image, SlotOffset slot, TableId table, uint64_t version,
                    RecordState state, std::string_view key, std::string_view value) {
  const size_t bytes = record_bytes(key.size(), value.size());
  PMSTORE_CHECK(key.size() - 1 < kMaxKeyBytes && value.size() <= kMaxValueBytes,
                "keys and values are checked where they enter");
  PMSTORE_CHECK(bytes <= image.size(), "the slot's class was chosen for this record");
  RecordHeader header{};
  header.version = version;
  header.value_bytes = static_cast<uint32_t>(value.size());
  header.table = raw(table);
  header.set_key_bytes(static_cast<uint16_t>(key.size()));
  header.state = state;
  std::byte* body = image.data() + sizeof(header);
  std::memcpy(image.data(), &header, sizeof(header));
  std::memcpy(body, key.data(), key.size());
  if (!value.empty()) std::memcpy(body + key.size(), value.data(), value.size());
  header.checksum = record_checksum(image.first(bytes), slot);
  std::memcpy(image.data(), &header.checksum, sizeof(header.checksum));
  return bytes;
}

std::optional<RecordView> check_record(std::span<const std::byte> image, SlotOffset slot) {
  const auto record = described_record(image);
  if (!record) return std::nullopt;
  const auto summed = image.first(record->bytes()).subspan(kSummedFrom);
  const uint64_t sum = summed.size() < kFarBytes ? base::checksum64(summed, raw(slot))
                                                 : base::checksum64_of_far(summed, raw(slot));
  return record->header->checksum == sum ? record : std::nullopt;
}

std::optional<RecordView> check_and_copy_record(std::span<const std::byte> image, SlotOffset slot,
                                                std::span<std::byte> value) {
  const auto record = described_record(image);
  if (!record || record->value.size() > value.size()) return check_record(image, slot);
  const uint64_t bytes = record->bytes();
  const uint64_t copied_sum =
      base::checksum64_and_copy(image.first(bytes).subspan(kSummedFrom), raw(slot),
                                bytes - record->value.size() - kSummedFrom, value.data());
  return record->header->checksum == copied_sum ? record : std::nullopt;
}

bool never_written(std::span<const std::byte> image) {
  RecordHeader header;
  if (image.size() < sizeof(header)) return false;
  static constexpr RecordHeader kZero{};
  std::memcpy(&header, image.data(), sizeof(header));
  return std::memcmp(&header, &kZero, sizeof(header)) == 0;
}

}  // namespace pmstore
