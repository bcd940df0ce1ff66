// LogDirectory: the logs of a pool's log area and their regions (log/log_layout.h).
//
// A change is written to both copies of its slot (persist::TwoCopies), the first durable before the
// second is overwritten: a crash leaves the old state or the new one, and damage to one copy loses
// nothing.
// Threads: one. The pool outlives the directory. What is durable: every change, on return of the
// function that makes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "log/log_layout.h"
#include "persist/pool.h"
#include "persist/two_copies.h"

namespace pmstore::log::internal {

class LogDirectory {
 public:
  // In a new extent of `bytes`. `identity`: 0 for a random one.
  static Status format(persist::Pool& pool, uint64_t bytes, uint64_t identity);
  // Reads and checks; changes nothing. NotFound without a log area; VersionMismatch; BadPool when
  // neither copy of the area's header is valid, or when two live logs have the same id.
  static Result<LogDirectory> load(persist::Pool& pool);
  // Makes durable what load() has found, repairs copies that differ, and raises the epoch. Called
  // once, before the first write() (CHECK).
  Status begin_epoch();

  struct Place {
    LogSlot slot{};        // generation 0: never used
    bool damaged = false;  // neither copy is valid: its log is lost, and it is never used again
    bool repair = false;   // the copies differ
    bool live() const { return !damaged && slot.generation > 0 && slot.state == LogState::kLive; }
  };
  // Through the last one that was ever used.
  const std::vector<Place>& places() const { return places_; }
  // So many places there are; of logs at the same time.
  size_t most_places() const { return header_.slots; }
  // Both copies, each with the next generation. `region` proves that what the slot says of its
  // region is durable.
  // `place`: one of places(), or the next one.
  Status write(persist::Persisted region, size_t place, LogSlot slot);

  // For write(): all slots, as they are, are durable. Requires begin_epoch() (CHECK).
  persist::Persisted durable() const;

  uint64_t area() const { return header_.area; }
  uint64_t epoch() const { return header_.generation; }
  // 0: the highest id is taken, which only a forged slot or header can bring about.
  uint64_t next_id() const;
  uint32_t salt(uint64_t id) const;
  size_t damaged_places() const;
  // By place: does a later log have a part of this log's region? Then this log was deleted, and
  // damage to the newer copy of its slot has brought it back.
  std::vector<bool> overlapped() const;

  // Full.
  Result<size_t> free_place() const;
  // The offset in the extent of the smallest gap that holds `bytes`. Full; the message names the
  // largest size that fits.
  Result<uint64_t> free_region(uint64_t bytes) const;
  uint64_t largest_free_region() const;

  // Of the extent in the pool's memory.
  uint64_t offset() const { return extent_.offset; }
  uint64_t bytes() const { return extent_.bytes; }

 private:
  LogDirectory(persist::Pool& pool, const persist::Extent& extent)
      : memory_(&pool.memory()), extent_(extent) {}
  struct Gap {
    uint64_t offset;
    uint64_t bytes;
  };
  std::vector<Gap> gaps() const;
  void read_places(const persist::Pool& pool);
  Place read_place(size_t place) const;
  Status check_ids() const;
  bool is_valid(const LogSlot& slot) const;
  bool content_is_valid(const LogSlot& slot) const;
  uint32_t slot_crc(const LogSlot& slot) const;
  persist::TwoCopies<LogAreaHeader> header_copies() const;
  persist::TwoCopies<LogSlot> slot_copies(size_t place) const;
  void check_region(size_t place, const LogSlot& slot) const;
  Status repair(persist::Persisted found, size_t place);

  persist::Memory* memory_;
  persist::Extent extent_;
  LogAreaHeader header_{};
  std::optional<persist::Persisted> durable_;  // since begin_epoch()
  std::vector<Place> places_;
  uint64_t read_end_ =
      0;  // in the extent: load() has read nothing from here on but zeroes of holes
};

}  // namespace pmstore::log::internal
