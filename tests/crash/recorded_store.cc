#include "tests/crash/recorded_store.h"

#include <cstring>

#include "base/check.h"
#include "base/checksum.h"
#include "persist/pool_layout.h"
#include "pmstore/layout/frame_layout.h"
#include "pmstore/layout/record.h"
#include "pmstore/layout/slab_layout.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::crash {
namespace {

constexpr uint32_t kChunks = 5;
constexpr size_t kLargeBytes = 70'000;  // of a value whose record has two chunks

// Of kLargeFrames: the chunks that are made with the pool are half a frame, and there is room for
// another one, whose headers are blanked two at a time.
constexpr uint64_t kLargeFrameChunks = 8;
constexpr uint64_t kLargeExtentBytes =
    internal::kFrameHeaderBytes + (kLargeFrameChunks - 1) * internal::kChunkBytes;
static_assert(internal::frame_progress_step(kLargeFrameChunks * internal::kChunkBytes) == 2);

// A ring that no client of lock discipline cpu needs: what an orderly stop can use.
constexpr uint64_t kRoomBytes = 32 << 10;
// Of what a free chunk keeps, as zeros: each line is an event.
constexpr uint64_t kReleasedBytes = 1 << 10;

// Of large stores: a transaction with one such record.
uint64_t log_bytes_of(StoreSize size) {
  return size == StoreSize::kLarge ? 3 * (kLargeBytes + 4096) : 32 << 10;
}
uint64_t room_bytes_of(StoreSize size) {
  if (size == StoreSize::kLargeFrames) return kLargeExtentBytes;
  return size == StoreSize::kWithRoom ? kRoomBytes : 0;
}
uint64_t frame_bytes_of(StoreSize size) {
  if (size == StoreSize::kLargeFrames) return kLargeFrameChunks * internal::kChunkBytes;
  return size == StoreSize::kFrames ? 2 * internal::kChunkBytes : 0;
}
uint64_t pool_bytes_of(StoreSize size) {
  const uint64_t bytes =
      persist::kPoolLayoutBytes + persist::round_up(log_bytes_of(size), persist::kXpLineBytes) +
      room_bytes_of(size) + kChunks * (internal::kChunkBytes + internal::kFrameHeaderBytes);
  return persist::round_up(bytes + 4096, 4096);
}

// A header for this chunk, of a slab that was never given back.
internal::SlabHeader forged_slab(uint32_t chunk, uint16_t size_class, uint64_t generation) {
  internal::SlabHeader header{};
  header.magic = internal::kSlabMagic;
  header.generation = generation;
  header.run_chunks = 1;
  header.size_class = size_class;
  const auto bytes = std::as_bytes(std::span(&header, 1));
  header.crc = base::crc32c(bytes.subspan(offsetof(internal::SlabHeader, generation)), chunk + 1);
  return header;
}

// Of the smallest slots, newer than any that there is.
std::string forged_slab_header(uint32_t chunk) {
  const internal::SlabHeader header = forged_slab(chunk, 0, 1000);
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

}  // namespace

RecordedStore::RecordedStore(const std::string& scenario, uint64_t seed, persist::Domain domain,
                             StoreSize size, const persist::PaddingRules& padding)
    : RecordedRun(scenario, seed),
      domain_(domain),
      size_(size),
      random_(seed),
      region_(pool_bytes_of(size)) {
  pool_ =
      std::move(*persist::Pool::in_region(region_.bytes(), domain, true, 256, nullptr, padding));
  for (const char* key : {"a", "b", "c", "d", "e", "f", "g", "h"}) history_.keys.push_back(key);
  history_.keys.emplace_back(kMaxKeyBytes, 'l');  // of runs that are drawn
  history_.keys.emplace_back("new");
  history_.leaves_checkpoints = size == StoreSize::kWithRoom;
  recorder_.emplace(pool_->memory());
  format();
}

void RecordedStore::end_recording() {
  allow({content_digest(now_)});
  trace_ = recorder_->take();
  store_.reset();
  pool_.reset();
}

void RecordedStore::format() {
  describe(0, "no store");
  describe(content_digest({}), "no records");
  allow({0, content_digest({})});
  FormatOptions options{.rings = size_ == StoreSize::kWithRoom ? 1u : 0u,
                        .ring_bytes = kRoomBytes,
                        .identity = seed() + 1,
                        .shard_log_bytes = log_bytes_of(size_)};
  options.frame_bytes = frame_bytes_of(size_);
  // What the records that come with the pool leave free is that of the log.
  std::optional<persist::Extent> log;
  if (size_ == StoreSize::kLargeFrames) log = forge_slabs();
  PMSTORE_CHECK(format_store(*pool_, options).has_value(), "the region is large enough");
  if (log) PMSTORE_CHECK(pool_->free_extent(*log).has_value(), "memory can always be drained");
  open();
  history_.table = store_->catalog().create_table(kStoreTable).value();
  recorder_->mark();
  history_.transactions.push_back({{}, false, content_digest({}), 0, {}});
}

void RecordedStore::open() {
  auto opened = internal::Store::open(*pool_);
  PMSTORE_CHECK(opened.has_value(), opened ? "" : opened.error().message.c_str());
  store_ = std::move(*opened);
  for (uint64_t& first : first_) first = store_->begin_session().value();
}

void RecordedStore::restart_process() {
  allow({content_digest(now_)});
  store_.reset();
  recorder_->process_dies();
  open();
  recorder_->mark();
}

void RecordedStore::close_and_restart() {
  allow({content_digest(now_)});
  PMSTORE_CHECK(store_->close().has_value(), "memory can always be drained");
  const bool left = store_->no_checkpoint().empty();
  PMSTORE_CHECK(left || size_ != StoreSize::kWithRoom, store_->no_checkpoint().c_str());
  store_.reset();
  recorder_->process_dies();
  open();
  PMSTORE_CHECK(store_->recovery().from_checkpoint == left, "what a stop leaves is used");
  recorder_->mark();
}

void RecordedStore::give_frames_back() {
  allow({content_digest(now_)});
  while (const auto frame = store_->arena().empty_frame(0)) {
    PMSTORE_CHECK(store_->give_back_frame(*frame).has_value(), "memory can always be drained");
  }
  // What a file system does to blocks is a change of what is durable, at any time: the explorer
  // keeps old bytes and zeros, in any mixture.
  persist::Memory& memory = store_->memory();
  while (!store_->give_back_idle_slabs(2, 0).value()) {
  }
  while (!store_->arena().take_leftovers(2, [&](uint64_t offset, uint64_t bytes) {
    memory.zero(memory.at(offset), std::min(bytes, kReleasedBytes));
    memory.flush(memory.at(offset), std::min(bytes, kReleasedBytes));
    return true;
  })) {
  }
  recorder_->mark();
}

void RecordedStore::move_records() {
  std::vector<KeyWrite> all;
  for (const auto& [key, value] : now_) all.push_back({key, value});
  for (bool more = true; more; recorder_->mark()) {
    allow({content_digest(now_)});
    const auto before = places_of(all);
    more = store_->move_some_records().value();
    const auto after = places_of(all);
    PMSTORE_CHECK(after.size() == before.size(), "a record that has moved is there");
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i] == after[i]) continue;
      moved_.push_back(after[i]);
      moved_.emplace_back(before[i].first, before[i].second + 1);
    }
  }
}

persist::Extent RecordedStore::forge_slabs() {
  // The first one, which is still to be made, has the number 1.
  const TableId table = std::max(history_.table, TableId{1});
  const auto fill = [&](const persist::Extent& extent) {
    persist::Memory& memory = pool_->memory();
    for (uint32_t i = 0; i + 1 < kLargeFrameChunks; ++i) {
      const uint32_t chunk = kLargeFrameChunks + i;  // of the second frame
      std::byte* const at =
          memory.at(extent.offset + internal::kFrameHeaderBytes) + i * internal::kChunkBytes;
      for (const uint64_t generation : {1, 2}) {
        const internal::SlabHeader header = forged_slab(chunk, 0, generation);
        memory.write(at + generation % 2 * internal::kSlabCopyBytes, &header, sizeof header);
      }
      alignas(8) std::array<std::byte, kSlotBytes[0]> record{};
      const SlotOffset slot{chunk * internal::kChunkBytes + internal::kSlabHeaderBytes};
      build_record(record, slot, table, 1, RecordState::kLive, "forged", "record");
      memory.write(at + internal::kSlabHeaderBytes, record.data(), record.size());
    }
    return Status();
  };
  auto log = pool_->allocate_unzeroed(persist::ExtentKind::kLog, kLargeExtentBytes, fill);
  PMSTORE_CHECK(log.has_value(), log ? "" : log.error().message.c_str());
  forged_at_ = log->offset;
  return *log;
}

void RecordedStore::leave_forged_slabs() {
  if (pool_->largest_free_extent() < kLargeExtentBytes) return;
  allow({content_digest(now_)});
  const Status freed = pool_->free_extent(forge_slabs());
  PMSTORE_CHECK(freed.has_value(), "memory can always be drained");
  recorder_->mark();
}

bool RecordedStore::has_frame_over_forged_slabs() const {
  const std::span<std::byte> second = store_->arena().frames().memory(1);
  return second.data() == pool_->memory().at(forged_at_) + internal::kFrameHeaderBytes;
}

void RecordedStore::mend_headers(Copy lost) {
  allow({content_digest(now_)});
  persist::Memory& memory = store_->memory();
  internal::SlabArena& arena = store_->arena();
  arena.for_each_slab([&](const internal::SlabArena::Slab& slab) {
    std::byte* const header = arena.at(SlotOffset{slab.first_chunk * internal::kChunkBytes});
    std::array<internal::SlabHeader, 2> copies;
    std::memcpy(copies.data(), header, sizeof copies);
    static_assert(sizeof copies == 2 * internal::kSlabCopyBytes);
    const size_t older = copies[0].generation < copies[1].generation ? 0 : 1;
    const size_t at = (lost == Copy::kOlder ? older : 1 - older) * internal::kSlabCopyBytes;
    const std::array<std::byte, 64> damage{std::byte{0x5a}};
    memory.store(header + at, damage.data(), damage.size());
    memory.flush(header + at, damage.size());
  });
  PMSTORE_CHECK(memory.drain().has_value(), "memory can always be drained");
  while (!arena.header_look().over) {
    PMSTORE_CHECK(store_->look_at_headers(1).has_value(), "memory can always be drained");
  }
  PMSTORE_CHECK(arena.header_look().mended > 0, "what is damaged is seen");
  recorder_->mark();
}

void RecordedStore::change_client(uint32_t client) {
  allow({content_digest(now_)});
  clients_[client] += kClients;
  first_[client] = store_->begin_session().value();
  recorder_->mark();
}

void RecordedStore::recreate_table() {
  allow({content_digest(now_), 0});
  const TableId dropped = history_.table;
  PMSTORE_CHECK(store_->drop_table(dropped).has_value(), "memory can always be drained");
  internal::TableDrop::Cursor cursor;
  while (!cursor.done) {
    auto freed = store_->free_dropped(nullptr, dropped, cursor);
    freed.start();
    PMSTORE_CHECK(freed.done() && freed.take().has_value(), "this CPU changes the words");
  }
  PMSTORE_CHECK(store_->live_records() == 0, "there was one table");
  recorder_->mark();
  allow({0, content_digest({})});
  now_.clear();
  history_.earlier_tables.push_back(dropped);
  history_.table = store_->catalog().create_table(kStoreTable).value();
  recorder_->mark();
  history_.transactions.push_back(
      {{}, false, content_digest({}), store_->catalog().header().epoch, {}});
}

std::vector<std::pair<uint64_t, uint64_t>> RecordedStore::places_of(
    const std::vector<KeyWrite>& writes) const {
  std::vector<std::pair<uint64_t, uint64_t>> places;
  for (const KeyWrite& w : writes) {
    const auto got = internal::get_from(*store_, history_.table, w.key);
    if (got && got->found()) places.emplace_back(got->reply.slot, got->reply.version);
  }
  return places;
}

void RecordedStore::commit(const std::vector<KeyWrite>& writes) {
  StoreContent after = now_;
  for (const KeyWrite& w : writes) {
    if (w.value) {
      after[w.key] = *w.value;
    } else {
      after.erase(w.key);
    }
  }
  const uint64_t digest = content_digest(after);
  describe(digest, content_text(after));
  allow({content_digest(now_), digest});
  const size_t number = history_.transactions.size();
  const uint32_t client = number % kClients;
  const TxId id{clients_[client], first_[client] + number};
  const auto before = places_of(writes);
  const Status done = commit_writes(*store_, id.client, history_.table, id.sequence, writes);
  PMSTORE_CHECK(done || done.code() == ErrorCode::kFull || done.code() == ErrorCode::kNotFound,
                "the script's transactions are right");
  if (done) now_ = std::move(after);
  auto places = places_of(writes);
  // What the server has done before the transaction is in the log in front of it.
  places.insert(places.end(), moved_.begin(), moved_.end());
  moved_.clear();
  // An erased or moved record leaves a tombstone, one version higher.
  if (done) {
    for (const auto& [slot, version] : before) places.emplace_back(slot, version + 1);
  }
  history_.transactions.push_back({id, done.has_value(), content_digest(now_),
                                   store_->catalog().header().epoch, std::move(places)});
  recorder_->mark();
}

KeyWrite RecordedStore::write_large(const char* key, uint32_t chunk) {
  KeyWrite write = this->write(key, kLargeBytes);
  const std::string header = forged_slab_header(chunk);
  const size_t before = internal::kSlabHeaderBytes + sizeof(RecordHeader) + write.key.size();
  write.value->replace(internal::kChunkBytes - before, header.size(), header);
  return write;
}

}  // namespace pmstore::crash
