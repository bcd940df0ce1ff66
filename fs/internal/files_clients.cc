#include "fs/internal/files_clients.h"

#include <algorithm>
#include <unordered_set>

#include "base/check.h"
#include "base/random.h"

namespace pmstore::fs::internal {

FilesClientRef FilesClients::find(ClientId id, uint64_t instance) const {
  const auto found = clients_.find({id, instance});
  return found == clients_.end() ? nullptr : found->second;
}

FilesClientRef FilesClients::came(ClientId id, uint64_t instance, uint64_t last_sent,
                                  service::Session& session) {
  FilesClientRef& client = clients_[{id, instance}];
  if (client == nullptr) {
    client = std::make_shared<FilesClient>(executor_);
    client->id = id;
    client->instance = instance;
    client->owner = OpenOwner{++last_owner_};
    client->ticket = base::random_identity();
    // What was executed of these was forgotten, and it begins without a map.
    client->known_through = last_sent;
    client->confirmed = newest();
  }
  PMSTORE_CHECK(client->session == nullptr && !client->forgotten, "one session at a time");
  client->session = &session;
  return client;
}

bool FilesClients::lingers(ClientId id, uint64_t instance) {
  std::erase_if(lingering_, [](const FilesClientRef& each) { return each->active == 0; });
  return std::any_of(lingering_.begin(), lingering_.end(), [&](const FilesClientRef& each) {
    return each->id == id && each->instance == instance;
  });
}

void FilesClients::left(FilesClient& client) {
  client.session = nullptr;
  client.away_since_ns = executor_.now_ns();
  FilesClient* first = nullptr;
  FilesClient* first_of_same = nullptr;  // nobody pushes others out by instances of its own
  size_t away = 0;
  const auto earlier = [](FilesClient* than, const FilesClient& each) {
    return than == nullptr || each.away_since_ns < than->away_since_ns;
  };
  for (const auto& [origin, each] : clients_) {
    if (each->session != nullptr) continue;
    ++away;
    if (earlier(first, *each)) first = each.get();
    const bool same = each->id == client.id && each.get() != &client;
    if (same && earlier(first_of_same, *each)) first_of_same = each.get();
  }
  if (away > max_away_) forget(first_of_same != nullptr ? *first_of_same : *first);
}

void FilesClients::forget(FilesClient& client) {
  const auto found = clients_.find({client.id, client.instance});
  PMSTORE_CHECK(found != clients_.end() && found->second.get() == &client && !client.forgotten,
                "a client is forgotten once");
  const FilesClientRef kept = found->second;
  client.forgotten = true;
  clients_.erase(found);
  std::erase_if(lingering_, [](const FilesClientRef& each) { return each->active == 0; });
  if (client.active > 0) lingering_.push_back(kept);
  if (on_forget) on_forget(client);
  client.answered.notify_all();
  changed_.notify_all();
}

std::vector<FilesClientRef> FilesClients::look() {
  const uint64_t now_ns = executor_.now_ns();
  std::vector<FilesClientRef> gone;
  std::vector<FilesClientRef> deaf;
  for (const auto& [origin, client] : clients_) {
    // News of then may be kept no more when the two leases are over.
    if (is_behind(*client, newest(), client->confirmed) && !client->behind_since_ns) {
      client->behind_since_ns = made_ns(client->confirmed + 1);
    }
    const bool away = client->session == nullptr;
    if (away && now_ns - client->away_since_ns >= lease_ns_) {
      gone.push_back(client);
    } else if (client->behind_since_ns && now_ns - *client->behind_since_ns >= 2 * lease_ns_) {
      deaf.push_back(client);
    }
  }
  for (const FilesClientRef& client : gone) {
    if (!client->forgotten) forget(*client);
  }
  return deaf;
}

// ---- requests with a number ----

FilesClients::Number FilesClients::begin(FilesClient& client, uint64_t number) {
  PMSTORE_CHECK(number != 0, "0 is no number");
  if (number <= client.known_through) return Number::kKnown;
  const auto found = client.executed.find(number);
  if (found != client.executed.end()) {
    return found->second ? Number::kAnswered : Number::kRunning;
  }
  if (client.executed.size() >= kAnswers) return Number::kTooMany;
  client.executed.emplace(number, std::nullopt);
  return Number::kNew;
}

void FilesClients::answer(FilesClient& client, uint64_t number, FilesClient::Answer answer) {
  const auto found = client.executed.find(number);
  // Otherwise the client wants no answer any more.
  if (found != client.executed.end()) {
    PMSTORE_CHECK(!found->second, "a number is executed once");
    found->second = std::move(answer);
  }
  client.answered.notify_all();
}

void FilesClients::drop(FilesClient& client, uint64_t number) {
  client.executed.erase(number);
  client.answered.notify_all();
}

void FilesClients::known(FilesClient& client, uint64_t through) {
  if (through <= client.known_through) return;
  client.known_through = through;
  client.executed.erase(client.executed.begin(), client.executed.upper_bound(through));
}

// ---- news ----

void FilesClients::add_news(Ino ino, bool recall) {
  news_.push_back({ino, executor_.now_ns(), recall});
  if (news_.size() <= kNews) return;
  news_.pop_front();
  ++first_news_;
}

uint64_t FilesClients::made_ns(uint64_t number) const {
  PMSTORE_CHECK(number <= newest() && !news_.empty(), "only what was made has a time");
  const uint64_t at = number < first_news_ ? 0 : number - first_news_;
  return news_[at].made_ns;
}

bool FilesClients::confirm(FilesClient& client, uint64_t through) {
  if (through > newest()) return false;
  if (through <= client.confirmed) return true;
  client.confirmed = through;
  client.behind_since_ns.reset();
  changed_.notify_all();
  return true;
}

bool FilesClients::confirm_beside(FilesClient& client, uint64_t through,
                                  const UnlandedWrites& unlanded) {
  if (through > newest()) return false;
  std::erase_if(client.held_back, [&](const auto& each) { return !unlanded.contains(each.first); });
  for (const auto& [server, files] : unlanded) {
    const uint64_t now_ns = executor_.now_ns();
    client.held_back.try_emplace(server, FilesClient::HeldBack{client.confirmed, now_ns, false});
  }
  for (const auto& [server, held] : client.held_back) {
    PMSTORE_CHECK(held.confirmed <= client.confirmed, "a server is held back, never ahead");
  }
  changed_.notify_all();
  return confirm(client, through);
}

std::vector<std::pair<FilesClientRef, uint16_t>> FilesClients::held_back_long() const {
  std::vector<std::pair<FilesClientRef, uint16_t>> all;
  for (const auto& [origin, client] : clients_) {
    for (const auto& [server, held] : client->held_back) {
      if (executor_.now_ns() - held.since_ns >= 2 * lease_ns_) all.emplace_back(client, server);
    }
  }
  return all;
}

void FilesClients::landed(FilesClient& client, uint16_t server) {
  const size_t erased = client.held_back.erase(server);
  PMSTORE_CHECK(erased == 1, "what has landed was held back");
  changed_.notify_all();
}

std::vector<service::Session*> FilesClients::sessions() const {
  std::vector<service::Session*> all;
  for (const auto& [origin, client] : clients_) {
    if (client->session != nullptr) all.push_back(client->session);
  }
  return all;
}

FilesClients::News FilesClients::news_after(uint64_t confirmed, size_t most) const {
  News news;
  news.through = newest();
  if (confirmed >= newest()) return news;
  if (confirmed + 1 < first_news_) {
    news.all = true;
    return news;
  }
  std::unordered_set<uint64_t> seen[2];
  for (size_t at = confirmed + 1 - first_news_; at < news_.size(); ++at) {
    const bool recall = news_[at].recall;
    if (!seen[recall ? 1 : 0].insert(raw(news_[at].ino)).second) continue;
    if (news.changed.size() + news.recalled.size() == most) {
      news.all = true;
      news.changed.clear();
      news.recalled.clear();
      return news;
    }
    (recall ? news.recalled : news.changed).push_back(news_[at].ino);
  }
  return news;
}

void FilesClients::retire(const AreaRange& range) {
  const std::pair<uint16_t, uint64_t> at(range.server, range.offset);
  // One that does not fit waits longer than it must.
  if (retired_.size() < kRetired || retired_.contains(at)) retired_[at] = newest();
}

base::Task<void> FilesClients::all_confirmed(AreaRange range) {
  const auto retired = retired_.find({range.server, range.offset});
  const uint64_t through = retired == retired_.end() ? newest() : retired->second;
  PMSTORE_CHECK(through <= newest(), "nobody can confirm what is not there");
  while (true) {
    const bool behind = std::any_of(clients_.begin(), clients_.end(), [&](const auto& each) {
      return is_behind(*each.second, through, each.second->confirmed_at(range.server));
    });
    if (!behind) break;
    co_await changed_.wait();
  }
  retired_.erase({range.server, range.offset});
}

}  // namespace pmstore::fs::internal
