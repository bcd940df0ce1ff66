// MessageWriter and MessageReader: encode and decode a message of fixed little-endian structs and
// byte strings. All accesses are bounds-checked. Plain values; any thread. Borrow their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace pmstore::fabric {

// Appends to a buffer of fixed size. What does not fit is not written, and overflowed() tells it.
class MessageWriter {
 public:
  explicit MessageWriter(std::span<std::byte> room) : room_(room) {}
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    append(&value, sizeof(T));
  }
  void put_bytes(std::string_view bytes) { append(bytes.data(), bytes.size()); }
  bool overflowed() const { return overflowed_; }
  size_t bytes() const { return used_; }
  std::span<const std::byte> message() const { return room_.first(used_); }

 private:
  void append(const void* source, size_t count) {
    if (count > room_.size() - used_) {
      overflowed_ = true;
      return;
    }
    if (count > 0) std::memcpy(room_.data() + used_, source, count);
    used_ += count;
  }
  std::span<std::byte> room_;
  size_t used_ = 0;
  bool overflowed_ = false;
};

// Reads in the order of the writes. After the first field that is missing, every read fails.
class MessageReader {
 public:
  explicit MessageReader(std::span<const std::byte> message) : rest_(message) {}
  template <typename T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (rest_.size() < sizeof(T)) {
      failed_ = true;
    } else {
      std::memcpy(&value, rest_.data(), sizeof(T));
      rest_ = rest_.subspan(sizeof(T));
    }
    return value;
  }
  std::string_view get_bytes(size_t count) {
    if (rest_.size() < count) {
      failed_ = true;
      return {};
    }
    std::string_view bytes(reinterpret_cast<const char*>(rest_.data()), count);
    rest_ = rest_.subspan(count);
    return bytes;
  }
  bool failed() const { return failed_; }
  // No read has failed, and no byte is left.
  bool complete() const { return !failed_ && rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
  bool failed_ = false;
};

}  // namespace pmstore::fabric
