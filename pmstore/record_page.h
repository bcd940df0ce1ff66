// RecordPage: records of a page of a scan, in order.
//
// Keys and values lie in a few blocks of memory, where they were copied once. A page is a value: it
// needs neither its scan nor its transaction. Move-only. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pmstore {

struct Record {
  std::string key;
  std::string value;
};

// A record in a page. Its views end with the page.
struct RecordRef {
  std::string_view key;
  std::string_view value;

  Record copy() const { return {std::string(key), std::string(value)}; }
};

class RecordPage {
 public:
  class Iterator {
   public:
    using difference_type = ptrdiff_t;
    using value_type = RecordRef;
    using pointer = const RecordRef*;
    using reference = RecordRef;
    using iterator_category = std::input_iterator_tag;

    RecordRef operator*() const { return (*page_)[index_]; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++index_;
      return before;
    }
    bool operator==(const Iterator&) const = default;

   private:
    friend class RecordPage;
    Iterator(const RecordPage& page, size_t index) : page_(&page), index_(index) {}
    const RecordPage* page_;
    size_t index_;
  };

  RecordPage() = default;
  // Leaves `other` empty.
  RecordPage(RecordPage&& other) noexcept { swap(other); }
  RecordPage& operator=(RecordPage&& other) noexcept {
    RecordPage taken = std::move(other);
    swap(taken);
    return *this;
  }

  size_t size() const { return records_.size(); }
  bool empty() const { return records_.empty(); }
  // Requires `index` < size(); front() and back(): not empty.
  RecordRef operator[](size_t index) const {
    const Placed& record = records_[index];
    return {{record.at, record.key_bytes}, {record.at + record.key_bytes, record.value_bytes}};
  }
  RecordRef front() const { return (*this)[0]; }
  RecordRef back() const { return (*this)[size() - 1]; }
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size()}; }

  // Copies them. Requires that the key has less than 64 KiB and the value less than 4 GiB.
  void add(std::string_view key, std::string_view value) {
    const size_t bytes = key.size() + value.size();
    if (bytes > room_) [[unlikely]]
      add_block(bytes);
    key.copy(free_, key.size());
    value.copy(free_ + key.size(), value.size());
    records_.push_back(
        {free_, static_cast<uint32_t>(value.size()), static_cast<uint16_t>(key.size())});
    free_ += bytes;
    room_ -= bytes;
  }
  // Keeps the first `count` records, or all when there are not more.
  void truncate(size_t count) {
    if (count < size()) records_.resize(count);
  }
  void clear() { *this = RecordPage(); }

 private:
  struct Placed {
    const char* at;  // the key, and the value behind it
    uint32_t value_bytes;
    uint16_t key_bytes;
  };

  void add_block(size_t at_least);
  void swap(RecordPage& other) noexcept {
    std::swap(records_, other.records_);
    std::swap(blocks_, other.blocks_);
    std::swap(free_, other.free_);
    std::swap(room_, other.room_);
    std::swap(bytes_, other.bytes_);
  }

  std::vector<Placed> records_;
  std::vector<std::unique_ptr<char[]>> blocks_;
  char* free_ = nullptr;  // in the last block
  size_t room_ = 0;       // behind it
  size_t bytes_ = 0;      // of all blocks
};

}  // namespace pmstore
