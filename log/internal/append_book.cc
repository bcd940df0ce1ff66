#include "log/internal/append_book.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace pmstore::log::internal {

void AppendBook::came(AppendOrigin id, uint64_t last_sent) {
  const auto [found, fresh] = clients_.try_emplace(id);
  Client& client = found->second;
  PMSTORE_CHECK(!client.here, "the session before has ended");
  if (fresh) {
    // Whatever was executed of these was forgotten.
    client.known_through = last_sent;
  } else {
    absent_.erase(client.absent);
  }
  client.here = true;
}

void AppendBook::left(AppendOrigin id) {
  const auto found = clients_.find(id);
  PMSTORE_CHECK(found != clients_.end() && found->second.here, "who leaves has come");
  found->second.here = false;
  found->second.absent = absent_.insert(absent_.end(), id);
  if (absent_.size() <= kAbsentClients) return;
  clients_.erase(absent_.front());
  absent_.pop_front();
  PMSTORE_CHECK(absent_.size() <= clients_.size(), "an absent client is a known one");
}

bool AppendBook::may_be_repeated(AppendOrigin id, uint64_t number) const {
  const auto found = clients_.find(id);
  return found != clients_.end() && number <= found->second.highest;
}

AppendBook::Client& AppendBook::present(AppendOrigin id) {
  const auto found = clients_.find(id);
  PMSTORE_CHECK(found != clients_.end() && found->second.here, "who asks has come");
  return found->second;
}

void AppendBook::known(AppendOrigin id, uint64_t through) {
  Client& client = present(id);
  if (through <= client.known_through) return;
  client.known_through = through;
  std::erase_if(client.executed, [&](const Executed& each) { return each.number <= through; });
}

Result<std::optional<AppendReply>> AppendBook::repeated(AppendOrigin id, uint64_t number) {
  Client& client = present(id);
  if (number <= client.known_through) {
    return make_error(ErrorCode::kOutcomeExpired,
                      fmt::format("append {} of this client is over: append again", number));
  }
  client.highest = std::max(client.highest, number);
  for (const Executed& each : client.executed) {
    if (each.number == number) return std::optional(each.reply);
  }
  return std::optional<AppendReply>();
}

size_t AppendBook::answers() const {
  size_t all = 0;
  for (const auto& [id, client] : clients_) all += client.executed.size();
  return all;
}

void AppendBook::executed(AppendOrigin id, uint64_t number, const AppendReply& reply) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;  // so many came and went meanwhile
  Client& client = found->second;
  if (number <= client.known_through) return;
  if (client.executed.size() == kAppendsPerClient) {
    // The client has more appends under way than are kept: the oldest one is not known any more.
    const auto oldest = std::min_element(
        client.executed.begin(), client.executed.end(),
        [](const Executed& one, const Executed& other) { return one.number < other.number; });
    client.known_through = std::max(client.known_through, oldest->number);
    client.executed.erase(oldest);
  }
  client.executed.push_back({number, reply});
  PMSTORE_CHECK(client.executed.size() <= kAppendsPerClient, "what is kept is bounded");
}

}  // namespace pmstore::log::internal
