// CheckpointReader: reads a checkpoint (pmstore/layout/checkpoint_layout.h), and trusts no byte of
// it whose checksum it has not compared.
//
// What a section gives was copied to DRAM first and its checksum taken of the copy: so what was
// verified is what is used. A pool in a file is read without its mapping: that would cost more than
// the copies. Sections are independent of each other, so several threads may read one each.
// Lifetimes: the pool is borrowed. Threads: section() from any.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "persist/file_reads.h"
#include "persist/pool.h"
#include "pmstore/layout/catalog_layout.h"
#include "pmstore/layout/checkpoint_layout.h"

namespace pmstore::internal {

class CheckpointReader {
 public:
  // Of the checkpoint in `extent`. NotFound: it is whole, and not of this state of the catalog.
  // Damaged: header or directory are not whole, or the medium has an error there.
  static Result<CheckpointReader> open(persist::Pool& pool, const persist::Extent& extent,
                                       const CatalogHeader& catalog);

  // The bytes of the checkpoint, at offsets in its extent.
  class Content {
   public:
    Content(persist::Pool& pool, const persist::Extent& extent);
    // False: they are not in the extent, or the medium has an error there.
    bool copy(uint64_t offset, std::span<std::byte> to) const;

   private:
    const persist::FileReads* file_;  // nullptr: it is mapped only
    uint64_t extent_offset_;
    std::span<const std::byte> mapped_;
  };

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
    Section(const Content& content, const CheckpointSection& section,
            std::span<const uint64_t> sums, uint64_t generation);
    bool read_over_blocks(std::byte* to, size_t bytes);
    bool next_block();

    Content content_;
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
  CheckpointReader(const Content& content, const CheckpointHeader& header)
      : content_(content), header_(header) {}
  Status read_directory();
  void sort_sections();
  Section section_at(size_t index) const;

  Content content_;
  CheckpointHeader header_;
  std::vector<CheckpointSection> sections_;
  std::vector<uint32_t> by_name_;   // of sections_, by name, then by part
  std::vector<size_t> first_sums_;  // of each section, in sums_
  std::vector<uint64_t> sums_;
};

}  // namespace pmstore::internal
