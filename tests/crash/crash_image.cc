// Invariants: image_.image_ == durable_ outside of show(). A line is in doubtful_ exactly when it
// has stores that may be lost.
#include "tests/crash/crash_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace pmstore::crash {

// ---- bytes ----

PageBytes::PageBytes(size_t bytes)
    : pages_((bytes + sizeof(Page) - 1) / sizeof(Page)), size_(bytes) {}

PageBytes::PageBytes(std::span<const std::byte> content) : PageBytes(content.size()) {
  std::memcpy(data(), content.data(), content.size());
}

// ---- trace ----

Trace Trace::without(size_t event) const {
  Trace mutant = *this;
  if (mutant.events[event].kind == EventKind::kStore) {
    mutant.events[event].non_temporal = false;
  } else {
    mutant.events.erase(mutant.events.begin() + static_cast<ptrdiff_t>(event));
  }
  return mutant;
}

std::vector<size_t> Trace::barriers() const {
  std::vector<size_t> found;
  CrashStates states(*this);
  do {
    const size_t next = states.events_done();
    if (next == events.size()) break;
    const EventKind kind = events[next].kind;
    const bool barrier =
        kind == EventKind::kFlush || kind == EventKind::kDrain || events[next].non_temporal;
    if (barrier && states.next_has_effect()) found.push_back(next);
  } while (states.step());
  return found;
}

std::string Trace::describe(size_t event) const {
  if (event >= events.size()) return "the end";
  static constexpr const char* kNames[] = {"store", "flush", "drain", "mark"};
  const Event& e = events[event];
  std::string text =
      fmt::format("event {} of {}: {}", event, events.size(), kNames[static_cast<size_t>(e.kind)]);
  if (e.bytes > 0) text += fmt::format(" of {} bytes at {}", e.bytes, e.offset);
  return text;
}

// ---- recorder ----

CrashRecorder::CrashRecorder(persist::Memory& memory) : memory_(&memory) {
  trace_.initial.assign(memory.mapping().begin(), memory.mapping().end());
  memory.set_observer(this);
}

CrashRecorder::~CrashRecorder() {
  if (memory_ != nullptr) memory_->set_observer(nullptr);
}

Trace CrashRecorder::take() {
  memory_->set_observer(nullptr);
  memory_ = nullptr;
  return std::move(trace_);
}

void CrashRecorder::mark() { trace_.events.push_back({.kind = EventKind::kMark, .data = {}}); }

void CrashRecorder::on_store(const void* to, const void* from, size_t bytes, bool non_temporal) {
  const auto* data = static_cast<const std::byte*>(from);
  trace_.events.push_back({EventKind::kStore, non_temporal, memory_->offset_of(to), bytes,
                           std::vector<std::byte>(data, data + bytes)});
}

void CrashRecorder::on_flush(const void* from, size_t bytes) {
  trace_.events.push_back({EventKind::kFlush, false, memory_->offset_of(from), bytes, {}});
}

void CrashRecorder::on_drain() { trace_.events.push_back({.kind = EventKind::kDrain, .data = {}}); }

// ---- image ----

void CrashImage::on_store(const void* to, const void*, size_t bytes, bool) {
  const auto offset = static_cast<uint64_t>(static_cast<const std::byte*>(to) - image_.data());
  PMSTORE_CHECK(bytes > 0 && offset + bytes <= image_.size(),
                "the watched memory is not this image");
  for (uint64_t line = offset / 64; line <= (offset + bytes - 1) / 64; ++line) {
    changed_lines_.push_back(line);
  }
}

// ---- states ----

CrashStates::CrashStates(const Trace& trace) : trace_(trace), durable_(trace.initial) {
  PMSTORE_CHECK(durable_.size() % kLine == 0, "the memory ends with a whole line");
  image_.image_ = PageBytes(durable_);
}

bool CrashStates::next_has_effect() const {
  const Event& event = trace_.events.at(done_);
  if (event.kind == EventKind::kFlush) {
    auto it = doubtful_.lower_bound(event.offset / kLine);
    for (; it != doubtful_.end() && it->first * kLine < event.offset + event.bytes; ++it) {
      if (it->second.flushed < it->second.stores.size()) return true;
    }
    return false;
  }
  if (event.kind == EventKind::kDrain) {
    return std::any_of(doubtful_.begin(), doubtful_.end(),
                       [](const auto& entry) { return entry.second.flushed > 0; });
  }
  return true;
}

bool CrashStates::step() {
  if (done_ == trace_.events.size()) return false;
  const Event& event = trace_.events[done_++];
  switch (event.kind) {
    case EventKind::kStore: store(event); break;
    case EventKind::kFlush: flush(event.offset, event.bytes); break;
    case EventKind::kDrain: drain(); break;
    case EventKind::kMark: ++marks_; break;
  }
  return true;
}

void CrashStates::store(const Event& event) {
  for (uint64_t done = 0; done < event.bytes;) {
    const uint64_t at = event.offset + done;
    Word word{};
    word.event = done_;
    word.at = static_cast<uint8_t>(at % kLine);
    word.bytes = static_cast<uint8_t>(std::min<uint64_t>(8 - at % 8, event.bytes - done));
    std::memcpy(word.data, event.data.data() + done, word.bytes);
    doubtful_[at / kLine].stores.push_back(word);
    done += word.bytes;
  }
  if (event.non_temporal) flush(event.offset, event.bytes);
}

void CrashStates::flush(uint64_t offset, uint64_t bytes) {
  if (bytes == 0) return;
  const auto end = doubtful_.upper_bound((offset + bytes - 1) / kLine);
  for (auto it = doubtful_.lower_bound(offset / kLine); it != end; ++it) {
    it->second.flushed = it->second.stores.size();
  }
}

void CrashStates::apply(std::byte* line, const Word& word) {
  std::memcpy(line + word.at, word.data, word.bytes);
}

void CrashStates::restore(uint64_t line) {
  std::memcpy(image_.image_.data() + line * kLine, durable_.data() + line * kLine, kLine);
}

void CrashStates::drain() {
  for (auto it = doubtful_.begin(); it != doubtful_.end();) {
    Line& line = it->second;
    for (size_t i = 0; i < line.flushed; ++i)
      apply(durable_.data() + it->first * kLine, line.stores[i]);
    restore(it->first);
    line.stores.erase(line.stores.begin(),
                      line.stores.begin() + static_cast<ptrdiff_t>(line.flushed));
    line.flushed = 0;
    it = line.stores.empty() ? doubtful_.erase(it) : std::next(it);
  }
}

uint64_t CrashStates::count() const {
  uint64_t product = 1;
  for (const auto& [number, line] : doubtful_) {
    if (__builtin_mul_overflow(product, line.stores.size() + 1, &product)) return UINT64_MAX;
  }
  return product;
}

bool CrashStates::show(const Choice& choice, const std::function<bool(CrashImage&)>& check) {
  size_t i = 0;
  for (const auto& [number, line] : doubtful_) {
    for (size_t kept = 0; kept < choice[i]; ++kept) {
      apply(image_.image_.data() + number * kLine, line.stores[kept]);
    }
    ++i;
  }
  const bool go_on = check(image_);
  for (const auto& [number, line] : doubtful_) restore(number);
  for (uint64_t number : image_.changed_lines_) restore(number);
  image_.changed_lines_.clear();
  return go_on;
}

bool CrashStates::visit(uint64_t limit, Random& random,
                        const std::function<bool(CrashImage&)>& check) {
  return count() <= limit ? visit_all(check) : visit_some(limit, random, check);
}

bool CrashStates::visit_all(const std::function<bool(CrashImage&)>& check) {
  Choice choice(doubtful_.size(), 0);
  while (true) {
    if (!show(choice, check)) return false;
    size_t i = 0;
    for (const auto& [number, line] : doubtful_) {  // the next one, as an odometer
      if (choice[i] < line.stores.size()) {
        ++choice[i];
        break;
      }
      choice[i++] = 0;
    }
    if (i == choice.size()) return true;
  }
}

bool CrashStates::visit_some(uint64_t limit, Random& random,
                             const std::function<bool(CrashImage&)>& check) {
  const Choice none(doubtful_.size(), 0);
  Choice all;
  for (const auto& [number, line] : doubtful_) all.push_back(line.stores.size());
  if (!show(none, check) || !show(all, check)) return false;
  uint64_t shown = 2;
  if (2 * all.size() + 2 <= limit / 2) {
    for (size_t i = 0; i < all.size(); ++i, shown += 2) {
      Choice alone = none;
      Choice missing = all;
      std::swap(alone[i], missing[i]);
      if (!show(alone, check) || !show(missing, check)) return false;
    }
  }
  for (; shown < limit; ++shown) {
    if (!show(draw(none, all, random), check)) return false;
  }
  return true;
}

// Whole store() calls here and there; torn lines anywhere; whole lines here and there; a run of
// lines kept; a run of lines lost.
CrashStates::Choice CrashStates::draw(const Choice& none, const Choice& all, Random& random) {
  const uint64_t manner = random.below(5);
  if (manner == 4) return draw_stores(random);
  Choice choice = manner == 3 ? all : none;
  if (manner < 2) {
    for (size_t i = 0; i < all.size(); ++i) {
      choice[i] = manner == 0 ? random.below(all[i] + 1) : random.below(2) * all[i];
    }
    return choice;
  }
  const size_t begin = random.below(all.size());
  const size_t end = begin + 1 + random.below(all.size() - begin);
  for (size_t i = begin; i < end; ++i) choice[i] = all[i] - choice[i];
  return choice;
}

CrashStates::Choice CrashStates::draw_stores(Random& random) {
  std::map<size_t, bool> survives;  // by event
  Choice choice;
  for (const auto& [number, line] : doubtful_) {
    size_t kept = 0;
    for (; kept < line.stores.size(); ++kept) {
      const auto [it, is_new] = survives.try_emplace(line.stores[kept].event);
      if (is_new) it->second = random.below(2) == 0;
      if (!it->second) break;
    }
    choice.push_back(kept);
  }
  return choice;
}

// ---- search ----

std::optional<std::string> CrashSearch::run(const Trace& trace, const Check& check) {
  CrashStates states(trace);
  Random random(seed);
  std::optional<std::string> complaint;
  do {
    if (states.events_done() < first_event) continue;
    const bool fine = states.visit(images_per_point, random, [&](CrashImage& image) {
      ++images_seen;
      complaint = check(image, states.marks());
      return !complaint;
    });
    if (!fine) {
      return fmt::format("crash before {}, after {} marks: {}",
                         trace.describe(states.events_done()), states.marks(), *complaint);
    }
  } while (states.step());
  return std::nullopt;
}

}  // namespace pmstore::crash
