#include "pmstore/client/item_set.h"

namespace pmstore::internal {

TxItem* ItemSet::find(TableId table, std::string_view key, KeyHash hash) {
  for (TxItem& item : items_) {
    if (item.hash.value == hash.value && item.table == table && this->key(item) == key) {
      return &item;
    }
  }
  return nullptr;
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
