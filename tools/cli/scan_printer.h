// How `pmstore kv scan` prints records.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "pmstore/client.h"
#include "tools/cli/bytes_text.h"
#include "tools/cli/console.h"

namespace pmstore::tools {

// Prints records as they arrive; JSON is one object, so its records are collected.
class ScanPrinter {
 public:
  explicit ScanPrinter(bool json) : json_(json) {}
  void record(RecordRef record) {
    ++count_;
    if (json_) {
      records_.push_back({{"key", json_bytes(record.key)}, {"value", json_bytes(record.value)}});
    } else {
      print_text(printable(record.key) + "\t" + printable(record.value) + "\n");
    }
  }
  void end(bool complete) {
    if (json_) print_json({{"records", records_}, {"complete", complete}});
  }
  uint64_t count() const { return count_; }
  // Forgets all records, if none is printed yet.
  bool begin_again() {
    if (!json_ && count_ > 0) return false;
    records_.clear();
    count_ = 0;
    return true;
  }

 private:
  bool json_;
  uint64_t count_ = 0;
  nlohmann::ordered_json records_ = nlohmann::ordered_json::array();
};

}  // namespace pmstore::tools
