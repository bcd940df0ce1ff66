// Setting: what a sequence of the model test runs on. It is drawn from the seed, and written in
// front of a sequence that is kept. Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pmstore::fs::model {

struct Setting {
  // Two FileSystem clients, a namespace server and three data servers; else the Namespace alone.
  bool clients = false;
  // Of the clients: as FileSystemOptions::sync (kFsync) and atomic_writes.
  bool fsync = false;
  bool atomic = false;
  // Writes are made durable by messages, as in a file; else one-sided, as with eADR.
  bool by_message = false;

  static Setting of_seed(bool clients, uint64_t seed);
  std::string to_string() const;
  static std::optional<Setting> parse(std::string_view text);
  bool operator==(const Setting&) const = default;
};

}  // namespace pmstore::fs::model
