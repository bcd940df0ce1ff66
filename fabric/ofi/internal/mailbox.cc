#include "fabric/ofi/internal/mailbox.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "fabric/ofi/internal/ofi_region.h"

namespace pmstore::fabric::ofi {

Result<std::unique_ptr<Mailbox>> Mailbox::create(const Provider& provider) {
  std::unique_ptr<Mailbox> mailbox(new Mailbox());
  const std::span<Incoming> memory(mailbox->incoming_.get(), 1);
  PMSTORE_TRY(mailbox->region_,
              OfiRegion::create(provider, std::as_writable_bytes(memory), Access::kRemoteWrite));
  return mailbox;
}

std::string Mailbox::name() const {
  std::string name(sizeof(uint64_t), '\0');
  std::memcpy(name.data(), &region_->remote().key, name.size());
  return name;
}

Status Mailbox::set_peer(const std::string& name) {
  uint64_t key = 0;
  if (name.size() != sizeof key) {
    return make_error(ErrorCode::kProtocol, "the peer does not say where immediates go");
  }
  std::memcpy(&key, name.data(), sizeof key);
  peer_key_ = key;
  return {};
}

bool Mailbox::has_room() {
  // A credit that has arrived in part is smaller than the whole one, and may be smaller than the
  // one before it.
  credit_ = std::max(credit_, incoming_->credit);
  return peer_key_.has_value() && sent_ < credit_ + kEntries;
}

Mailbox::Piece Mailbox::entry(uint32_t immediate) {
  const uint64_t index = sent_ % kEntries;
  const auto sequence = static_cast<uint32_t>(sent_ + 1);
  outgoing_[index] = uint64_t{sequence} << 32 | immediate;
  return {{&outgoing_[index], sizeof outgoing_[index]},
          offsetof(Incoming, entries) + index * sizeof outgoing_[index],
          *peer_key_};
}

std::optional<uint32_t> Mailbox::take() {
  const uint64_t entry = incoming_->entries[taken_ % kEntries];
  if (static_cast<uint32_t>(entry >> 32) != static_cast<uint32_t>(taken_ + 1)) return {};
  ++taken_;
  return static_cast<uint32_t>(entry);
}

std::optional<Mailbox::Piece> Mailbox::credit_due() {
  if (taken_ - credited_ < kCredit || !peer_key_) return {};
  credit_source_ = taken_;
  return Piece{{&credit_source_, sizeof credit_source_}, offsetof(Incoming, credit), *peer_key_};
}

}  // namespace pmstore::fabric::ofi
