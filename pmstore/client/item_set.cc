#include "pmstore/client/item_set.h"

#include <bit>

namespace pmstore::internal {

TxItem* ItemSet::find(TableId table, std::string_view key, KeyHash hash) {
  if (places_.empty()) {
    for (TxItem& item : items_) {
      if (is(item, table, key, hash)) return &item;
    }
    return nullptr;
  }
  const size_t mask = places_.size() - 1;
  for (size_t at = hash.value & mask; places_[at] != 0; at = (at + 1) & mask) {
    TxItem& item = items_[places_[at] - 1];
    if (is(item, table, key, hash)) return &item;
  }
  return nullptr;
}

// The item was added last.
void ItemSet::note_place(uint32_t index) {
  PMSTORE_CHECK(index + size_t{1} == items_.size(), "items are added one after the other");
  uint32_t from = index;
  if (2 * items_.size() > places_.size()) {
    places_.assign(std::bit_ceil(4 * items_.size()), 0);
    from = 0;
  }
  const size_t mask = places_.size() - 1;
  for (uint32_t each = from; each <= index; ++each) {
    size_t at = items_[each].hash.value & mask;
    while (places_[at] != 0) at = (at + 1) & mask;
    places_[at] = each + 1;
  }
}

TxItem& ItemSet::find_or_add(TableId table, std::string_view key, KeyHash hash) {
  if (TxItem* item = find(table, key, hash)) return *item;
  PMSTORE_CHECK(key.size() <= kMaxKeyBytes, "the caller has checked the size of the key");
  TxItem& item = items_.emplace_back();
  item.hash = hash;
  item.table = table;
  item.key_offset = static_cast<uint32_t>(bytes_.size());
  item.key_bytes = static_cast<uint16_t>(key.size());
  bytes_.append(key);
  if (items_.size() > kFew) [[unlikely]]
    note_place(static_cast<uint32_t>(items_.size() - 1));
  return item;
}

void ItemSet::set_value(TxItem& item, std::string_view value) {
  PMSTORE_CHECK(&item >= items_.data() && &item < items_.data() + items_.size(),
                "the item belongs to this set");
  if (value.size() <= item.value_bytes) {
    bytes_.replace(item.value_offset, value.size(), value);
  } else {
    item.value_offset = static_cast<uint32_t>(bytes_.size());
    bytes_.append(value);
  }
  item.value_bytes = static_cast<uint32_t>(value.size());
}

}  // namespace pmstore::internal
