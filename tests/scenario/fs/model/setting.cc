#include "tests/scenario/fs/model/setting.h"

#include <fmt/format.h>

namespace pmstore::fs::model {

Setting Setting::of_seed(bool clients, uint64_t seed) {
  if (!clients) return {};
  return {true, (seed & 1) != 0, (seed & 2) != 0, (seed & 4) != 0};
}

std::string Setting::to_string() const {
  return fmt::format("setting clients={:d} fsync={:d} atomic={:d} by_message={:d}", clients, fsync,
                     atomic, by_message);
}

std::optional<Setting> Setting::parse(std::string_view text) {
  for (unsigned bits = 0; bits < 16; ++bits) {
    const Setting one{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
    if (one.to_string() == text) return one;
  }
  return std::nullopt;
}

}  // namespace pmstore::fs::model
