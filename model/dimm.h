// Dimm: one Optane DIMM. The controller asks for 64 bytes at a time; the media moves XPLines of 256
// bytes; a buffer of a few XPLines in between merges what is written to neighbouring lines, and
// keeps what was read.
//
// Modelled: the buffer (least recently used XPLine goes first; written ones to the media, read ones
// away), one media server for reads and writes with a time of its own for each and for turning from
// one to the other, a bounded queue of XPLines on their way to the media, and the loss under many
// CPU writers. A write of part of an XPLine costs the media what a whole one costs: the published
// limit of 52 M/s holds for both. The CPU writers are the cores behind the last 64 lines, and those
// that have streamed or flushed what the DIMM has not taken yet: the model learns of a store of
// many lines in one call, although the store takes long. Left out: wear levelling and its pauses,
// the table of addresses and its cache (256 B to 16 KiB effects), temperature, and that the buffer
// is written back in idle times. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "model/dimm_counters.h"
#include "model/parameters.h"
#include "model/queue.h"

namespace pmstore::model {

class Dimm {
 public:
  explicit Dimm(const DimmParameters& parameters, const Now* now = nullptr);

  // The origin of a request: a core of the host (core + 1), or a device.
  using Writer = uint8_t;
  static constexpr Writer kDevice = 0;

  // Writes 64 bytes at `address` (a model address). Gives the time at which the DIMM has taken
  // them. `evicted`: a cache evicts a line that `writer` wrote; that core does not wait.
  uint64_t write(uint64_t at_ps, uint64_t address, Writer writer, bool evicted = false);
  // The time at which the DIMM gives the data.
  uint64_t read(uint64_t at_ps, uint64_t address, Writer reader);
  // Counts a write, which takes no time and has no writer.
  void write_untimed(uint64_t address);
  // Writes the whole buffer to the media, without time.
  void settle();

  const DimmCounters& counters() const { return counters_; }
  // The counters if the buffer were written to the media now.
  DimmCounters settled_counters() const;

 private:
  static constexpr uint64_t kXpLineShift = 8;
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr size_t kRecentWrites = 64;

  struct Entry {
    uint64_t xpline;
    uint32_t newer, older;  // by last use
    uint32_t chained;       // next in the same bucket
    bool written;
  };
  enum class Direction : uint8_t { kRead, kWrite };

  uint32_t find(uint64_t xpline) const;
  uint32_t add(uint64_t xpline);  // after make_room()
  bool absorb(uint64_t xpline);   // a write; did a written XPLine have to go for it?
  bool make_room();               // takes out the oldest if full; was it a written one?
  void touch(uint32_t entry);
  void unlink(uint32_t entry);
  void link_newest(uint32_t entry);
  uint32_t& bucket(uint64_t xpline);
  uint64_t media(uint64_t at_ps, Direction direction, Writer who);
  void note_writer(Writer writer);
  // The number of cores that write at this moment, with `writer`.
  uint32_t crowd_with(uint64_t at_ps, Writer writer);

  // entries_[0, used_) are in the list newest_ ... oldest_ and each in the chain of its bucket.
  std::vector<Entry> entries_;
  std::vector<uint32_t> buckets_;  // a power of two of them
  uint32_t used_ = 0;
  uint32_t newest_ = kNone;
  uint32_t oldest_ = kNone;

  Server media_;
  Window to_media_;
  Direction last_ = Direction::kRead;
  uint64_t read_ps_, write_ps_, turn_ps_;
  uint64_t miss_latency_ps_, hit_latency_ps_;

  // The cores that have ever written, and when the last write of each was or will be taken.
  struct Core {
    Writer writer;
    uint64_t taken_ps;
  };
  const Now* now_;
  std::vector<Core> cores_;
  std::array<Writer, kRecentWrites> recent_{};  // behind the last CPU writes
  size_t next_recent_ = 0;
  std::array<uint16_t, 256> writes_of_{};  // of recent_
  uint32_t recent_writers_ = 0;            // different ones in recent_
  std::array<uint8_t, 256> core_of_{};     // where a writer is in cores_, plus one; 0: nowhere
  uint32_t writers_ = 0;                   // at the last write of a core
  std::vector<double> slowdown_;           // of the media, by the number of writers

  DimmCounters counters_;
};

}  // namespace pmstore::model
