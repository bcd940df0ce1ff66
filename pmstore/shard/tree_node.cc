#include "pmstore/shard/tree_node.h"

#include <algorithm>
#include <cstring>

#include "base/atomic_copy.h"

namespace pmstore::internal {

namespace {

uint32_t head_of(std::string_view suffix) {
  uint32_t head = 0;
  if (suffix.size() >= sizeof(head)) [[likely]] {
    std::memcpy(&head, suffix.data(), sizeof(head));
    return __builtin_bswap32(head);
  }
  for (size_t i = 0; i < suffix.size(); ++i) {
    head |= static_cast<uint32_t>(static_cast<unsigned char>(suffix[i])) << (24 - 8 * i);
  }
  return head;
}

// As memmove(), where others read `to`.
void move_shared(TreeNode::Slot* to, const TreeNode::Slot* from, size_t count) {
  constexpr size_t kWords = sizeof(TreeNode::Slot) / sizeof(uint64_t);
  auto* const to_words = reinterpret_cast<uint64_t*>(to);
  const auto* const from_words = reinterpret_cast<const uint64_t*>(from);
  const size_t words = count * kWords;
  const auto move = [&](size_t i) {
    uint64_t word;
    std::memcpy(&word, from_words + i, sizeof(word));
    __atomic_store_n(to_words + i, word, __ATOMIC_RELAXED);
  };
  if (to < from) {
    for (size_t i = 0; i < words; ++i) move(i);
  } else {
    for (size_t i = words; i > 0; --i) move(i - 1);
  }
}

size_t prefix_of(TreeNode::Fences fences) {
  return fences.high.empty() ? 0 : common_prefix(fences.low, fences.high);
}

}  // namespace

size_t common_prefix(std::string_view a, std::string_view b) {
  const size_t most = std::min(a.size(), b.size());
  size_t same = 0;
  while (same < most && a[same] == b[same]) ++same;
  return same;
}

std::string_view separator_of(std::string_view left, std::string_view right) {
  PMSTORE_CHECK(left < right, "keys of a node are in order");
  return right.substr(0, common_prefix(left, right) + 1);
}

void TreeNode::reset(uint8_t level, Fences fences) {
  next = kNoNode;
  previous = kNoNode;
  first_child = kNoNode;
  changing = 0;
  count_ = 0;
  level_ = level;
  heap_begin_ = kNodeBytes;
  heap_dead_ = 0;
  low_at_ = store(fences.low);
  low_bytes_ = static_cast<uint16_t>(fences.low.size());
  high_at_ = store(fences.high);
  high_bytes_ = static_cast<uint16_t>(fences.high.size());
  prefix_bytes_ = static_cast<uint16_t>(prefix_of(fences));
}

uint16_t TreeNode::store(std::string_view bytes) {
  heap_begin_ = static_cast<uint16_t>(heap_begin_ - bytes.size());
  base::copy_to_shared(reinterpret_cast<char*>(this) + heap_begin_, bytes.data(), bytes.size());
  return heap_begin_;
}

void TreeNode::assign(const TreeNode& from, uint16_t begin, uint16_t end, Fences fences) {
  reset(from.level_, fences);
  append(from, begin, end);
}

void TreeNode::append(const TreeNode& from, uint16_t begin, uint16_t end) {
  KeyRoom room;
  for (uint16_t i = begin; i < end; ++i) insert(count_, from.key(i, room), from.value(i));
}

std::string_view TreeNode::key(uint16_t i, KeyRoom& room) const {
  const std::string_view rest = suffix(i);
  const std::string_view prefix = low().substr(0, prefix_bytes_);
  std::copy(rest.begin(), rest.end(), std::copy(prefix.begin(), prefix.end(), room.data()));
  return {room.data(), prefix_bytes_ + rest.size()};
}

TreeNode::Place TreeNode::find(std::string_view key) const {
  const std::string_view rest = key.substr(prefix_bytes_);
  const uint32_t head = head_of(rest);
  const Slot* const all = slots();
  uint32_t first = 0;
  uint32_t length = count_;
  while (length > 0) {
    const uint32_t half = length / 2;
    const Slot& slot = all[first + half];
    const bool smaller = slot.head != head ? slot.head < head : at(slot.at, slot.bytes) < rest;
    first = smaller ? first + half + 1 : first;
    length = smaller ? length - half - 1 : half;
  }
  const bool equal =
      first < count_ && all[first].head == head && at(all[first].at, all[first].bytes) == rest;
  return {static_cast<uint16_t>(first), equal};
}

TreeNode::Place TreeNode::find(std::string_view key, uint16_t guess) const {
  if (guess <= count_) {
    const std::string_view rest = key.substr(prefix_bytes_);
    if (guess < count_ && suffix(guess) == rest) return {guess, true};
    const bool behind = guess == 0 || suffix(static_cast<uint16_t>(guess - 1)) < rest;
    if (behind && (guess == count_ || rest < suffix(guess))) return {guess, false};
  }
  return find(key);
}

size_t TreeNode::used_bytes() const {
  return count_ * sizeof(Slot) + (kNodeBytes - heap_begin_) - heap_dead_;
}

size_t TreeNode::bytes_between(uint16_t begin, uint16_t end, Fences fences) const {
  const size_t prefix = prefix_of(fences);
  size_t bytes = fences.low.size() + fences.high.size();
  for (uint16_t i = begin; i < end; ++i) {
    bytes += sizeof(Slot) + prefix_bytes_ + slots()[i].bytes - prefix;
  }
  return bytes;
}

void TreeNode::insert(uint16_t index, std::string_view key, uint64_t value) {
  PMSTORE_CHECK(has_room(key), "who inserts has made room");
  const std::string_view rest = key.substr(prefix_bytes_);
  if (kHeaderBytes + (count_ + 1) * sizeof(Slot) + rest.size() > heap_begin_) compact();
  Slot* const place = slots() + index;
  move_shared(place + 1, place, count_ - index);
  const uint16_t stored = store(rest);
  const Slot slot{value, head_of(rest), stored, static_cast<uint16_t>(rest.size())};
  base::copy_to_shared(place, &slot, sizeof(slot));
  ++count_;
}

void TreeNode::erase(uint16_t index) {
  PMSTORE_CHECK(index < count_, "what is erased is there");
  Slot* const place = slots() + index;
  heap_dead_ = static_cast<uint16_t>(heap_dead_ + place->bytes);
  move_shared(place, place + 1, count_ - index - 1);
  --count_;
}

bool TreeNode::well_formed() const {
  const auto lies_in_page = [](size_t from, size_t place, size_t bytes) {
    return place >= from && bytes <= kMaxKeyBytes && place + bytes <= kNodeBytes;
  };
  const size_t heap = kHeaderBytes + count_ * sizeof(Slot);
  if (!lies_in_page(heap, low_at_, low_bytes_)) return false;
  if (!lies_in_page(heap, high_at_, high_bytes_)) return false;
  if (high_bytes_ != 0 && low() >= high()) return false;
  if (prefix_bytes_ != prefix_of({low(), high()})) return false;
  return std::all_of(slots(), slots() + count_, [&](const Slot& slot) {
    return lies_in_page(heap, slot.at, slot.bytes) && prefix_bytes_ + slot.bytes <= kMaxKeyBytes;
  });
}

void TreeNode::compact() {
  std::array<char, kNodeBytes> old;
  std::memcpy(old.data(), this, kNodeBytes);
  heap_begin_ = kNodeBytes;
  heap_dead_ = 0;
  low_at_ = store({old.data() + low_at_, low_bytes_});
  high_at_ = store({old.data() + high_at_, high_bytes_});
  for (uint16_t i = 0; i < count_; ++i) {
    Slot& slot = slots()[i];
    const uint16_t stored = store({old.data() + slot.at, slot.bytes});
    __atomic_store_n(&slot.at, stored, __ATOMIC_RELAXED);
  }
}

}  // namespace pmstore::internal
