// Crash images: every state that persistent memory may be in after a power cut, at any moment of a
// recorded run.
//
// CrashRecorder watches a persist::Memory and keeps a Trace: all stores, flushes and drains, and
// the marks that the test sets in between ("this is acknowledged now"). CrashStates replays a Trace
// event by event and says what may have survived at each point.
//
// The rule (ADR: lines must be flushed from the caches): each 64-byte line, by itself, holds some
// prefix of the 8-byte stores made to it, in order, and at least those that a flush of the line
// followed by a drain has made durable. A non-temporal store is a store and a flush. A line may so
// be newer than another that was stored before, and may hold half of one store() call.
//
// Mutants: Trace::without(n) is what a program that lacks that flush or drain would have done; of a
// non-temporal store it leaves the store and takes the flush.
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "persist/memory.h"

namespace pmstore::crash {

enum class EventKind : uint8_t { kStore, kFlush, kDrain, kMark };

struct Event {
  EventKind kind;
  bool non_temporal = false;
  uint64_t offset = 0;  // in the memory
  uint64_t bytes = 0;
  std::vector<std::byte> data;  // of a store
};

// Bytes that start on a page, as a mapping does.
class PageBytes {
 public:
  PageBytes() = default;
  // Zeros.
  explicit PageBytes(size_t bytes);
  explicit PageBytes(std::span<const std::byte> content);
  std::span<std::byte> bytes() { return {data(), size_}; }
  std::byte* data() { return reinterpret_cast<std::byte*>(pages_.data()); }
  size_t size() const { return size_; }

 private:
  struct alignas(4096) Page {
    std::byte bytes[4096];
  };
  std::vector<Page> pages_;
  size_t size_ = 0;
};

struct Trace {
  std::vector<std::byte> initial;  // all of it durable
  std::vector<Event> events;

  Trace without(size_t event) const;
  // The flushes (non-temporal stores too) and drains, to be left out one by one; not those that
  // find nothing to do (no store to flush, nothing flushed to drain): without them it is the same
  // run.
  std::vector<size_t> barriers() const;
  // "event 12 of 40: flush of 64 bytes at 4096"
  std::string describe(size_t event) const;
};

class CrashRecorder final : public persist::Observer {
 public:
  // Starts with what `memory` holds now; watches it until destroyed.
  explicit CrashRecorder(persist::Memory& memory);
  ~CrashRecorder() override;
  CrashRecorder(const CrashRecorder&) = delete;
  CrashRecorder& operator=(const CrashRecorder&) = delete;

  // What was done so far is acknowledged to somebody.
  void mark();
  // Stops watching.
  Trace take();

  void on_store(const void* to, const void* from, size_t bytes, bool non_temporal) override;
  void on_flush(const void* from, size_t bytes) override;
  void on_drain() override;

 private:
  persist::Memory* memory_;
  Trace trace_;
};

// One possible content of the memory after the crash. The test may change it: whatever it stores
// through a Memory that it has shown to watch() is undone afterwards.
class CrashImage final : public persist::Observer {
 public:
  std::span<std::byte> bytes() { return image_.bytes(); }
  void watch(persist::Memory& memory) { memory.set_observer(this); }

  void on_store(const void* to, const void* from, size_t bytes, bool non_temporal) override;
  void on_flush(const void*, size_t) override {}
  void on_drain() override {}

 private:
  friend class CrashStates;
  PageBytes image_;
  std::vector<uint64_t> changed_lines_;
};

class CrashStates {
 public:
  // `trace` is borrowed.
  explicit CrashStates(const Trace& trace);

  // Does the next event change what may survive?
  bool next_has_effect() const;
  // Replays the next event. False at the end.
  bool step();
  size_t events_done() const { return done_; }
  size_t marks() const { return marks_; }

  // How many different combinations of surviving stores there are here; saturates.
  uint64_t count() const;
  // Shows images of a crash at this moment: all of them when there are at most `limit`, else about
  // `limit`: none and all of what is in doubt, each line alone and all but each line, the rest
  // drawn at random. Ends early, and says false, when `check` does.
  bool visit(uint64_t limit, Random& random, const std::function<bool(CrashImage&)>& check);

 private:
  static constexpr size_t kLine = 64;
  struct Word {
    uint8_t at;     // in the line
    uint8_t bytes;  // up to 8
    std::byte data[8];
    size_t event;
  };
  struct Line {
    std::vector<Word> stores;  // not yet certainly durable, in order
    size_t flushed = 0;        // so many of them will be at the next drain
  };
  using Choice = std::vector<size_t>;  // per line in doubt: how many of its stores survived

  void store(const Event& event);
  void flush(uint64_t offset, uint64_t bytes);
  void drain();
  bool show(const Choice& choice, const std::function<bool(CrashImage&)>& check);
  bool visit_all(const std::function<bool(CrashImage&)>& check);
  bool visit_some(uint64_t limit, Random& random, const std::function<bool(CrashImage&)>& check);
  Choice draw(const Choice& none, const Choice& all, Random& random);
  Choice draw_stores(Random& random);
  void apply(std::byte* line, const Word& word);
  void restore(uint64_t line);

  const Trace& trace_;
  size_t done_ = 0;
  size_t marks_ = 0;
  std::vector<std::byte> durable_;
  std::map<uint64_t, Line> doubtful_;  // by line number; only lines with stores
  CrashImage image_;
};

// Searches all crash points of a trace: `check` gives what is wrong with an image after `marks`
// marks, or nothing. Returns the first complaint, with the event it happened at.
struct CrashSearch {
  uint64_t images_per_point = 200;
  uint64_t seed = 1;
  size_t first_event = 0;  // crash points before it are skipped
  uint64_t images_seen = 0;

  using Check = std::function<std::optional<std::string>(CrashImage& image, size_t marks)>;
  std::optional<std::string> run(const Trace& trace, const Check& check);
};

}  // namespace pmstore::crash
