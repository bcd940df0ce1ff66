// Invariants: image_.image_ == durable_ unless images are being shown; then each line in doubt
// holds version_bytes_ of its choice, and every other line what is durable, between two images. A
// line is in doubtful_ exactly when it has stores that may be lost. durable_hash_ and hash_ are
// sums over lines, so that a change of one line changes them by a difference.
#include "model/crash_states.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/checksum.h"

namespace pmstore::model {
namespace {

uint64_t line_hash(uint32_t line, const std::byte* bytes) {
  return base::checksum64({bytes, 64}, line + 1);
}

uint64_t content_hash(std::span<const std::byte> content) {
  uint64_t hash = 0;
  for (size_t at = 0; at + 64 <= content.size(); at += 64) {
    hash += line_hash(static_cast<uint32_t>(at / 64), content.data() + at);
  }
  return hash;
}

// Whether this line is the drain's machine's.
bool is_of(const Event& drain, uint32_t line) {
  return drain.bytes == 0 || uint64_t{line} * 64 - drain.offset < drain.bytes;
}

}  // namespace

void CrashImage::on_store(const void* destination, const void*, size_t bytes, bool) {
  const auto offset =
      static_cast<uint64_t>(static_cast<const std::byte*>(destination) - image_.data());
  PMSTORE_CHECK(bytes > 0 && offset + bytes <= image_.size(),
                "the watched memory is not this image");
  for (uint64_t line = offset / 64; line <= (offset + bytes - 1) / 64; ++line) {
    changed_lines_.push_back(static_cast<uint32_t>(line));
  }
}

CrashStates::CrashStates(const Trace& trace) : CrashStates(trace, content_hash(trace.initial)) {}

CrashStates::CrashStates(const Trace& trace, uint64_t hash)
    : trace_(&trace), domain_(trace.domain), durable_(trace.initial), durable_hash_(hash) {
  PMSTORE_CHECK(durable_.size() % kLine == 0, "the memory ends with a whole line");
  image_.image_ = PageBytes(durable_);
  version_of_line_.resize(durable_.size() / kLine);
}

// ---- replaying ----

bool CrashStates::next_has_effect() const {
  const Event& event = trace_->events.at(done_);
  const bool none = domain_ == persist::Domain::kNone;
  if (event.kind == EventKind::kFlush) {
    if (none) return false;
    auto it = doubtful_.lower_bound(static_cast<uint32_t>(event.offset / kLine));
    for (; it != doubtful_.end() && it->first * kLine < event.offset + event.bytes; ++it) {
      const Line& line = it->second;
      if (!line.settles && line.flushed < line.stores.size()) return true;
    }
    return false;
  }
  if (event.kind == EventKind::kSync) {
    const auto at = doubtful_.lower_bound(static_cast<uint32_t>(event.offset / kLine));
    return at != doubtful_.end() && at->first * kLine < event.offset + event.bytes;
  }
  if (event.kind == EventKind::kDrain || event.kind == EventKind::kFence) {
    return !none && std::any_of(doubtful_.begin(), doubtful_.end(), [&](const auto& entry) {
      return !entry.second.settles && entry.second.flushed > 0 && is_of(event, entry.first);
    });
  }
  return event.writes();
}

bool CrashStates::step() {
  if (done_ == trace_->events.size()) return false;
  const Event& event = trace_->events[done_++];
  settle();
  const bool eadr = domain_ == persist::Domain::kCpuCache;
  const bool none = domain_ == persist::Domain::kNone;
  switch (event.kind) {
    case EventKind::kStore:
      in_order_ = eadr && !event.non_temporal && doubtful_.empty();
      store(event, eadr && !event.non_temporal);
      if (event.non_temporal && !none) flush(event.offset, event.bytes);
      break;
    case EventKind::kDmaWrite:
      store(event, eadr || (event.landing == Landing::kMemory && !none));
      break;
    case EventKind::kFlush:
      if (!none) flush(event.offset, event.bytes);
      break;
    case EventKind::kDrain:
    case EventKind::kFence: drain(event); break;
    case EventKind::kSync: synchronize(event); break;
    case EventKind::kMark: ++marks_; break;
    case EventKind::kPacket: break;
    case EventKind::kProcessEnd: process_dies(); break;
  }
  return true;
}

void CrashStates::step_to(size_t events) {
  while (done_ < events) PMSTORE_CHECK(step(), "the trace has that many events");
}

void CrashStates::process_dies() {
  settle();
  const bool fence = domain_ == persist::Domain::kCpuCache;
  for (auto& [number, line] : doubtful_) {
    line.flushed = 0;
    line.settles = fence;
  }
  settle();
}

void CrashStates::follow(const Trace& trace) {
  PMSTORE_CHECK(trace.initial.size() == durable_.size() && trace.domain == domain_,
                "the memory is the same one");
  trace_ = &trace;
  done_ = 0;
  marks_ = 0;
}

void CrashStates::store(const Event& event, bool settles) {
  uint32_t order = 0;
  for (uint64_t done = 0; done < event.bytes;) {
    const uint64_t at = event.offset + done;
    Word word{};
    word.event = done_;
    word.order = order++;
    word.at = static_cast<uint8_t>(at % kLine);
    word.bytes = static_cast<uint8_t>(std::min<uint64_t>(8 - at % 8, event.bytes - done));
    std::memcpy(word.data, event.data.data() + done, word.bytes);
    Line& line = doubtful_[static_cast<uint32_t>(at / kLine)];
    line.stores.push_back(word);
    line.settles |= settles;
    done += word.bytes;
  }
}

void CrashStates::flush(uint64_t offset, uint64_t bytes) {
  if (bytes == 0) return;
  const auto end = doubtful_.upper_bound(static_cast<uint32_t>((offset + bytes - 1) / kLine));
  for (auto it = doubtful_.lower_bound(static_cast<uint32_t>(offset / kLine)); it != end; ++it) {
    it->second.flushed = it->second.stores.size();
  }
}

void CrashStates::make_durable(uint32_t number, std::span<const Word> stores) {
  std::byte* const line = durable_.data() + number * kLine;
  durable_hash_ -= line_hash(number, line);
  for (const Word& word : stores) std::memcpy(line + word.at, word.data, word.bytes);
  durable_hash_ += line_hash(number, line);
  std::memcpy(image_.image_.data() + number * kLine, line, kLine);
}

void CrashStates::drain(const Event& event) {
  for (auto it = doubtful_.begin(); it != doubtful_.end();) {
    if (!is_of(event, it->first)) {
      ++it;
      continue;
    }
    Line& line = it->second;
    make_durable(it->first, std::span(line.stores).first(line.flushed));
    line.stores.erase(line.stores.begin(),
                      line.stores.begin() + static_cast<ptrdiff_t>(line.flushed));
    line.flushed = 0;
    it = line.stores.empty() ? doubtful_.erase(it) : std::next(it);
  }
}

// Whatever was stored to its pages, flushed or not.
void CrashStates::synchronize(const Event& event) {
  auto it = doubtful_.lower_bound(static_cast<uint32_t>(event.offset / kLine));
  while (it != doubtful_.end() && it->first * kLine < event.offset + event.bytes) {
    make_durable(it->first, it->second.stores);
    it = doubtful_.erase(it);
  }
}

void CrashStates::settle() {
  in_order_ = false;
  for (auto it = doubtful_.begin(); it != doubtful_.end();) {
    if (!it->second.settles) {
      ++it;
      continue;
    }
    make_durable(it->first, it->second.stores);
    it = doubtful_.erase(it);
  }
}

// ---- showing ----

uint64_t CrashStates::count() const {
  uint64_t product = 1;
  uint64_t sum = 1;
  for (const auto& [number, line] : doubtful_) {
    sum += line.stores.size();
    if (__builtin_mul_overflow(product, line.stores.size() + 1, &product)) product = UINT64_MAX;
    if (product == UINT64_MAX) break;
  }
  return in_order_ ? sum : product;
}

CrashStates::Choice CrashStates::all() const {
  Choice choice;
  for (const auto& [number, line] : doubtful_) {
    choice.push_back(static_cast<uint16_t>(line.stores.size()));
  }
  return choice;
}

bool CrashStates::is_valid(const Choice& choice) const {
  if (choice.size() != doubtful_.size()) return false;
  const Choice most = all();
  for (size_t i = 0; i < choice.size(); ++i) {
    if (choice[i] > most[i]) return false;
  }
  return true;
}

void CrashStates::prepare() {
  versions_.clear();
  version_bytes_.clear();
  version_hashes_.clear();
  for (const auto& [number, line] : doubtful_) {
    PMSTORE_CHECK(line.stores.size() < UINT16_MAX, "a line is flushed now and then");
    versions_.push_back({number, static_cast<uint32_t>(version_bytes_.size()),
                         static_cast<uint16_t>(line.stores.size())});
    version_of_line_[number] = static_cast<uint32_t>(versions_.size());
    LineBytes bytes;
    std::memcpy(bytes.data(), durable_.data() + number * kLine, kLine);
    version_bytes_.push_back(bytes);
    version_hashes_.push_back(line_hash(number, bytes.data()));
    for (const Word& word : line.stores) {
      std::memcpy(bytes.data() + word.at, word.data, word.bytes);
      version_bytes_.push_back(bytes);
      version_hashes_.push_back(line_hash(number, bytes.data()));
    }
  }
  choice_ = none();
  hash_ = durable_hash_;
}

void CrashStates::finish() {
  choose(none());
  for (const Versions& line : versions_) version_of_line_[line.line] = 0;
}

void CrashStates::choose_line(size_t index, uint16_t version) {
  const Versions& line = versions_[index];
  hash_ += version_hashes_[line.first + version] - version_hashes_[line.first + choice_[index]];
  std::memcpy(image_.image_.data() + line.line * kLine, version_bytes_[line.first + version].data(),
              kLine);
  choice_[index] = version;
}

void CrashStates::choose(const Choice& choice) {
  for (size_t i = 0; i < choice.size(); ++i) {
    if (choice[i] != choice_[i]) choose_line(i, choice[i]);
  }
}

bool CrashStates::present(const Check& check, const Wanted& wanted) {
  if (wanted && !wanted()) return true;
  const bool go_on = check(image_);
  for (const uint32_t line : image_.changed_lines_) {
    const uint32_t doubt = version_of_line_[line];
    const std::byte* const was =
        doubt == 0 ? durable_.data() + line * kLine
                   : version_bytes_[versions_[doubt - 1].first + choice_[doubt - 1]].data();
    std::memcpy(image_.image_.data() + line * kLine, was, kLine);
  }
  image_.changed_lines_.clear();
  return go_on;
}

bool CrashStates::show(const Choice& choice, const Check& check) {
  PMSTORE_CHECK(is_valid(choice), "the choice is of this moment");
  prepare();
  choose(choice);
  const bool go_on = present(check, {});
  finish();
  return go_on;
}

bool CrashStates::visit(uint64_t limit, uint64_t samples, Random& random, const Check& check,
                        const Wanted& wanted) {
  prepare();
  bool go_on = true;
  if (in_order_) {
    go_on = visit_in_order(samples, random, check, wanted);
  } else if (count() <= limit) {
    go_on = visit_all(check, wanted);
  } else if (versions_.size() < 63 && uint64_t{1} << versions_.size() <= limit) {
    go_on = visit_whole_lines(check, wanted) && visit_some(samples, random, check, wanted);
  } else {
    go_on = visit_some(samples, random, check, wanted);
  }
  finish();
  return go_on;
}

bool CrashStates::visit_all(const Check& check, const Wanted& wanted) {
  while (true) {
    if (!present(check, wanted)) return false;
    size_t i = 0;
    for (; i < versions_.size(); ++i) {  // the next one, as an odometer
      if (choice_[i] < versions_[i].stores) {
        choose_line(i, choice_[i] + 1);
        break;
      }
      choose_line(i, 0);
    }
    if (i == versions_.size()) return true;
  }
}

bool CrashStates::visit_whole_lines(const Check& check, const Wanted& wanted) {
  const uint64_t subsets = uint64_t{1} << versions_.size();
  for (uint64_t n = 0; n < subsets; ++n) {
    for (size_t i = 0; i < versions_.size(); ++i) {
      const uint16_t version = (n >> i & 1) != 0 ? versions_[i].stores : 0;
      if (choice_[i] != version) choose_line(i, version);
    }
    if (!present(check, wanted)) return false;
  }
  return true;
}

bool CrashStates::visit_in_order(uint64_t limit, Random& random, const Check& check,
                                 const Wanted& wanted) {
  const uint64_t most = count() - 1;
  for (uint64_t n = 0; n <= std::min(most, limit); ++n) {
    const uint64_t kept = most <= limit || n == 0 ? n : n == 1 ? most : random.below(most);
    choose(prefix(static_cast<uint32_t>(kept)));
    if (!present(check, wanted)) return false;
  }
  return true;
}

CrashStates::Choice CrashStates::prefix(uint32_t stores) const {
  Choice choice;
  for (const auto& [number, line] : doubtful_) {
    const auto kept = std::count_if(line.stores.begin(), line.stores.end(),
                                    [stores](const Word& word) { return word.order < stores; });
    choice.push_back(static_cast<uint16_t>(kept));
  }
  return choice;
}

bool CrashStates::visit_some(uint64_t limit, Random& random, const Check& check,
                             const Wanted& wanted) {
  uint64_t shown = 0;
  // Only this line (kept) or all but it (not kept).
  const auto show_line = [&](size_t index, bool kept) {
    for (size_t i = 0; i < versions_.size(); ++i) {
      const uint16_t version = (i == index) == kept ? versions_[i].stores : 0;
      if (choice_[i] != version) choose_line(i, version);
    }
    ++shown;
    return present(check, wanted);
  };
  const size_t nobody = versions_.size();
  if (!show_line(nobody, true) || !show_line(nobody, false)) return false;
  if (2 * nobody + 2 <= limit / 2) {
    for (size_t i = 0; i < nobody; ++i) {
      if (!show_line(i, true) || !show_line(i, false)) return false;
    }
  }
  if (!visit_torn(limit - std::min(limit, shown), check, wanted, shown)) return false;
  for (; shown < limit; ++shown) {
    choose(draw(random));
    if (!present(check, wanted)) return false;
  }
  return true;
}

// Each line torn at each position: nothing of the others survives, then all of them; whatever of
// that takes no more than `limit`.
bool CrashStates::visit_torn(uint64_t limit, const Check& check, const Wanted& wanted,
                             uint64_t& shown) {
  uint64_t positions = 0;
  for (const Versions& line : versions_) positions += line.stores - 1u;
  const Choice ends[] = {none(), all()};
  for (const Choice& others : ends) {
    if (positions > limit) return true;
    limit -= positions;
    for (size_t i = 0; i < versions_.size(); ++i) {
      choose(others);
      for (uint16_t kept = 1; kept < versions_[i].stores; ++kept, ++shown) {
        choose_line(i, kept);
        if (!present(check, wanted)) return false;
      }
    }
  }
  return true;
}

// Whole store() calls here and there; torn lines anywhere; whole lines here and there; a run of
// lines kept; a run of lines lost.
CrashStates::Choice CrashStates::draw(Random& random) const {
  const uint64_t manner = random.below(5);
  if (manner == 4) return draw_stores(random);
  const Choice most = all();
  Choice choice = manner == 3 ? most : none();
  if (manner < 2) {
    for (size_t i = 0; i < most.size(); ++i) {
      const uint64_t kept = manner == 0 ? random.below(most[i] + 1u) : random.below(2) * most[i];
      choice[i] = static_cast<uint16_t>(kept);
    }
    return choice;
  }
  const size_t begin = random.below(most.size());
  const size_t end = begin + 1 + random.below(most.size() - begin);
  for (size_t i = begin; i < end; ++i) choice[i] = static_cast<uint16_t>(most[i] - choice[i]);
  return choice;
}

CrashStates::Choice CrashStates::draw_stores(Random& random) const {
  std::map<size_t, bool> survives;  // by event
  Choice choice;
  for (const auto& [number, line] : doubtful_) {
    uint16_t kept = 0;
    for (; kept < line.stores.size(); ++kept) {
      const auto [it, is_new] = survives.try_emplace(line.stores[kept].event);
      if (is_new) it->second = random.below(2) == 0;
      if (!it->second) break;
    }
    choice.push_back(kept);
  }
  return choice;
}

}  // namespace pmstore::model
