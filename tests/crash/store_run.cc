#include "tests/crash/store_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/checksum.h"
#include "model/crash_recorder.h"
#include "model/page_bytes.h"
#include "persist/pool_layout.h"
#include "pmstore/layout/frame_layout.h"
#include "pmstore/layout/record_layout.h"
#include "pmstore/layout/slab_layout.h"
#include "tests/crash/restarted_store.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::crash {
namespace {

constexpr uint32_t kClients = 2;
constexpr uint32_t kChunks = 5;
constexpr size_t kLargeBytes = 70'000;  // of a value whose record has two chunks

// A ring that no client of lock discipline cpu needs: what an orderly stop can use.
constexpr uint64_t kRoomBytes = 32 << 10;
// Of what a free chunk keeps, as zeros: each line is an event.
constexpr uint64_t kReleasedBytes = 1 << 10;

// Of large stores: a transaction with one such record.
uint64_t log_bytes_of(StoreSize size) {
  return size == StoreSize::kLarge ? 3 * (kLargeBytes + 4096) : 32 << 10;
}
uint64_t room_bytes_of(StoreSize size) { return size == StoreSize::kWithRoom ? kRoomBytes : 0; }
uint64_t pool_bytes_of(StoreSize size) {
  const uint64_t bytes =
      persist::kPoolLayoutBytes + persist::round_up(log_bytes_of(size), persist::kXpLineBytes) +
      room_bytes_of(size) + kChunks * (internal::kChunkBytes + internal::kFrameHeaderBytes);
  return persist::round_up(bytes + 4096, 4096);
}

// The header of a slab of the smallest slots, newer than any that there is, for this chunk.
std::string forged_slab_header(uint32_t chunk) {
  internal::SlabHeader header{};
  header.magic = internal::kSlabMagic;
  header.generation = 1000;
  header.run_chunks = 1;
  const auto bytes = std::as_bytes(std::span(&header, 1));
  header.crc = base::crc32c(bytes.subspan(offsetof(internal::SlabHeader, generation)), chunk + 1);
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

class StoreRun final : public RecordedRun {
 public:
  StoreRun(const std::string& scenario, uint64_t seed, persist::Domain domain, StoreSize size,
           const persist::PaddingRules& padding)
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
    seed == 0 ? play_script() : draw();
    allow({content_digest(now_)});
    trace_ = recorder_->take();
    store_.reset();
    pool_.reset();
  }

  Result<std::unique_ptr<Restarted>> restart(std::span<std::byte> memory) const override {
    return RestartedStore::open(memory, domain_, history_);
  }

  // A start of a store takes about 100 us, of a large one more.
  // Without a persistence domain more lines are in doubt for longer.
  uint64_t samples() const override {
    return size_ == StoreSize::kLarge || domain_ == persist::Domain::kNone ? 16 : 64;
  }
  uint64_t most_exhaustive() const override {
    return domain_ == persist::Domain::kNone ? 256 : UINT64_MAX;
  }
  uint64_t death_every() const override { return size_ == StoreSize::kLarge ? 64 : 16; }

 private:
  void play_script() {
    switch (size_) {
      case StoreSize::kSmall: return script();
      case StoreSize::kLarge: return large_script();
      case StoreSize::kFrames: return frames_script();
      case StoreSize::kWithRoom: return checkpoint_script();
    }
  }
  void script();
  void large_script();
  void frames_script();
  void moves_script();
  void checkpoint_script();
  void draw();
  void draw_one();

  void format();
  void open();
  // The server's process dies, and another one starts.
  void restart_process();
  // The same, when the store was closed before.
  void close_and_restart();
  // The table is dropped with its records, and another one gets its name.
  void recreate_table();
  // Extents without records go back to the pool.
  void give_frames_back();
  // Records leave slabs of which little is used.
  void move_records();
  // The medium loses one copy of each header of a slab, and then they are looked at.
  enum class Copy { kOlder, kNewest };
  void mend_headers(Copy lost);
  // Another client comes for one that is gone.
  void change_client(uint32_t client);
  // Where the keys of these writes are now, with their versions.
  std::vector<std::pair<uint64_t, uint64_t>> places_of(const std::vector<KeyWrite>& writes) const;
  void commit(const std::vector<KeyWrite>& writes);
  KeyWrite write(const char* key, size_t bytes) {
    // Different in each transaction.
    std::string value = fmt::format("{}.", history_.transactions.size());
    value.resize(std::max(bytes, value.size()), key[0]);
    return {key, std::move(value)};
  }
  // Of two chunks; if the second one is `chunk`, its first bytes there are a header.
  KeyWrite write_large(const char* key, uint32_t chunk);
  static KeyWrite erase(const char* key) { return {key, std::nullopt}; }

  persist::Domain domain_;
  StoreSize size_;
  Random random_;
  model::PageBytes region_;
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<internal::Store> store_;
  std::optional<model::CrashRecorder> recorder_;
  std::array<uint64_t, kClients> clients_ = {kStoreClient, kStoreClient + 1};
  std::array<uint64_t, kClients> first_{};  // their transaction numbers
  StoreContent now_;
  // Slots and versions of moved records and their tombstones, since the last transaction.
  std::vector<std::pair<uint64_t, uint64_t>> moved_;
  StoreHistory history_;
};

void StoreRun::format() {
  describe(0, "no store");
  describe(content_digest({}), "no records");
  allow({0, content_digest({})});
  FormatOptions options{.rings = size_ == StoreSize::kWithRoom ? 1u : 0u,
                        .ring_bytes = kRoomBytes,
                        .identity = seed() + 1,
                        .shard_log_bytes = log_bytes_of(size_)};
  if (size_ == StoreSize::kFrames) options.frame_bytes = 2 * internal::kChunkBytes;
  PMSTORE_CHECK(format_store(*pool_, options).has_value(), "the region is large enough");
  open();
  history_.table = store_->catalog().create_table(kStoreTable).value();
  recorder_->mark();
  history_.transactions.push_back({{}, false, content_digest({}), 0, {}});
}

void StoreRun::open() {
  auto opened = internal::Store::open(*pool_);
  PMSTORE_CHECK(opened.has_value(), opened ? "" : opened.error().message.c_str());
  store_ = std::move(*opened);
  for (uint64_t& first : first_) first = store_->begin_session().value();
}

void StoreRun::restart_process() {
  allow({content_digest(now_)});
  store_.reset();
  recorder_->process_dies();
  open();
  recorder_->mark();
}

void StoreRun::close_and_restart() {
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

void StoreRun::give_frames_back() {
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

void StoreRun::move_records() {
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

void StoreRun::mend_headers(Copy lost) {
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

void StoreRun::change_client(uint32_t client) {
  allow({content_digest(now_)});
  clients_[client] += kClients;
  first_[client] = store_->begin_session().value();
  recorder_->mark();
}

void StoreRun::recreate_table() {
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

std::vector<std::pair<uint64_t, uint64_t>> StoreRun::places_of(
    const std::vector<KeyWrite>& writes) const {
  std::vector<std::pair<uint64_t, uint64_t>> places;
  for (const KeyWrite& w : writes) {
    const auto got = internal::get_from(*store_, history_.table, w.key);
    if (got && got->found()) places.emplace_back(got->reply.slot, got->reply.version);
  }
  return places;
}

void StoreRun::commit(const std::vector<KeyWrite>& writes) {
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

void StoreRun::script() {
  commit({write("a", 140), write("b", 210)});  // two slabs
  commit({write("a", 140), write("c", 500)});  // another
  commit({write("b", 210), erase("c")});
  commit({write("c", 500), write("a", 210)});  // reuses a slot; moves a record
  restart_process();
  commit({erase("a"), write("b", 140)});
  close_and_restart();
  commit({write("d", 1500), write("c", 400)});
  // The rings wrap, with truncation on the way; small records are only in the rings, some of them
  // in one entry only.
  for (int i = 0; i < 26; ++i) {
    const char* const small = history_.keys[4 + i / 2 % 4].c_str();
    commit({write("d", 1500), write(small, 140)});
  }
  change_client(0);
  restart_process();
  commit({write("b", 1500)});  // a second slot of the slab that will be given back
  commit({write("a", 3000)});  // the last free chunk
  commit({erase("d"), erase("b")});
  // Until the tombstones are in no ring any more.
  for (int i = 0; i < 12; ++i) commit({write("a", 3000)});
  commit({write("f", 900)});  // does not fit where it is: the slab is given back
  commit({write("a", 900), write("b", 140)});
  commit({write("f", 100), erase("h")});
  commit({erase("a")});
  commit({write("g", 1900)});  // gives a slab back whose tombstone is still in a ring
  commit({write("a", 140)});
  // Records of the dropped table are in the rings, and in slots that are used again.
  recreate_table();
  commit({write("b", 140)});
  restart_process();
  commit({write("a", 140), write("g", 900)});
  recreate_table();
  close_and_restart();
  commit({write("c", 140)});
}

KeyWrite StoreRun::write_large(const char* key, uint32_t chunk) {
  KeyWrite write = this->write(key, kLargeBytes);
  const std::string header = forged_slab_header(chunk);
  const size_t before = internal::kSlabHeaderBytes + sizeof(RecordHeader) + write.key.size();
  write.value->replace(internal::kChunkBytes - before, header.size(), header);
  return write;
}

void StoreRun::large_script() {
  commit({write("a", 140)});
  commit({write_large("b", 2)});
  commit({write("c", 500)});
  commit({write("d", 1500)});
  commit({erase("b")});
  commit({write("e", 3000)});  // gives both chunks back, takes the first
  restart_process();
  commit({write("a", 100), write("f", 5000)});  // takes the second
  commit({erase("e"), erase("f")});
  commit({write_large("g", 2)});  // both again
  commit({write("a", 140), erase("g")});
  close_and_restart();
  commit({write("h", 6000)});
}

void StoreRun::frames_script() {
  commit({write("a", 140)});                     // the chunk that was made with the pool
  commit({write("b", 500)});                     // takes an extent
  commit({write("c", 1500), write("d", 3000)});  // two more
  for (int i = 0; i < 3; ++i) commit({write("b", 500)});
  commit({write("e", 6000)});    // the last that there is room for
  commit({write("f", 12'000)});  // Full
  commit({erase("b"), erase("c"), erase("e")});
  give_frames_back();         // what was erased is still in the log
  commit({write("b", 500)});  // a frame that had another extent
  commit({write("f", 12'000)});
  restart_process();
  commit({write("b", 500), erase("d")});
  commit({erase("f"), erase("a")});
  give_frames_back();
  close_and_restart();
  give_frames_back();
  commit({write("g", 900), write("h", 3000)});
  commit({erase("b"), write("a", 1500)});
  give_frames_back();
  restart_process();
  commit({write("b", 140), write("g", 900)});
  moves_script();
}

// The record in the last frame finds room in front of it.
void StoreRun::moves_script() {
  for (const std::string& key : history_.keys) {
    if (now_.contains(key)) commit({erase(key.c_str())});
  }
  give_frames_back();
  commit({write("a", 140), write("b", 500)});
  commit({write("c", 900), write("d", 1500)});
  commit({erase("a"), erase("b")});
  const uint64_t moved = store_->moved_records();
  move_records();
  PMSTORE_CHECK(store_->moved_records() > moved, "the script has what should move");
  give_frames_back();
  commit({write("a", 140)});
  restart_process();
  commit({write("d", 1500)});
}

// A start that uses what a stop has left, changes behind it, and another stop, in each order.
void StoreRun::checkpoint_script() {
  commit({write("a", 140), write("b", 500)});
  commit({erase("b"), write("c", 140)});
  close_and_restart();
  commit({write("a", 140), write("b", 500)});
  close_and_restart();
  mend_headers(Copy::kOlder);
  close_and_restart();
  mend_headers(Copy::kNewest);  // both say the same
  commit({write("e", 900)});
  close_and_restart();
  close_and_restart();  // nothing has changed
  commit({erase("c"), write("d", 210)});
  restart_process();
  commit({write("c", 140)});
  close_and_restart();
  recreate_table();
  commit({write("a", 140)});
  close_and_restart();
  restart_process();
  commit({write("b", 140)});
}

void StoreRun::draw() {
  const uint64_t least = size_ == StoreSize::kLarge ? 8 : 20;
  for (uint64_t steps = least + random_.below(least); steps > 0; --steps) draw_one();
}

void StoreRun::draw_one() {
  if (random_.below(15) == 0) return restart_process();
  if (random_.below(25) == 0) return close_and_restart();
  if (size_ == StoreSize::kFrames && random_.below(2) == 0) {
    return random_.below(2) == 0 ? give_frames_back() : move_records();
  }
  if (random_.below(30) == 0) return recreate_table();
  if (random_.below(15) == 0) return change_client(static_cast<uint32_t>(random_.below(kClients)));
  std::vector<KeyWrite> writes;
  const size_t count = 1 + random_.below(3);
  const size_t first = random_.below(history_.keys.size() - 1);
  static constexpr size_t kBytes[] = {100, 150, 210, 500, 900, 1500, 3000};
  const size_t largest = 1 + random_.below(std::size(kBytes));
  for (size_t i = 0; i < count; ++i) {
    const std::string& key = history_.keys[(first + i) % (history_.keys.size() - 1)];
    if (random_.below(4) == 0 && now_.contains(key)) {
      writes.push_back(erase(key.c_str()));
    } else if (size_ == StoreSize::kLarge && i == 0 && random_.below(3) == 0) {
      writes.push_back(write_large(key.c_str(), 1 + static_cast<uint32_t>(random_.below(4))));
    } else {
      writes.push_back(write(key.c_str(), kBytes[random_.below(largest)]));
    }
  }
  commit(writes);
}

}  // namespace

std::unique_ptr<RecordedRun> store_run(const std::string& scenario, uint64_t seed,
                                       persist::Domain domain, StoreSize size,
                                       const persist::PaddingRules& padding) {
  return std::make_unique<StoreRun>(scenario, seed, domain, size, padding);
}

}  // namespace pmstore::crash
