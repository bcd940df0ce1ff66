// ValueRoom: where a value goes that is read: into a string, into the caller's buffer, or nowhere;
// or it stays where it is, and the transaction, or a ValueView, holds a view of it. It borrows all
// of these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "pmstore/client.h"
#include "pmstore/server/held_views.h"

namespace pmstore::internal {

class ValueRoom {
 public:
  ValueRoom() = default;  // nowhere: only the record's place is wanted
  explicit ValueRoom(std::string& into) : string_(&into) {}
  // `bytes` becomes the value's size. A value that is larger than `into` is not copied.
  ValueRoom(std::span<std::byte> into, size_t& bytes) : buffer_(into), bytes_(&bytes) {}

  // `bytes` becomes the value where it lies, which `held` keeps there.
  ValueRoom(HeldViews& held, std::string_view& bytes) : held_(&held), view_(&bytes) {}

  // The same; `view` keeps it there.
  explicit ValueRoom(ValueView& view) : one_(&view) {}

  bool is_view() const { return held_ != nullptr || one_ != nullptr; }
  // Where take() would copy a value to; empty when there is no such memory before it is called.
  std::span<std::byte> buffer() const { return buffer_; }
  bool is_wanted() const { return string_ != nullptr || bytes_ != nullptr || is_view(); }
  // Whether a value of so many bytes is copied.
  bool has_room_for(size_t bytes) const {
    return string_ != nullptr || (bytes_ != nullptr && bytes <= buffer_.size());
  }
  // A view of a transaction has a copy then. CHECK: it is no ValueView.
  void take(std::string_view value) const {
    PMSTORE_CHECK(one_ == nullptr, "a view of its own shows a record in its slot");
    if (is_view()) {
      *view_ = held_->add_copy(value);
    } else if (string_ != nullptr) {
      string_->assign(value);
    } else if (bytes_ != nullptr) {
      *bytes_ = value.size();
      if (!value.empty() && value.size() <= buffer_.size()) {
        std::memcpy(buffer_.data(), value.data(), value.size());
      }
    }
  }
  // Instead of take(), for the value of the record in `slot`. CHECK: is_view(). BackPressure.
  Status take_view(const std::shared_ptr<ViewedSlots>& slots, SlotOffset slot,
                   std::string_view value) const {
    PMSTORE_CHECK(is_view(), "other values are copied");
    if (one_ != nullptr) {
      PMSTORE_CHECK(one_->slots_ == nullptr, "it shows one value");
      PMSTORE_TRY_STATUS(slots->begin_view(slot));
      one_->slots_ = slots;
      one_->slot_ = slot;
      one_->value_ = value;
      return {};
    }
    PMSTORE_TRY_STATUS(held_->add(slots, slot));
    *view_ = value;
    return {};
  }
  // Instead of take(), for a value for which there is no room, or that buffer() has got already.
  void leave(size_t bytes) const {
    if (bytes_ != nullptr) *bytes_ = bytes;
  }

 private:
  std::string* string_ = nullptr;
  std::span<std::byte> buffer_;
  size_t* bytes_ = nullptr;
  HeldViews* held_ = nullptr;
  std::string_view* view_ = nullptr;
  ValueView* one_ = nullptr;
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
struct GivesView {
  using Value = std::string_view;
  HeldViews& held;
  std::string_view bytes;

  ValueRoom room() { return {held, bytes}; }
  Value give() const { return bytes; }
};

struct GivesValueView {
  using Value = ValueView;
  ValueView view;

  ValueRoom room() { return ValueRoom(view); }
  Value give() { return std::move(view); }
};

}  // namespace pmstore::internal
