#include "tests/crash/ring_rnic_run.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/page_bytes.h"
#include "tests/crash/crash_machine.h"
#include "tests/crash/ring_content.h"
#include "tests/crash/ring_host.h"

namespace pmstore::crash {
namespace {

using persist::WriteStrategy;
using Sizes = std::vector<size_t>;

constexpr WriteStrategy kStrategies[] = {WriteStrategy::kAuto, WriteStrategy::kNaive,
                                         WriteStrategy::kOutstanding, WriteStrategy::kDoorbell,
                                         WriteStrategy::kTwoSided};

// Invariants: `entries_` are all that were ever given to an appender and not found missing since,
// in order; of these, [header_.first, acknowledged_) must be there after a power cut, and behind
// them any prefix of the rest may. While a truncation or a take-over is under way, `next_header_`
// may be what the ring says as well.
class RingRnicRun final : public RecordedRun, private log::RemoteAppender::RoomMaker {
 public:
  RingRnicRun(const std::string& scenario, uint64_t seed, const RnicRing& what)
      : RecordedRun(scenario, seed),
        what_(what),
        random_(seed),
        region_(kRingBytes),
        memory_(region_.bytes(), {.domain = what.domain}) {
    static constexpr double kHoldNs[] = {4000, 0, 700};
    machine_.emplace(CrashMachine::Options{.ddio = what.ddio,
                                           .hold_ns = kHoldNs[seed % 3],
                                           .slow_memory = seed % 2 == 0,
                                           .seed = seed + 1});
    machine_->record(memory_);
    allow({kNothing, content(header_, 0).digest()});
    host_.emplace(machine_->server(), machine_->executor(), memory_,
                  RingHost::Options{what.domain, what.rule_h7});
    promise();
    seed == 0 ? script() : draw();
    trace_ = machine_->take();
    link_.reset();
    host_.reset();
    machine_.reset();
  }

  Result<std::unique_ptr<Restarted>> restart(std::span<std::byte> memory) const override {
    return std::make_unique<RestartedRing>(memory, what_.domain);
  }

 private:
  struct Header {
    size_t first = 0;  // of entries_
    uint64_t owner = 0;
    uint64_t expired_below_sequence = 0;
  };
  // One call of an appender.
  struct Call {
    Sizes sizes;
    bool all = false;  // append_all()
    bool gather = false;
    size_t end = 0;  // its last one in entries_, and one
    bool over = false;
  };

  // ---- what a run consists of ----

  void script();
  void draw();
  void draw_one();

  // The client before is fenced, if there is one.
  void connect(uint64_t owner, WriteStrategy strategy);
  // Keeps at least the last `kept` entries: the mark is between two calls.
  void truncate(size_t kept);
  // One after the other; they return when all is acknowledged.
  void append(size_t bytes) { append_together({bytes}); }
  void append_all(const Sizes& sizes, bool gather = false);
  // At the same time.
  void append_together(const Sizes& sizes);
  // The same, and the server ends the connection some time after. The next thing is connect().
  void append_and_fence(const Sizes& sizes, uint64_t ns);

  // ---- the pieces of them ----

  RingContent content(const Header& header, size_t end) const;
  // From here on this is right, until it is said again.
  void promise();
  void make_room_for(const Sizes& sizes);
  void begin(std::vector<Call>& calls);
  void finish(const std::vector<Call>& calls);
  base::Task<void> run(Call& call, uint64_t sequence);
  base::Task<Result<log::RemoteAppender::Appended>> call_appender(Call& call, uint64_t sequence);
  base::Task<Status> truncate_to(size_t first);
  base::Task<Result<uint64_t>> make_room(uint64_t tail_lsn, uint64_t bytes) override;
  size_t find_entries();

  static std::vector<std::byte> prefix() { return ring_payload(777, 24); }

  RnicRing what_;
  Random random_;
  model::PageBytes region_;
  persist::Memory memory_;
  std::optional<CrashMachine> machine_;
  std::optional<RingHost> host_;
  std::unique_ptr<RingLink> link_;
  std::vector<RingContent::Entry> entries_;
  size_t acknowledged_ = 0;
  Header header_;
  std::optional<Header> next_header_;
  std::map<size_t, uint64_t> marks_at_;  // where the ring may be truncated: entries, LSN
  uint64_t next_sequence_ = 1;
};

// ---- what is right ----

RingContent RingRnicRun::content(const Header& header, size_t end) const {
  RingContent content;
  content.ring = true;
  content.owner = header.owner;
  content.expired_below_sequence = header.expired_below_sequence;
  const size_t first = std::min(header.first, end);
  content.entries.assign(entries_.begin() + static_cast<ptrdiff_t>(first),
                         entries_.begin() + static_cast<ptrdiff_t>(end));
  return content;
}

void RingRnicRun::promise() {
  machine_->recorder().mark();
  std::vector<uint64_t> digests;
  for (size_t end = acknowledged_; end <= entries_.size(); ++end) {
    for (const Header* header : {&header_, next_header_ ? &*next_header_ : nullptr}) {
      if (header == nullptr) continue;
      const RingContent right = content(*header, end);
      digests.push_back(right.digest());
      describe(right.digest(), right.text());
    }
  }
  allow(std::move(digests));
}

// ---- clients that come and go ----

// What is in the ring, as the server knows it; notes where it may be truncated.
size_t RingRnicRun::find_entries() {
  size_t found = 0;
  marks_at_.clear();
  host_->ring().for_each_entry([&](const log::EntryView& entry) {
    ++found;
    marks_at_[header_.first + found] = entry.next_lsn;
  });
  return found;
}

void RingRnicRun::connect(uint64_t owner, WriteStrategy strategy) {
  const bool one_sided = host_->capability().one_sided_durable();
  link_.reset();
  next_header_ = header_;
  if (owner != header_.owner) next_header_ = Header{entries_.size(), owner, 0};
  promise();
  const persist::RemoteWriterOptions writer{one_sided ? strategy : WriteStrategy::kAuto,
                                            what_.two_sided_bytes};
  auto made = machine_->run(
      RingLink::connect(machine_->client(0), machine_->executor(), host_->uri(), owner, writer));
  PMSTORE_CHECK(made.has_value(), made ? "" : made.error().message.c_str());
  link_ = std::move(*made);
  header_ = *next_header_;
  next_header_.reset();
  const size_t end = header_.first + find_entries();
  PMSTORE_CHECK(end >= acknowledged_ && end <= entries_.size(), "nothing is lost without a crash");
  entries_.resize(end);
  acknowledged_ = end;
  promise();
}

base::Task<Status> RingRnicRun::truncate_to(size_t first) {
  const uint64_t lsn = marks_at_.at(first);
  next_header_ = Header{first, header_.owner, entries_.at(first - 1).sequence + 1};
  promise();
  Status done = co_await link_->truncate(lsn, next_header_->expired_below_sequence);
  if (!done) co_return done;
  header_ = *next_header_;
  next_header_.reset();
  promise();
  co_return done;
}

void RingRnicRun::truncate(size_t kept) {
  const auto behind = marks_at_.upper_bound(acknowledged_ - std::min(kept, acknowledged_));
  if (behind == marks_at_.begin()) return;
  const size_t first = std::prev(behind)->first;
  if (first <= header_.first) return;
  const Status done = machine_->run(truncate_to(first));
  PMSTORE_CHECK(done.has_value(), "the mark is behind an entry");
}

base::Task<Result<uint64_t>> RingRnicRun::make_room(uint64_t, uint64_t) {
  if (acknowledged_ > header_.first) {
    PMSTORE_CO_TRY_STATUS(co_await truncate_to(acknowledged_));
  }
  co_return link_->appender().position().start_lsn;
}

// ---- appending ----

void RingRnicRun::make_room_for(const Sizes& sizes) {
  log::RingPosition position = link_->appender().position();
  for (const size_t bytes : sizes) {
    const auto plan = log::plan_entry(position, bytes, true);
    if (!plan) return truncate(0);
    position.tail_lsn = plan->next_lsn();
  }
}

base::Task<Result<log::RemoteAppender::Appended>> RingRnicRun::call_appender(Call& call,
                                                                             uint64_t sequence) {
  std::vector<std::vector<std::byte>> payloads;
  for (size_t i = 0; i < call.sizes.size(); ++i) {
    payloads.push_back(ring_payload(sequence + (call.gather ? 0 : i), call.sizes[i]));
  }
  if (!call.all) co_return co_await link_->appender().append(sequence, payloads.front());
  const std::vector<std::span<const std::byte>> spans(payloads.begin(), payloads.end());
  const std::vector<std::byte> prefix = this->prefix();
  log::RemoteAppender::Entries entries;
  entries.prefix = prefix;
  entries.payloads = spans;
  entries.gather = call.gather;
  entries.next_sequence = &sequence;
  entries.room = this;
  co_return co_await link_->appender().append_all(entries);
}

base::Task<void> RingRnicRun::run(Call& call, uint64_t sequence) {
  const auto appended = co_await call_appender(call, sequence);
  call.over = true;
  if (!appended) co_return;
  acknowledged_ = call.end;
  marks_at_[call.end] = appended->next_lsn;
  promise();
}

void RingRnicRun::begin(std::vector<Call>& calls) {
  for (Call& call : calls) {
    const uint64_t sequence = next_sequence_;
    RingContent given;
    std::vector<std::byte> payload;
    for (const size_t bytes : call.sizes) {
      if (call.all && payload.empty()) payload = prefix();
      const auto piece = ring_payload(next_sequence_, bytes);
      payload.insert(payload.end(), piece.begin(), piece.end());
      if (call.gather) continue;
      given.append(next_sequence_++, payload);
      payload.clear();
    }
    if (call.gather) given.append(next_sequence_++, payload);
    entries_.insert(entries_.end(), given.entries.begin(), given.entries.end());
    call.end = entries_.size();
    machine_->executor().spawn(run(call, sequence));
  }
  promise();
}

void RingRnicRun::finish(const std::vector<Call>& calls) {
  machine_->run([](base::Executor& executor, const std::vector<Call>& all) -> base::Task<void> {
    for (const Call& call : all) {
      while (!call.over) co_await executor.sleep_for(500);
    }
  }(machine_->executor(), calls));
}

void RingRnicRun::append_together(const Sizes& sizes) {
  make_room_for(sizes);
  std::vector<Call> calls;
  for (const size_t bytes : sizes) calls.push_back({{bytes}});
  begin(calls);
  finish(calls);
  PMSTORE_CHECK(acknowledged_ == entries_.size(), "they fit, and the connection stands");
}

void RingRnicRun::append_all(const Sizes& sizes, bool gather) {
  std::vector<Call> calls = {{sizes, true, gather}};
  begin(calls);
  finish(calls);
  PMSTORE_CHECK(acknowledged_ == entries_.size(), "there is room, or it is made");
}

void RingRnicRun::append_and_fence(const Sizes& sizes, uint64_t ns) {
  make_room_for(sizes);
  std::vector<Call> calls;
  for (const size_t bytes : sizes) calls.push_back({{bytes}});
  begin(calls);
  machine_->pass(ns);
  host_->fence();
  finish(calls);
}

// ---- whole runs ----

void RingRnicRun::script() {
  connect(5, WriteStrategy::kDoorbell);
  append(10);
  append(70);
  append(300);
  append_all({1, 200, 33, 500});
  append_all({20, 30, 2000}, true);
  truncate(2);
  append_together({60, 700, 60});
  append_together({1500, 1500, 1500, 40});
  append_all({4000, 700});  // room is made
  append_all({3000, 700});  // wraps
  connect(5, WriteStrategy::kNaive);
  append(90);
  append_together({40, 1000});
  connect(5, WriteStrategy::kOutstanding);
  append(150);
  append_together({40, 1000});
  append_and_fence({100, 300, 50}, 1500);
  connect(5, WriteStrategy::kTwoSided);
  append(900);
  append_all({70, 500});
  append_together({30, 30});
  truncate(1);
  append_and_fence({100, 300, 50}, 2500);
  connect(6, WriteStrategy::kAuto);
  append(50);
  append_and_fence({40, 40, 1000}, 1200);
  connect(6, WriteStrategy::kAuto);
  // With large entries two-sided: the last one is written while those before are not.
  append_and_fence({1500, 1500, 1500, 40}, 8000);
  connect(6, WriteStrategy::kAuto);
  truncate(0);
  // Where the first of these is torn and the others are whole, the first entry of the next writer
  // has the length of the torn one: the others must not follow it.
  append_all(Sizes(5, kRingWorkBytes));
}

void RingRnicRun::draw() {
  connect(1 + random_.below(3), kStrategies[random_.below(std::size(kStrategies))]);
  for (uint64_t steps = 10 + random_.below(20); steps > 0; --steps) draw_one();
}

void RingRnicRun::draw_one() {
  static constexpr size_t kMost[] = {30, 100, 300, 1000, 4000};
  Sizes sizes(1 + (random_.below(2) == 0 ? random_.below(5) : 0));
  size_t all = 0;
  for (size_t& bytes : sizes) {
    bytes = random_.below(kMost[random_.below(std::size(kMost))]);
    if (all + bytes > 5000) bytes = 0;
    all += bytes;
  }
  const uint64_t what = random_.below(12);
  if (what < 4) return append_together(sizes);
  if (what < 6) return append_all(sizes);
  if (what == 6) return append_all(sizes, true);
  if (what < 9) return truncate(random_.below(4));
  if (what < 11) append_and_fence(sizes, random_.below(6000));
  const bool another = random_.below(4) == 0;
  connect(another ? 1 + random_.below(9) : header_.owner,
          kStrategies[random_.below(std::size(kStrategies))]);
}

}  // namespace

std::unique_ptr<RecordedRun> ring_rnic_run(const std::string& scenario, uint64_t seed,
                                           const RnicRing& what) {
  return std::make_unique<RingRnicRun>(scenario, seed, what);
}

}  // namespace pmstore::crash
