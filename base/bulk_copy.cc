#include "base/bulk_copy.h"

#include <cstdint>

#include "base/internal/shared_lines.h"

namespace pmstore::base::internal {
namespace {

// Bytes in front of the first whole line at `memory`.
size_t head_of(const std::byte* memory) {
  const size_t inside = reinterpret_cast<uintptr_t>(memory) % kSharedLineBytes;
  return inside == 0 ? 0 : kSharedLineBytes - inside;
}

template <bool kPastCaches>
void store(std::byte* shared_to, const std::byte* from, size_t bytes) {
  const size_t head = head_of(shared_to);
  copy_to_shared(shared_to, from, head);
  const size_t lines = (bytes - head) / kSharedLineBytes;
  store_lines<kPastCaches>(shared_to + head, from + head, lines);
  const size_t done = head + lines * kSharedLineBytes;
  copy_to_shared(shared_to + done, from + done, bytes - done);
}
static_assert(kLeastBulkBytes > 2 * kSharedLineBytes, "the head is shorter than the whole");

}  // namespace

void load_bulk(std::byte* to, const std::byte* shared_from, size_t bytes) {
  const size_t head = head_of(shared_from);
  copy_from_shared(to, shared_from, head);
  const size_t lines = (bytes - head) / kSharedLineBytes;
  load_lines(to + head, shared_from + head, lines);
  const size_t done = head + lines * kSharedLineBytes;
  copy_from_shared(to + done, shared_from + done, bytes - done);
}

void store_bulk(std::byte* shared_to, const std::byte* from, size_t bytes) {
  store<false>(shared_to, from, bytes);
}

void store_bulk_past_caches(std::byte* shared_to, const std::byte* from, size_t bytes) {
  store<true>(shared_to, from, bytes);
  order_lines();
}

}  // namespace pmstore::base::internal
