// LogDirectory: the logs of a pool, their regions, and the extents that these lie in
// (log/log_layout.h).
//
// A change is written to both copies of its slot (persist::TwoCopies), the first durable before the
// second is overwritten: a crash leaves the old state or the new one, and damage to one copy loses
// nothing.
// Threads: one. The pool outlives the directory. What is durable: every change, on return of the
// function that makes it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
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
  // Of a pool without a log area: there is no log, and make_area() makes the area of this identity.
  static LogDirectory none(persist::Pool& pool, uint64_t identity);
  bool exists() const { return extent_.bytes != 0; }
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
  // region is durable, and so is the extent that it lies in.
  // `place`: one of places(), or the next one.
  Status write(persist::Persisted region, size_t place, LogSlot slot);

  // For write(): all slots, as they are, are durable. Requires begin_epoch() (CHECK).
  persist::Persisted durable() const;

  uint64_t area() const { return header_.area; }
  // It stays as begin_epoch() has set it.
  uint64_t epoch() const { return epoch_; }
  // 0: the highest id is taken, which only a forged slot or header can bring about.
  uint64_t next_id() const;
  uint32_t salt(uint64_t id) const;
  size_t damaged_places() const;
  // By place: is its region gone, or does a later log have a part of it? Then this log was deleted,
  // and damage to the newer copy of its slot has brought it back.
  std::vector<bool> overlapped() const;

  // ---- room: log_directory_room.cc ----

  // Full.
  Result<size_t> free_place() const;
  struct Region {
    uint64_t extent = 0;  // LogSlot::extent
    uint64_t offset = 0;
    bool zeroed = false;  // durably: it lies in a room that is new
    bool operator==(const Region&) const = default;
  };
  // The smallest gap that holds `bytes`, in any extent.
  std::optional<Region> free_region(uint64_t bytes) const;
  uint64_t largest_free_region() const;

  // The area, if it exists, then the rooms.
  std::vector<LogExtent> extents() const;
  std::optional<LogExtent> find_extent(uint64_t name) const;
  // Has a live slot a region in it?
  bool is_used(uint64_t extent) const;
  // Has the pool the region that the slot names?
  bool has_region(const LogSlot& slot) const;
  // Its offset in the pool's memory. Requires has_region() (CHECK).
  uint64_t region_offset(const LogSlot& slot) const;

  // Makes the area, where none exists (CHECK); whole or not at all, durably. Full; Io.
  Status make_area();
  // Gives back the area that make_area() has made, before the first write() (CHECK); durably. Where
  // extents do not come back it stays. Io.
  Status drop_area();
  // Takes a room that holds a region of `bytes`, durably. Full: the pool has not so much; Io.
  Result<Region> take_room(uint64_t bytes);
  // persist::Pool::zero_ahead() of make_area(), and of take_room().
  Result<bool> zero_area_ahead(uint64_t most_bytes);
  Result<bool> zero_room_ahead(uint64_t bytes, uint64_t most_bytes);
  // A room that is not used (CHECK) is the pool's again, durably. Io. Requires begin_epoch()
  // (CHECK), so that no slot that names it comes back.
  Status give_back(uint64_t room);
  // So many free bytes of the pool are for rings, and not for logs.
  void keep_free(std::function<uint64_t()> kept) { kept_ = std::move(kept); }
  // All extents of logs have no more than so much together.
  void limit_to(uint64_t bytes) { most_bytes_ = bytes; }
  bool rooms_come_back() const { return pool_->info().extents_come_back; }

  // Of the area's extent in the pool's memory.
  uint64_t offset() const { return extent_.offset; }
  uint64_t bytes() const { return extent_.bytes; }

 private:
  LogDirectory(persist::Pool& pool, const persist::Extent& extent)
      : pool_(&pool), memory_(&pool.memory()), extent_(extent) {}
  struct Gap {
    uint64_t extent;
    uint64_t offset;
    uint64_t bytes;
  };
  // Of all live logs, by extent and offset.
  std::vector<Gap> regions() const;
  // One pass over the places: it is asked for before each part of a log that is zeroed ahead.
  std::vector<Gap> gaps() const;
  uint64_t new_area_bytes() const;
  // Of the room that take_room() would take; nullopt: that is Full.
  std::optional<uint64_t> new_room_bytes(uint64_t bytes) const;
  uint64_t extent_bytes() const;
  uint64_t free_in_pool() const;
  uint64_t free_for_logs() const;
  // `taken`: its regions, in order.
  void add_gaps(const LogExtent& extent, std::span<const Gap> taken, std::vector<Gap>& free) const;
  const persist::Extent* find_room(uint64_t name) const;
  Error no_room(uint64_t bytes) const;
  static LogAreaHeader header_of(uint64_t slots, uint64_t identity, uint64_t bytes);
  Result<persist::Persisted> write_first_headers();
  Status find_header();
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

  persist::Pool* pool_;
  persist::Memory* memory_;
  persist::Extent extent_;  // the area's
  std::function<uint64_t()> kept_;
  uint64_t most_bytes_ = UINT64_MAX;  // of all extents of logs
  LogAreaHeader header_{};
  std::optional<persist::Persisted> durable_;  // since begin_epoch()
  std::vector<Place> places_;
  uint64_t epoch_ = 0;
  uint64_t read_end_ =
      0;  // in the extent: load() has read nothing from here on but zeroes of holes
};

}  // namespace pmstore::log::internal
