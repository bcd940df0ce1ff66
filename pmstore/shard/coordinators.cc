#include "pmstore/shard/coordinators.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"

namespace pmstore::internal {

void Coordinators::drop_oldest(Session& session) {
  PMSTORE_CHECK(!session.committed.empty() && notes_ > 0, "there is a number to drop");
  session.known_from = std::max(session.known_from, session.committed.front() + 1);
  session.committed.pop_front();
  --notes_;
}

Coordinators::Session& Coordinators::session_with(TxId id) {
  const auto [found, fresh] = sessions_.try_emplace(key_of(id));
  Session& session = found->second;
  if (fresh) session.known_from = floor_;
  session.last_used = ++ticks_;
  session.highest = std::max(session.highest, id.sequence);
  return session;
}

void Coordinators::known(TxId through) {
  Session& session = session_with(through);
  session.decided = std::max(session.decided, through.sequence + 1);
}

void Coordinators::truncated(TxId id) {
  Session& session = session_with(id);
  session.committed.push_back(id.sequence);
  ++notes_;
  if (session.committed.size() > kNotesPerSession) drop_oldest(session);
}

std::optional<Outcome> Coordinators::outcome(TxId id) const {
  const auto found = sessions_.find(key_of(id));
  if (found == sessions_.end()) {
    if (id.sequence < floor_) return std::nullopt;
    return Outcome::kAborted;
  }
  const Session& session = found->second;
  const std::deque<uint64_t>& committed = session.committed;
  if (std::find(committed.begin(), committed.end(), id.sequence) != committed.end()) {
    return Outcome::kCommitted;
  }
  if (id.sequence < session.known_from) return std::nullopt;
  return Outcome::kAborted;
}

// The sessions that have written least lately are forgotten.
void Coordinators::keep_sessions(size_t most) {
  if (sessions_.size() <= most) return;
  std::vector<uint64_t> ages;  // last uses, each of one session
  ages.reserve(sessions_.size());
  for (const auto& [key, session] : sessions_) ages.push_back(session.last_used);
  const auto kept = ages.end() - static_cast<std::ptrdiff_t>(most);
  if (kept != ages.end()) std::nth_element(ages.begin(), kept, ages.end());
  const uint64_t oldest = kept == ages.end() ? UINT64_MAX : *kept;
  std::erase_if(sessions_, [&](const auto& entry) {
    const Session& session = entry.second;
    if (session.last_used >= oldest) return false;
    floor_ = std::max(floor_, session.highest + 1);
    notes_ -= session.committed.size();
    return true;
  });
  PMSTORE_CHECK(sessions_.size() == most, "a mark has room for the others");
}

void Coordinators::keep_notes() {
  if (notes_ <= kNotes) return;
  const size_t share = kNotes / sessions_.size();
  for (auto& [key, session] : sessions_) {
    while (session.committed.size() > share) drop_oldest(session);
  }
}

// At most `most` numbers, the last ones.
CoordinatorMark::Session Coordinators::marked(ClientId client, const Session& session,
                                              size_t most) {
  CoordinatorMark::Session marked{
      client, std::max(session.known_from, session.decided), session.highest, {}};
  for (const uint64_t number : session.committed) {
    if (number >= session.decided) marked.committed.push_back(number);
  }
  const size_t dropped = marked.committed.size() - std::min(marked.committed.size(), most);
  const auto kept = marked.committed.begin() + static_cast<std::ptrdiff_t>(dropped);
  for (auto each = marked.committed.begin(); each != kept; ++each) {
    marked.known_from = std::max(marked.known_from, *each + 1);
  }
  marked.committed.erase(marked.committed.begin(), kept);
  return marked;
}

CoordinatorMark Coordinators::mark(uint64_t through_lsn, size_t most_bytes) {
  CoordinatorMark mark;
  size_t left = most_bytes - std::min(most_bytes, mark_bytes(mark));
  keep_sessions(left / sizeof(MarkedSession));
  keep_notes();
  mark.through_lsn = through_lsn;
  mark.floor = floor_;
  left -= sessions_.size() * sizeof(MarkedSession);
  mark.sessions.reserve(sessions_.size());
  for (const auto& [key, session] : sessions_) {
    // What one does not need is left to those behind it.
    const size_t share = left / sizeof(uint64_t) / (sessions_.size() - mark.sessions.size());
    mark.sessions.push_back(marked(key.client, session, share));
    left -= mark.sessions.back().committed.size() * sizeof(uint64_t);
  }
  PMSTORE_CHECK(mark_bytes(mark) <= most_bytes, "the log has room for so much");
  return mark;
}

void Coordinators::restore(const CoordinatorMark& mark) {
  sessions_.clear();
  notes_ = 0;
  raise_floor(mark.floor);
  for (const CoordinatorMark::Session& each : mark.sessions) {
    Session& session = sessions_[key_of({each.client, each.highest})];
    session = {each.known_from, each.known_from, each.highest, ++ticks_, {}};
    session.committed.assign(each.committed.begin(), each.committed.end());
    notes_ += each.committed.size();
  }
}

void Coordinators::raise_floor(uint64_t floor) { floor_ = std::max(floor_, floor); }

}  // namespace pmstore::internal
