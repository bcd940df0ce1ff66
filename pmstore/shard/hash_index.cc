#include "pmstore/shard/hash_index.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "pmstore/shard/shared_pages.h"

namespace pmstore::internal {

namespace {

constexpr uint64_t kFirstVersion = 2;  // 0 is that of memory that was never used

}  // namespace

Result<HashIndex> HashIndex::create(uint64_t records_bytes) {
  if (records_bytes > BucketEntry::kMostRecordsBytes) {
    return make_error(
        ErrorCode::kUnsupported,
        "records take more than 4 TiB, which the index cannot name; use several pools");
  }
  // The smallest records, each in a slot of 64 B, and whole pieces.
  const uint64_t buckets = std::max(records_bytes / 64 / kGrowAbove, kLeastBuckets);
  const uint64_t pieces = (buckets + kBucketsPerPiece - 1) / kBucketsPerPiece;
  const uint64_t most = std::min(pieces * kBucketsPerPiece, kMostBuckets);
  auto pages = map_pages(most * sizeof(Bucket));
  if (!pages) return pages.error();
  HashIndex index(reinterpret_cast<Bucket*>(pages->data()), most);
  index.use_from_begin(kLeastBuckets);
  return index;
}

HashIndex::HashIndex(HashIndex&& other) noexcept
    : buckets_(std::exchange(other.buckets_, nullptr)),
      most_(other.most_),
      count_(other.count_),
      end_(other.end_),
      late_(std::move(other.late_)),
      overflow_(std::move(other.overflow_)),
      changing_(std::move(other.changing_)),
      size_(other.size_),
      overflowed_(other.overflowed_),
      splits_(other.splits_),
      merges_(other.merges_),
      keeps_memory_(other.keeps_memory_),
      keeps_size_(other.keeps_size_),
      look_(std::move(other.look_)) {}

HashIndex::~HashIndex() {
  if (buckets_ == nullptr) return;
  unmap_pages(std::as_writable_bytes(std::span(buckets_, most_)));
}

// Of an index without entries: the buckets have the depths that splits would have given them.
void HashIndex::use_from_begin(uint64_t count) {
  PMSTORE_CHECK(size_ == 0 && count >= kLeastBuckets && count <= most_, "an empty index of a size");
  const uint64_t whole = std::bit_floor(count);
  const auto depth = static_cast<unsigned>(std::countr_zero(whole));
  join_pieces(count);
  for (uint64_t bucket = 0; bucket < count; ++bucket) {
    const bool deeper = bucket < count - whole || bucket >= whole;
    set(buckets_[bucket].shape, BucketShape::make(depth + (deeper ? 1 : 0), 0));
    set(buckets_[bucket].version, kFirstVersion);
  }
  count_ = end_ = count;
}

void HashIndex::expect(uint64_t entries) {
  PMSTORE_CHECK(splits_ == 0 && end_ == kLeastBuckets, "room is made before the first entry");
  use_from_begin(std::clamp((entries + kGrowAbove - 1) / kGrowAbove, kLeastBuckets, most_));
  keeps_size_ = true;
}

void HashIndex::expect_no_more() {
  keeps_size_ = false;
  while (late_.empty() && is_too_large() && shrink()) {
  }
}

std::span<std::byte> HashIndex::piece(uint64_t number) const {
  if (number * kBucketsPerPiece >= end_) return {};
  return memory_of(number);
}

// ---- changes ----

void HashIndex::begin_change(KeyHash hash) {
  const uint64_t bucket = bucket_of(hash);
  const uint64_t version = buckets_[bucket].version;
  if (version % 2 == 0) {
    set(buckets_[bucket].version, version + 1);
  } else {
    ++changing_[bucket];
  }
}

void HashIndex::end_change(KeyHash hash) {
  const uint64_t bucket = bucket_of(hash);
  if (!changing_.empty()) {
    if (auto deeper = changing_.find(bucket); deeper != changing_.end()) {
      if (--deeper->second == 0) changing_.erase(deeper);
      return;
    }
  }
  PMSTORE_CHECK(in_change(bucket), "end_change() follows begin_change()");
  set(buckets_[bucket].version, buckets_[bucket].version + 1);
  adapt();
}

void HashIndex::insert(KeyHash hash, uint8_t size_class, SlotOffset slot) {
  const uint64_t number = bucket_of(hash);
  Bucket& bucket = buckets_[number];
  PMSTORE_CHECK(bucket.version % 2 == 1, "a bucket changes only between begin and end");
  const BucketEntry entry = BucketEntry::make(hash.tag(), size_class, slot);
  PMSTORE_CHECK(entry.slot() == slot && entry.size_class() == size_class,
                "an entry has room for every slot of the largest pool");
  ++size_;
  for (uint64_t& word : bucket.entries) {
    if (word == 0) {
      set(word, entry.bits);
      return;
    }
  }
  OverflowLists::List& list = overflow_.of(number);
  list.push_back(entry);
  set(bucket.shape, BucketShape::make(bucket.shape.depth(), bucket.shape.overflow() + 1));
  PMSTORE_CHECK(list.size() == bucket.shape.overflow(), "the shape has the length of the list");
  ++overflowed_;
}

void HashIndex::erase(KeyHash hash, SlotOffset slot) {
  const uint64_t number = bucket_of(hash);
  Bucket& bucket = buckets_[number];
  PMSTORE_CHECK(bucket.version % 2 == 1, "a bucket changes only between begin and end");
  const auto shown =
      std::find_if(std::begin(bucket.entries), std::end(bucket.entries),
                   [&](uint64_t word) { return word != 0 && BucketEntry{word}.slot() == slot; });
  const bool is_shown = shown != std::end(bucket.entries);
  --size_;
  if (is_shown && bucket.shape.overflow() == 0) return set(*shown, 0);
  OverflowLists::List* const found = overflow_.find(number);
  PMSTORE_CHECK(found != nullptr && found->size() == bucket.shape.overflow(),
                "what is erased is in the index, and the shape has the length of the list");
  OverflowLists::List& list = *found;
  if (is_shown) {
    // Clients find what is in the bucket itself without asking: refill it from the overflow.
    set(*shown, list.back().bits);
    list.pop_back();
  } else {
    const auto listed = std::find_if(list.begin(), list.end(),
                                     [&](BucketEntry entry) { return entry.slot() == slot; });
    PMSTORE_CHECK(listed != list.end(), "what is erased is in the index");
    list.erase(listed);
  }
  set(bucket.shape, BucketShape::make(bucket.shape.depth(), list.size()));
  if (list.empty()) overflow_.erase(number);
  --overflowed_;
}

// ---- growing and shrinking ----

void HashIndex::adapt() {
  for (unsigned step = 0; step < kStepsPerChange; ++step) {
    bool done = false;
    if (!late_.empty()) {
      done = make_up();
    } else if (is_too_large() && !keeps_size_) {
      done = shrink();
    }
    if (!done && size_ > count_ * kGrowAbove && count_ < most_) done = grow();
    if (!done) return;
  }
}

// Adds the next bucket, late where its parent cannot split now.
bool HashIndex::grow() {
  const uint64_t child = count_++;
  if (count_ % kBucketsPerPiece == 0) join_pages(memory_of(count_ / kBucketsPerPiece - 1));
  end_ = std::max(end_, count_);
  if (can_split_off(child)) {
    split_off(child);
  } else {
    late_.push_back(child);
  }
  return true;
}

// Splits off the late bucket that was not tried for the longest time.
bool HashIndex::make_up() {
  const uint64_t child = late_.front();
  late_.pop_front();
  const bool can = can_split_off(child);
  can ? split_off(child) : late_.push_back(child);
  return can;
}

// A parent that is late itself, or has another late child before this one, splits later.
bool HashIndex::can_split_off(uint64_t child) const {
  const uint64_t parent = parent_bucket(child);
  const auto depth = static_cast<unsigned>(std::countr_zero(child - parent));
  return buckets_[parent].shape.depth() == depth && !in_change(parent);
}

bool HashIndex::shrink() {
  PMSTORE_CHECK(late_.empty(), "what is undone was done");
  const uint64_t child = count_ - 1;
  if (in_change(child) || in_change(parent_bucket(child))) return false;
  merge_back(child);
  count_ = child;
  if (count_ % kBucketsPerPiece == 0) release_piece(count_ / kBucketsPerPiece);
  return true;
}

std::vector<BucketEntry> HashIndex::take_overflow(uint64_t bucket) {
  std::vector<BucketEntry> taken = overflow_.take(bucket);
  overflowed_ -= taken.size();
  return taken;
}

// Gives a bucket that is in change its content.
void HashIndex::fill(uint64_t number, unsigned depth, std::span<const BucketEntry> entries) {
  Bucket& bucket = buckets_[number];
  PMSTORE_CHECK(bucket.version % 2 == 1, "a bucket changes only between begin and end");
  for (size_t i = 0; i < kBucketEntries; ++i) {
    step(bucket.entries[i], i < entries.size() ? entries[i].bits : uint64_t{0});
  }
  const auto rest = entries.subspan(std::min(entries.size(), kBucketEntries));
  if (!rest.empty()) overflow_.put(number, rest);
  overflowed_ += rest.size();
  step(bucket.shape, BucketShape::make(depth, rest.size()));
}

// Both versions are odd before the first entry moves and even after the last one has: so a reader
// that sees the parent stable sees it with all its entries, or knows by its depth that some are in
// the child; and one that sees the child in use and stable sees all that has moved there.
void HashIndex::split_off(uint64_t child) {
  const uint64_t parent = parent_bucket(child);
  Bucket& from = buckets_[parent];
  Bucket& to = buckets_[child];
  const unsigned depth = from.shape.depth();
  const uint64_t version = from.version;
  PMSTORE_CHECK(version % 2 == 0 && !to.shape.in_use() && version > to.version &&
                    child == parent + (uint64_t{1} << depth),
                "a stable bucket splits off its next child, at a version that the child never had");
  std::vector<BucketEntry> all = take_overflow(parent);
  for (const uint64_t bits : from.entries) {
    if (bits != 0) all.push_back({bits});
  }
  const auto moving = std::partition(all.begin(), all.end(),
                                     [&](BucketEntry entry) { return !entry.hash_bit(depth); });
  step(from.version, version + 1);
  step(to.version, version + 1);
  fill(child, depth + 1, {moving, all.end()});
  fill(parent, depth + 1, {all.begin(), moving});
  step(to.version, version + 2);
  step(from.version, version + 2);
  ++splits_;
}

// The child stays odd: a version that somebody has seen there is never shown again, since the
// parent goes above it, and the child begins above the parent when it splits off once more.
void HashIndex::merge_back(uint64_t child) {
  Bucket& to = buckets_[parent_bucket(child)];
  Bucket& from = buckets_[child];
  const unsigned depth = to.shape.depth();
  PMSTORE_CHECK(to.version % 2 == 0 && from.version % 2 == 0 && from.shape.depth() == depth,
                "two stable halves of one bucket are merged");
  std::vector<BucketEntry> all = take_overflow(parent_bucket(child));
  const std::vector<BucketEntry> others = take_overflow(child);
  all.insert(all.end(), others.begin(), others.end());
  for (const Bucket* const half : {&to, &from}) {
    for (const uint64_t bits : half->entries) {
      if (bits != 0) all.push_back({bits});
    }
  }
  const uint64_t version = std::max(to.version, from.version);
  step(to.version, version + 1);
  step(from.version, version + 1);
  fill(child, 0, {});
  fill(parent_bucket(child), depth - 1, all);
  step(to.version, version + 2);
  ++merges_;
}

// What is READ of it from here on is zero: not in use.
void HashIndex::release_piece(uint64_t number) {
  if (keeps_memory_) return;
  release_pages(memory_of(number));
}

void HashIndex::keep_memory() {
  if (!std::exchange(keeps_memory_, true))
    join_pages(std::as_writable_bytes(std::span(buckets_, most_)));
}

// Before so many buckets are used at once. The last piece keeps small pages until it is full.
void HashIndex::join_pieces(uint64_t count) {
  join_pages(
      std::as_writable_bytes(std::span(buckets_, count / kBucketsPerPiece * kBucketsPerPiece)));
}

std::span<std::byte> HashIndex::memory_of(uint64_t number) const {
  return std::as_writable_bytes(std::span(buckets_ + number * kBucketsPerPiece, kBucketsPerPiece));
}

// ---- checkpoint ----

namespace {

constexpr uint64_t kBucketsPerPart = 1 << 15;

struct SavedIndex {
  uint64_t buckets;
  uint64_t entries;
};

// Depth 0: a late bucket.
struct SavedBucket {
  uint32_t depth : 8;
  uint32_t entries : 24;
};
static_assert(sizeof(SavedBucket) == 4 && kMostDepth < 256);
constexpr uint64_t kMostInBucket = (1 << 24) - 1;

}  // namespace

Status HashIndex::save(CheckpointWriter& writer) const {
  const std::span<const Bucket> all(buckets_, count_);
  const bool stable = std::all_of(all.begin(), all.end(), [](const Bucket& bucket) {
    return bucket.version % 2 == 0 || !bucket.shape.in_use();
  });
  if (!stable) return make_error(ErrorCode::kConflict, "a bucket of the index is in change");
  writer.begin_section("index");
  writer.put(SavedIndex{count_, size_});
  uint32_t part = 0;
  for (uint64_t first = 0; first < count_; first += kBucketsPerPart) {
    writer.begin_section("buckets", part++);
    PMSTORE_TRY_STATUS(save_part(writer, first, std::min(kBucketsPerPart, count_ - first)));
  }
  return {};
}

// Depth and number of entries of each bucket, then the entries.
Status HashIndex::save_part(CheckpointWriter& writer, uint64_t first, uint64_t count) const {
  const std::span<const Bucket> buckets(buckets_ + first, count);
  for (const Bucket& bucket : buckets) {
    const auto used = std::count_if(std::begin(bucket.entries), std::end(bucket.entries),
                                    [](uint64_t bits) { return bits != 0; });
    const uint64_t all = static_cast<uint64_t>(used) + bucket.shape.overflow();
    if (all > kMostInBucket) return make_error(ErrorCode::kConflict, "a bucket is too long");
    writer.put(SavedBucket{bucket.shape.depth() & 0xff, static_cast<uint32_t>(all) & 0xffffff});
  }
  for (const Bucket& bucket : buckets) {
    for (const uint64_t bits : bucket.entries) {
      if (bits != 0) writer.put(bits);
    }
    if (bucket.shape.overflow() == 0) continue;
    const auto* const list = overflow_.find(static_cast<uint64_t>(&bucket - buckets_));
    PMSTORE_CHECK(list != nullptr && list->size() == bucket.shape.overflow(),
                  "the shape has the length of the list");
    for (const BucketEntry entry : *list) writer.put(entry.bits);
  }
  return {};
}

Status HashIndex::load(CheckpointLoad& load) {
  PMSTORE_CHECK(size_ == 0 && splits_ == 0, "an index is loaded once");
  SavedIndex saved{};
  auto section = load.reader().section("index");
  const bool fits =
      section && section->read(saved) && saved.buckets >= kLeastBuckets && saved.buckets <= most_;
  const uint64_t count = fits ? (saved.buckets + kBucketsPerPart - 1) / kBucketsPerPart : 0;
  if (!fits || load.reader().parts("buckets") != count) {
    return make_error(ErrorCode::kDamaged, "its hash index has another size");
  }
  join_pieces(saved.buckets);
  auto parts = std::make_shared<std::vector<LoadedPart>>(count);
  for (uint32_t i = 0; i < count; ++i) {
    load.add([this, &load, parts, saved, i] {
      const uint64_t first = i * kBucketsPerPart;
      auto part = load.reader().section("buckets", i);
      return part &&
             load_part(*part, first, std::min(kBucketsPerPart, saved.buckets - first), (*parts)[i]);
    });
  }
  load.add_step([this, parts, saved] {
    count_ = end_ = saved.buckets;
    size_t lists = 0;
    for (const LoadedPart& part : *parts) lists += part.overflow.size();
    overflow_.expect(lists);
    for (LoadedPart& part : *parts) {
      size_ += part.entries;
      late_.insert(late_.end(), part.late.begin(), part.late.end());
      for (auto& [bucket, list] : part.overflow) {
        overflowed_ += list.size();
        overflow_.put(bucket, list);
      }
    }
    return size_ == saved.entries;
  });
  return {};
}

bool HashIndex::load_part(CheckpointReader::Section& section, uint64_t first, uint64_t count,
                          LoadedPart& part) {
  std::vector<SavedBucket> saved(count);
  if (!section.read(saved.data(), count * sizeof(SavedBucket))) return false;
  for (uint64_t i = 0; i < count; ++i) {
    Bucket& bucket = buckets_[first + i];
    if (saved[i].depth > kMostDepth || (saved[i].depth == 0 && saved[i].entries > 0)) return false;
    const size_t inside = std::min<size_t>(saved[i].entries, kBucketEntries);
    const size_t overflow = saved[i].entries - inside;
    bucket.shape = BucketShape::make(saved[i].depth, overflow);
    bucket.version = kFirstVersion;
    if (saved[i].depth == 0) {
      bucket.version = 0;
      part.late.push_back(first + i);
      continue;
    }
    if (!section.read(bucket.entries, inside * sizeof(uint64_t))) return false;
    part.entries += saved[i].entries;
    if (overflow == 0) continue;
    if (overflow > section.left() / sizeof(BucketEntry)) return false;
    std::vector<BucketEntry> list(overflow);
    if (!section.read(list.data(), list.size() * sizeof(BucketEntry))) return false;
    part.overflow.emplace_back(first + i, std::move(list));
  }
  return section.ended_well();
}

}  // namespace pmstore::internal
