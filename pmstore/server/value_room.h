// ValueRoom: where a value goes that is read: into a string, into the caller's buffer, or nowhere.
// It borrows both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace pmstore::internal {

class ValueRoom {
 public:
  ValueRoom() = default;  // nowhere: only the record's place is wanted
  explicit ValueRoom(std::string& into) : string_(&into) {}
  // `bytes` becomes the value's size. A value that is larger than `into` is not copied.
  ValueRoom(std::span<std::byte> into, size_t& bytes) : buffer_(into), bytes_(&bytes) {}

  bool is_wanted() const { return string_ != nullptr || bytes_ != nullptr; }
  // Whether a value of so many bytes is copied.
  bool has_room_for(size_t bytes) const {
    return string_ != nullptr || (bytes_ != nullptr && bytes <= buffer_.size());
  }
  void take(std::string_view value) const {
    if (string_ != nullptr) {
      string_->assign(value);
    } else if (bytes_ != nullptr) {
      *bytes_ = value.size();
      if (!value.empty() && value.size() <= buffer_.size()) {
        std::memcpy(buffer_.data(), value.data(), value.size());
      }
    }
  }
  // Instead of take(), for a value for which there is no room.
  void leave(size_t bytes) const {
    if (bytes_ != nullptr) *bytes_ = bytes;
  }

 private:
  std::string* string_ = nullptr;
  std::span<std::byte> buffer_;
  size_t* bytes_ = nullptr;
};

// What a get gives, and the room that it needs for it.
struct GivesString {
  using Value = std::string;
  std::string value;

  ValueRoom room() { return ValueRoom(value); }
  Value give() { return std::move(value); }
};
struct FillsBuffer {
  using Value = size_t;
  std::span<std::byte> into;
  size_t bytes = 0;

  ValueRoom room() { return {into, bytes}; }
  Value give() const { return bytes; }
};

}  // namespace pmstore::internal
