// PageBytes: zeroed bytes that start on a page, as a mapping does. Movable; one owner.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace pmstore::model {

class PageBytes {
 public:
  PageBytes() = default;
  explicit PageBytes(size_t bytes)
      : pages_((bytes + sizeof(Page) - 1) / sizeof(Page)), size_(bytes) {}
  explicit PageBytes(std::span<const std::byte> content) : PageBytes(content.size()) {
    std::memcpy(data(), content.data(), content.size());
  }
  std::span<std::byte> bytes() { return {data(), size_}; }
  std::byte* data() { return reinterpret_cast<std::byte*>(pages_.data()); }
  size_t size() const { return size_; }

 private:
  struct alignas(4096) Page {
    std::byte bytes[4096];
  };
  std::vector<Page> pages_;
  size_t size_ = 0;
};

}  // namespace pmstore::model
