// CheckpointReader: reads a checkpoint (pmstore/layout/checkpoint_layout.h), and trusts no byte of
// it whose checksum it has not compared.
//
// What a section gives was copied to DRAM first and its checksum taken of the copy: so what was
// verified is what is used. Sections are independent of each other, so several threads may read
// one each. Lifetimes: the memory is borrowed. Threads: section() from any.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "persist/memory.h"
#include "persist/pool.h"
#include "pmstore/layout/catalog_layout.h"
#include "pmstore/layout/checkpoint_layout.h"

namespace pmstore::internal {

class CheckpointReader {
 public:
  // Of the checkpoint in `extent`. NotFound: it is whole, and not of this state of the catalog.
  // Damaged: header or directory are not whole.
  static Result<CheckpointReader> open(const persist::Memory& memory, const persist::Extent& extent,
                                       const CatalogHeader& catalog);

  // Reads one section from its begin to its end. A read that fails, because a block is damaged or
  // the section ends before, makes all later ones fail.
  class Section {
   public:
    bool read(void* to, size_t bytes) {
      if (bytes == 0) return true;  // of an empty list there may be no address
      if (bytes <= filled_ - used_) [[likely]] {
        std::memcpy(to, block_.data() + used_, bytes);
        used_ += bytes;
        return true;
      }
      return read_over_blocks(static_cast<std::byte*>(to), bytes);
    }
    template <typename T>
    bool read(T& value) {
      static_assert(std::is_trivially_copyable_v<T>);
      return read(&value, sizeof(value));
    }
    // Bytes that were not read yet.
    uint64_t left() const { return left_ + (filled_ - used_); }
    // Everything was read, and nothing failed.
    bool ended_well() const { return !failed_ && left() == 0; }

   private:
    friend class CheckpointReader;
    Section(std::span<const std::byte> content, std::span<const uint64_t> sums, uint64_t generation,
            uint64_t offset);
    bool read_over_blocks(std::byte* to, size_t bytes);
    bool next_block();

    std::span<const std::byte> content_;
    std::span<const uint64_t> sums_;
    uint64_t generation_;
    uint64_t offset_;  // in the extent, of the next block
    uint64_t left_;    // behind the present block
    bool failed_ = false;
    std::vector<std::byte> block_;
    size_t filled_ = 0;
    size_t used_ = 0;
  };
  // nullopt: there is none.
  std::optional<Section> section(std::string_view name, uint32_t part = 0) const;
  // How many sections have this name.
  uint32_t parts(std::string_view name) const;
  // Damaged: a block is not as its checksum says. Reads everything.
  Status verify() const;
  uint64_t bytes() const { return header_.bytes; }

 private:
  CheckpointReader(std::span<const std::byte> content, const CheckpointHeader& header)
      : content_(content), header_(header) {}
  Status read_directory();
  bool is_named(const CheckpointSection& section, std::string_view name) const;
  Section section_at(size_t index) const;

  std::span<const std::byte> content_;  // the checkpoint's part of the extent
  CheckpointHeader header_;
  std::vector<CheckpointSection> sections_;
  std::vector<size_t> first_sums_;  // of each section, in sums_
  std::vector<uint64_t> sums_;
};

}  // namespace pmstore::internal
