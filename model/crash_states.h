// CrashStates: every content that persistent memory may have after a power failure, at any moment
// of a recorded run (Trace). It replays the trace event by event. At each point it knows what is
// certainly durable, and for each 64-byte line what else may have survived. docs/crash.md has the
// rules and their reasons. In short:
//
// ADR: a line, by itself, holds some prefix of the 8-byte stores made to it, in order, and at least
// those that a flush of the line followed by a drain has made durable. A non-temporal store is a
// store and a flush. A device's write into the last-level cache is a store. One into memory is
// durable when the next event comes, with everything stored to the line before (coherence makes the
// line one); during it, each line may hold any prefix of it.
// eADR: what has reached the caches survives. During an event something is in doubt: of an ordinary
// store a prefix of its 8-byte stores; of a device's, as above. A non-temporal store stays in doubt
// until the next fence or drain, or until an ordinary store to the line takes it along.
// none: a line holds some prefix of its stores, as under ADR, since the kernel may write a page
// back at any moment; durable is what lies in the pages of an msync. Flushes and drains alone do
// nothing. In all, what is in an RNIC's buffer is lost: it is not in the memory yet.
//
// Threads: one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "base/random.h"
#include "model/crash_trace.h"
#include "model/page_bytes.h"
#include "persist/memory.h"

namespace pmstore::model {

// One possible content of the memory after the crash. A test may change it through a Memory that
// was given to watch(): its stores are undone afterwards.
class CrashImage final : public persist::Observer {
 public:
  std::span<std::byte> bytes() { return image_.bytes(); }
  void watch(persist::Memory& memory) { memory.set_observer(this); }

  void on_store(const void* destination, const void* source, size_t bytes,
                bool non_temporal) override;
  void on_flush(const void*, size_t) override {}
  void on_drain() override {}

 private:
  friend class CrashStates;
  PageBytes image_;
  std::vector<uint32_t> changed_lines_;
};

class CrashStates {
 public:
  // Per line in doubt, by address: how many of its stores survive.
  using Choice = std::vector<uint16_t>;
  using Check = std::function<bool(CrashImage&)>;
  using Wanted = std::function<bool()>;

  // `trace` is borrowed.
  explicit CrashStates(const Trace& trace);
  // The same, when the image_hash() of its initial content is known.
  CrashStates(const Trace& trace, uint64_t hash);

  // Whether the next event changes what may survive.
  bool next_has_effect() const;
  // Replays the next event. False at the end.
  bool step();
  // Replays until so many events are done.
  void step_to(size_t events);
  size_t events_done() const { return done_; }
  size_t marks() const { return marks_; }

  // The process dies here, the power stays on. The content of the caches stays there, in doubt;
  // flushes without a drain have no effect. Under eADR nothing is in doubt: the switch to another
  // process is a fence.
  void process_dies();
  // From here on events and marks are those of `trace` (borrowed), which began with what
  // show(all()) is.
  void follow(const Trace& trace);

  size_t lines_in_doubt() const { return doubtful_.size(); }
  // How many different combinations of surviving stores there are here; saturates.
  uint64_t count() const;
  Choice none() const { return Choice(doubtful_.size(), 0); }
  Choice all() const;
  bool is_valid(const Choice& choice) const;

  // Shows images of a crash at this moment. All combinations when there are at most `limit`; else,
  // when that many subsets of whole lines are not more, all of these and `samples` others; else
  // about `samples`: none and all of what is in doubt, each line alone and all but each line, each
  // line torn at each position, the rest drawn at random. Those that are not `wanted` (asked with
  // choice() and image_hash() set) are left out. Ends early, and says false, when `check` does.
  bool visit(uint64_t limit, uint64_t samples, Random& random, const Check& check,
             const Wanted& wanted = {});
  bool visit(uint64_t limit, Random& random, const Check& check) {
    return visit(limit, limit, random, check);
  }
  // Shows the image of `choice`.
  bool show(const Choice& choice, const Check& check);

  // Of the image that is being shown. The hash depends on its content only.
  const Choice& choice() const { return choice_; }
  uint64_t image_hash() const { return hash_; }

 private:
  static constexpr size_t kLine = 64;
  using LineBytes = std::array<std::byte, kLine>;
  struct Word {
    uint8_t at;     // in the line
    uint8_t bytes;  // up to 8
    std::byte data[8];
    uint32_t order;  // in its event
    size_t event;
  };
  struct Line {
    std::vector<Word> stores;  // not yet certainly durable, in order
    size_t flushed = 0;        // so many of them will be at the next drain
    bool settles = false;      // all of them will be at the next event
  };
  // What a line in doubt may hold: version v has the first v of its stores.
  struct Versions {
    uint32_t line;
    uint32_t first;  // in version_bytes_ and version_hashes_
    uint16_t stores;
  };

  void store(const Event& event, bool settles);
  void flush(uint64_t offset, uint64_t bytes);
  void drain(const Event& event);
  void synchronize(const Event& event);
  void settle();
  void make_durable(uint32_t line, std::span<const Word> stores);
  void prepare();
  void finish();
  void choose(const Choice& choice);
  void choose_line(size_t index, uint16_t version);
  bool present(const Check& check, const Wanted& wanted);
  bool visit_all(const Check& check, const Wanted& wanted);
  bool visit_whole_lines(const Check& check, const Wanted& wanted);
  bool visit_in_order(uint64_t limit, Random& random, const Check& check, const Wanted& wanted);
  bool visit_some(uint64_t limit, Random& random, const Check& check, const Wanted& wanted);
  bool visit_torn(uint64_t limit, const Check& check, const Wanted& wanted, uint64_t& shown);
  Choice draw(Random& random) const;
  Choice draw_stores(Random& random) const;
  Choice prefix(uint32_t stores) const;

  const Trace* trace_;
  persist::Domain domain_;
  size_t done_ = 0;
  size_t marks_ = 0;
  bool in_order_ = false;  // what is in doubt is one store: only its prefixes may survive
  std::vector<std::byte> durable_;
  uint64_t durable_hash_;
  std::map<uint32_t, Line> doubtful_;  // by line number; only lines with stores

  // While images are shown:
  CrashImage image_;
  Choice choice_;
  uint64_t hash_ = 0;
  std::vector<Versions> versions_;
  std::vector<LineBytes> version_bytes_;
  std::vector<uint64_t> version_hashes_;
  std::vector<uint32_t> version_of_line_;  // index in versions_ + 1, 0 for lines without doubt
};

}  // namespace pmstore::model
