#include "tests/crash/ring_run.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "log/ring.h"
#include "model/crash_recorder.h"
#include "model/page_bytes.h"
#include "tests/crash/ring_content.h"

namespace pmstore::crash {
namespace {

using model::Landing;
using model::Packet;

class RingRun final : public RecordedRun {
 public:
  RingRun(const std::string& scenario, uint64_t seed, persist::Domain domain, RingWriter writer)
      : RecordedRun(scenario, seed),
        domain_(domain),
        writer_(writer),
        random_(seed),
        region_(kRingBytes),
        memory_(region_.bytes(), {.domain = domain}) {
    recorder_.emplace(memory_);
    seed == 0 ? script() : draw();
    note({now_});
    trace_ = recorder_->take();
  }

  Result<std::unique_ptr<Restarted>> restart(std::span<std::byte> memory) const override {
    return std::make_unique<RestartedRing>(memory, domain_);
  }

 private:
  // A WRITE of one piece, in the RNIC's buffer.
  struct Arrived {
    uint64_t offset;
    std::vector<std::byte> bytes;
  };

  // ---- what a run consists of ----

  void script();
  void draw();
  void draw_one();

  void format() {
    note({now_, RingContent{}, fresh()});
    ring_.emplace(log::Ring::format(memory_, 0, kRingBytes, kRingSalt).value());
    acknowledged(fresh());
  }
  // The process ends, and another one reads what there is.
  void restart_process() {
    ring_.reset();
    recorder_->process_dies();
    const auto found = read_ring(memory_, ring_);
    PMSTORE_CHECK(found.has_value() && found->digest() == now_.digest(),
                  "the memory of a process that ends is as it left it");
  }
  void take_over(uint64_t owner, uint64_t expired_below_sequence = 0) {
    RingContent after = now_;
    after.owner = owner;
    if (owner != now_.owner) {
      after.entries.clear();
      after.expired_below_sequence = expired_below_sequence;
    }
    note({landed_.value_or(now_), now_, after});
    landed_.reset();
    PMSTORE_CHECK(ring_->take_over(owner, 0, expired_below_sequence).has_value(),
                  "the ring was walked");
    acknowledged(after);
  }
  void truncate(size_t kept) {
    RingContent after = now_;
    after.truncate(kept);
    after.expired_below_sequence = next_sequence_ - kept;
    note({now_, after});
    const uint64_t mark =
        kept == 0 ? ring_->position().tail_lsn : lsn_of(after.entries.front().sequence);
    PMSTORE_CHECK(ring_->truncate(memory_.drain().value(), mark, next_sequence_ - kept).has_value(),
                  "the mark is an entry");
    acknowledged(after);
  }
  // Acknowledged together.
  void append(const std::vector<size_t>& sizes);
  void append_by_cpu(const std::vector<size_t>& sizes);
  void append_by_device(const std::vector<size_t>& sizes);
  // Lands in the caches; then the process dies, or only the client is gone and the server walks.
  void land_then_restart(size_t bytes, bool restarts = true);
  // A header is stored and not flushed; then the process dies.
  void store_header_then_restart();
  // A client writes an entry behind the tail that only a header to come allows: of a later
  // incarnation, or of a later lap. Then its session ends, and the owner walks. Until that has
  // erased it, a start finds a damaged ring (docs/limits.md).
  void forge_then_walk(bool later_lap);

  // ---- the pieces of them ----

  static RingContent fresh() {
    RingContent content;
    content.ring = true;
    return content;
  }
  void note(const std::vector<RingContent>& possible) {
    std::vector<uint64_t> digests;
    for (const RingContent& content : possible) {
      digests.push_back(content.digest());
      describe(content.digest(), content.text());
    }
    allow(std::move(digests));
  }
  void acknowledged(RingContent now) {
    now_ = std::move(now);
    recorder_->mark();
  }
  uint64_t lsn_of(uint64_t sequence) {
    uint64_t found = 0;
    ring_->for_each_entry([&](const log::EntryView& entry) {
      if (entry.sequence == sequence) found = entry.lsn;
    });
    return found;
  }
  bool fits(const std::vector<size_t>& sizes) const;
  void land(std::deque<Arrived>& buffer);

  persist::Domain domain_;
  RingWriter writer_;
  Random random_;
  model::PageBytes region_;
  persist::Memory memory_;
  std::optional<model::CrashRecorder> recorder_;
  std::optional<log::Ring> ring_;
  RingContent now_;
  std::optional<RingContent> landed_;  // what a power cut may still fall back to
  uint64_t next_sequence_ = 1;
};

// ---- appending ----

bool RingRun::fits(const std::vector<size_t>& sizes) const {
  log::RingPosition position = ring_->position();
  for (const size_t bytes : sizes) {
    const auto plan = log::plan_entry(position, bytes, writer_ != RingWriter::kCpu);
    if (!plan) return false;
    position.tail_lsn = plan->next_lsn();
  }
  return true;
}

void RingRun::append(const std::vector<size_t>& sizes) {
  if (!fits(sizes)) return;
  std::vector<RingContent> possible = {now_};
  for (size_t i = 0; i < sizes.size(); ++i) {
    possible.push_back(possible.back());
    possible.back().append(next_sequence_ + i, ring_payload(next_sequence_ + i, sizes[i]));
  }
  note(possible);
  writer_ == RingWriter::kCpu ? append_by_cpu(sizes) : append_by_device(sizes);
  next_sequence_ += sizes.size();
  acknowledged(possible.back());
}

void RingRun::append_by_cpu(const std::vector<size_t>& sizes) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto payload = ring_payload(next_sequence_ + i, sizes[i]);
    PMSTORE_CHECK(ring_->append(next_sequence_ + i, payload).has_value(), "it fits");
  }
  PMSTORE_CHECK(memory_.drain().has_value(), "memory can always be drained");
}

// One-sided: every WRITE arrives in the RNIC's buffer and is acknowledged there; some time later,
// in order, it lands; the READ behind the last one is answered when all have landed. Only that
// acknowledges the entries.
void RingRun::append_by_device(const std::vector<size_t>& sizes) {
  std::deque<Arrived> buffer;
  log::RingPosition position = ring_->position();
  const auto arrives = [&](uint64_t lsn, std::span<const std::byte> bytes) {
    recorder_->on_packet(Packet::kArrived, 1, bytes.size());
    recorder_->on_packet(Packet::kAcknowledged, 1, bytes.size());
    buffer.push_back(
        {log::kRingHeaderBytes + lsn % position.data_bytes, {bytes.begin(), bytes.end()}});
  };
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto plan = log::plan_entry(position, sizes[i], true).value();
    if (plan.pad_bytes > 0) {
      std::array<std::byte, log::kMaxPadWriteBytes> pad;
      arrives(plan.pad_lsn, std::span(pad).first(log::seal_pad(pad, plan, position)));
    }
    const auto payload = ring_payload(next_sequence_ + i, sizes[i]);
    std::vector<std::byte> entry(log::entry_room(sizes[i]));
    std::copy(payload.begin(), payload.end(), entry.begin() + sizeof(log::EntryHeader));
    log::seal_entry(std::span(entry).first(plan.bytes), plan, position, sizes[i],
                    next_sequence_ + i);
    arrives(plan.lsn, std::span(entry).first(plan.bytes));
    position.tail_lsn = plan.next_lsn();
    while (!buffer.empty() && random_.below(3) == 0) land(buffer);
  }
  recorder_->on_packet(Packet::kArrived, 1, 0);  // the READ
  while (!buffer.empty()) land(buffer);
  recorder_->on_packet(Packet::kAcknowledged, 1, 8);
  recorder_->on_packet(Packet::kCompleted, 1, 8);
  PMSTORE_CHECK(ring_->note_tail(position.tail_lsn).has_value(), "the entries are there");
}

void RingRun::land(std::deque<Arrived>& buffer) {
  const Arrived& first = buffer.front();
  const bool ddio = domain_ == persist::Domain::kCpuCache;
  std::byte* const to = memory_.at(first.offset);
  recorder_->on_dma_write(to, first.bytes.data(), first.bytes.size(),
                          ddio ? Landing::kLastLevelCache : Landing::kMemory);
  std::memcpy(to, first.bytes.data(), first.bytes.size());
  buffer.pop_front();
}

// ---- dying in the middle ----

void RingRun::land_then_restart(size_t bytes, bool restarts) {
  const auto planned = log::plan_entry(ring_->position(), bytes, true);
  if (!planned || planned->pad_bytes > 0) return restart_process();
  const log::PlannedEntry& plan = *planned;
  const auto payload = ring_payload(next_sequence_, bytes);
  std::vector<std::byte> entry(log::entry_room(bytes));
  std::copy(payload.begin(), payload.end(), entry.begin() + sizeof(log::EntryHeader));
  log::seal_entry(std::span(entry).first(plan.bytes), plan, ring_->position(), bytes,
                  next_sequence_);
  const RingContent before = now_;
  RingContent after = now_;
  after.append(next_sequence_++, payload);
  note({before, after});
  const uint64_t at = log::kRingHeaderBytes + plan.lsn % ring_->position().data_bytes;
  memory_.store(memory_.at(at), entry.data(), plan.bytes);
  acknowledged(after);  // by nobody: the next process will see it
  landed_ = before;
  note({before, after});
  if (restarts) {
    restart_process();
  } else {
    PMSTORE_CHECK(ring_->walk([](const log::EntryView&) {}).has_value(), "the ring is sound");
  }
  recorder_->mark();
}

void RingRun::store_header_then_restart() {
  model::PageBytes copy(memory_.mapping());
  persist::Memory elsewhere(copy.bytes(), {.domain = domain_});
  auto ring = log::Ring::open(elsewhere, 0, kRingBytes, kRingSalt).value();
  PMSTORE_CHECK(ring.walk([](const log::EntryView&) {}) && ring.take_over(now_.owner),
                "it is sound");
  note({now_});
  for (uint64_t line = 0; line < kRingBytes; line += 64) {
    if (std::memcmp(memory_.at(line), elsewhere.at(line), 64) == 0) continue;
    memory_.store(memory_.at(line), elsewhere.at(line), 64);
  }
  restart_process();
  recorder_->mark();
}

void RingRun::forge_then_walk(bool later_lap) {
  constexpr size_t kBytes = 70;
  log::RingPosition position = ring_->position();
  const auto planned = log::plan_entry(position, kBytes, true);
  if (!planned || planned->pad_bytes > 0) return;
  RingContent damaged = now_;
  damaged.damaged = true;
  note({now_, damaged});
  log::PlannedEntry plan = *planned;
  std::vector<std::byte> entry(log::entry_room(kBytes));
  if (later_lap) {
    plan.lsn += position.data_bytes;
  } else {
    ++position.incarnation;
  }
  log::seal_entry(std::span(entry).first(plan.bytes), plan, position, kBytes, next_sequence_);
  std::byte* const to =
      memory_.at(log::kRingHeaderBytes + planned->lsn % ring_->position().data_bytes);
  if (domain_ != persist::Domain::kNone) {  // else no client writes there
    recorder_->on_dma_write(to, entry.data(), plan.bytes, Landing::kMemory);
    std::memcpy(to, entry.data(), plan.bytes);
  }
  PMSTORE_CHECK(ring_->walk([](const log::EntryView&) {}).has_value(), "a forged entry is erased");
  recorder_->mark();
}

// ---- whole runs ----

void RingRun::script() {
  format();
  take_over(5);
  append({10});
  append({70});
  append({300});
  append({1, 200, 33, 500});
  truncate(2);
  append({4000});
  append({4000, 40});
  land_then_restart(60);
  take_over(5);
  truncate(1);
  append({4000, 700});  // wraps
  land_then_restart(60, false);
  take_over(5);
  append({90});
  truncate(0);
  append({20, 20});
  store_header_then_restart();
  take_over(5);
  append({60});
  forge_then_walk(false);
  take_over(5);
  store_header_then_restart();
  truncate(1);
  take_over(5);
  land_then_restart(60);
  take_over(6);
  append({50});
  forge_then_walk(true);
  take_over(6);
  append({30});
  truncate(0);
  format();  // the header before the newest would bring back what was truncated
  append({50});
  append({900, 60, 60, 60});
  // Where the first of these is torn and the others are whole, the first entry of the next writer
  // has the length of the torn one: the others must not follow it.
  append(std::vector<size_t>(5, kRingWorkBytes));
}

void RingRun::draw() {
  if (random_.below(4) == 0) {
    // An old ring, full of entries that would fit behind those of a new one.
    format();
    while (fits({900})) append({900});
  }
  format();
  if (random_.below(4) != 0) take_over(1 + random_.below(3));
  for (uint64_t steps = 12 + random_.below(30); steps > 0; --steps) draw_one();
}

void RingRun::draw_one() {
  const uint64_t what = random_.below(21);
  if (what < 12) {
    if (random_.below(4) == 0) return append(std::vector<size_t>(4, kRingWorkBytes));
    std::vector<size_t> sizes(1 + (random_.below(2) == 0 ? random_.below(6) : 0));
    for (size_t& bytes : sizes) {
      static constexpr size_t kMost[] = {30, 100, 300, 1000, 5000};
      bytes = random_.below(kMost[random_.below(5)]);
    }
    return append(sizes);
  }
  if (what < 16) return truncate(std::min<size_t>(random_.below(3), now_.entries.size()));
  if (what == 16) land_then_restart(random_.below(150), random_.below(2) == 0);
  if (what == 17) store_header_then_restart();
  if (what == 18 || what == 19) restart_process();
  if (what == 20) forge_then_walk(random_.below(2) == 0);
  const bool another = random_.below(4) == 0;
  take_over(another ? 1 + random_.below(9) : now_.owner, random_.below(2) * next_sequence_);
}

}  // namespace

std::unique_ptr<RecordedRun> ring_run(const std::string& scenario, uint64_t seed,
                                      persist::Domain domain, RingWriter writer) {
  return std::make_unique<RingRun>(scenario, seed, domain, writer);
}

}  // namespace pmstore::crash
