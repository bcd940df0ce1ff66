// LocalDataSpace: the DataSpace of one data server, whose file area is in this process.
//
// Free units and generation words are in DRAM and begin anew with each start: all units are free
// until they are claimed, and each word has a value that no earlier start has given. Large writes
// and zeroing give way to others in between. Invariants: bytes are stored to taken units only; a
// word never has a value twice. Threads: one executor's. Lifetimes: executor, the pool of the area
// and the gate outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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
  uint64_t total_bytes() const override { return area_.bytes(); }
  uint64_t free_bytes() const override { return allocator_.free_units() * kUnitBytes; }

  Status claim(const AreaRange& range) override;
  Result<AreaRange> allocate(uint16_t server, uint64_t least, uint64_t most) override;
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
  // For registering: a generation word for each unit.
  std::span<std::byte> words() const {
    return std::as_writable_bytes(std::span(words_.get(), area_.units()));
  }
  // Of the unit at `offset`, below total_bytes(), of the area.
  uint64_t word_at(uint64_t offset) const;
  // For an area whose owner is another process: it says what a unit's word is, each time more than
  // before.
  void set_word(uint64_t offset, uint64_t word);
  // Gives all units the same word, which none of them had before.
  uint64_t renew_words();

 private:
  bool is_inside(const AreaRange& range) const {
    return range.server == kServer && range.bytes > 0 && range.offset < area_.bytes() &&
           range.bytes <= area_.bytes() - range.offset;
  }
  bool looks_zero(const AreaRange& range) const;
  // Requires that the range is inside and all of it is taken.
  void check_taken(const AreaRange& range) const;
  std::byte* at(const AreaRange& range) const { return area_.data().data() + range.offset; }

  base::Executor& executor_;
  const FileArea area_;
  UnitAllocator allocator_;
  std::unique_ptr<uint64_t[]> words_;  // by unit
  QuarantineGate* gate_ = nullptr;     // nullptr: nobody else writes to the area
};

}  // namespace pmstore::fs
