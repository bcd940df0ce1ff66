// LocalDataSpace: the DataSpace of one data server, whose file area is in this process.
//
// Free units and generation words are in DRAM and begin anew with each start: all units are free
// until they are claimed, and each word has a value that no earlier start has given. Large writes
// and zeroing give way to others in between. Invariants: bytes are stored to taken units only; a
// word never has a value twice; a range lies in one section of the area. Sections come and go while
// the space is used: units are handed out from open_section() to close_section(), and may be
// reached from add_section() to drop_section(). Threads: one executor's. Lifetimes: executor, the
// pool of the area and the gate outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/executor.h"
#include "fs/data_space.h"
#include "fs/file_area.h"
#include "fs/quarantine_gate.h"
#include "fs/unit_allocator.h"

namespace pmstore::fs {

class LocalDataSpace final : public DataSpace {
 public:
  // Its one data server has this index.
  static constexpr uint16_t kServer = 0;

  LocalDataSpace(base::Executor& executor, const FileArea& area);
  // Before the first clean(), where others than this process can write to the area. Borrowed.
  void set_gate(QuarantineGate& gate) { gate_ = &gate; }

  uint16_t servers() const override { return 1; }
  uint64_t total_bytes() const override { return allocator_.units() * kUnitBytes; }
  uint64_t free_bytes() const override { return allocator_.free_units() * kUnitBytes; }

  uint64_t growable_bytes() const override { return growable ? growable() : 0; }
  base::Task<Status> make_room() override { return grow ? grow() : DataSpace::make_room(); }
  // Of what makes sections, if there is such a thing: see DataSpace. `grow_beside` begins what
  // make_room() does, and waits for nothing. `who_has_room` explains a full space. `released` is
  // told of a section that has more free units than before.
  std::function<uint64_t()> growable;
  std::function<base::Task<Status>()> grow;
  std::function<void()> grow_beside;
  std::function<std::string()> who_has_room;
  std::function<void(uint64_t first_unit)> released;

  Status claim(const AreaRange& range) override;
  Result<AreaRange> allocate(uint16_t server, uint64_t least, uint64_t most) override;
  std::optional<AreaRange> take_unclean(uint16_t server) override;
  void give_back(const AreaRange& range) override { release(range); }

  uint64_t generation(const AreaRange& range) const override;
  base::Task<Status> change_generations(std::vector<AreaRange> ranges) override;

  base::Task<Status> write(AreaRange range, std::span<const std::byte> bytes) override;
  base::Task<Status> zero(AreaRange range) override;
  base::Task<Status> read(AreaRange range, std::span<std::byte> into) override;

  void retire(const AreaRange& range) override {
    if (gate_ != nullptr) gate_->retired(range);
  }
  base::Task<Status> clean(AreaRange range) override;
  void release(const AreaRange& range) override;

  base::Executor& executor() const { return executor_; }
  const FileArea& area() const { return area_; }

  // ---- sections ----

  // What devices may reach of a section: its units, and a generation word for each. `offset` is
  // AreaRange::offset of its first unit.
  struct Reachable {
    uint64_t first_unit = 0;
    uint64_t offset = 0;
    std::span<std::byte> units;
    std::span<std::byte> words;
  };
  // By number; the first one's offset is 0.
  std::vector<Reachable> reachable() const;
  // Behind every offset that there ever was.
  uint64_t end() const { return end_; }
  // Its units can be reached, and none is handed out.
  void add_section(const AreaSection& section);
  // All its units are free.
  void open_section(uint64_t first_unit);
  bool is_empty_section(uint64_t first_unit) const;
  // Requires that it is empty. No unit is handed out any more.
  void close_section(uint64_t first_unit);
  // Of one that is not open. Requires that no device can reach it any more.
  void drop_section(uint64_t first_unit);

  // nullptr: they do not lie in one section.
  std::byte* bytes_at(uint64_t offset, uint64_t bytes) const;
  // The section of this unit has it. False: what a map says of it is out of date.
  bool has_word(uint64_t offset) const { return find(offset, 1) != nullptr; }
  // Of the unit at `offset`, which has_word().
  uint64_t word_at(uint64_t offset) const;
  // For an area whose owner is another process: it says what a unit's word is, each time more than
  // before.
  void set_word(uint64_t offset, uint64_t word);
  // Gives all units the same word, which none of them had before.
  uint64_t renew_words();

 private:
  struct Section {
    AreaSection place;
    std::unique_ptr<uint64_t[]> words;  // by unit
    bool is_open = false;
  };
  // The section that has all these bytes; nullptr: none has.
  const Section* find(uint64_t offset, uint64_t bytes) const;
  Section& at_number(uint64_t first_unit) const;
  uint64_t& word_of(uint64_t offset) const;
  bool is_inside(const AreaRange& range) const {
    return range.server == kServer && range.bytes > 0 && find(range.offset, range.bytes) != nullptr;
  }
  uint64_t next_data(const AreaRange& range, uint64_t from) const;
  bool looks_zero(const AreaRange& range) const;
  // Requires that the range is inside and all of it is taken.
  void check_taken(const AreaRange& range) const;
  std::byte* at(const AreaRange& range) const { return bytes_at(range.offset, range.bytes); }

  base::Executor& executor_;
  const FileArea area_;  // as it was opened: its sections are those of the beginning
  UnitAllocator allocator_;
  uint64_t first_word_;  // what a unit begins with
  uint64_t end_ = 0;
  std::vector<std::unique_ptr<Section>> sections_;  // by number
  QuarantineGate* gate_ = nullptr;                  // nullptr: no client writes to the area
};

}  // namespace pmstore::fs
