#include "fs/internal/delegations.h"

#include <algorithm>

#include "base/check.h"

namespace pmstore::fs::internal {

Delegations::Opener& Delegations::enter(OpenOwner client, Ino ino) {
  clients_[client].files.insert(ino);
  Opener& mine = files_[ino].openers[client];
  ++mine.opens;
  return mine;
}

void Delegations::settle(OpenOwner client, Ino ino) {
  OfFile& file = files_.at(ino);
  const auto writes = [](const Opener& each) { return each.writes || each.changes > 0; };
  const bool mine = writes(file.openers.at(client));
  const bool conflicts = std::any_of(
      file.openers.begin(), file.openers.end(),
      [&](const auto& each) { return each.first != client && (mine || writes(each.second)); });
  if (conflicts && !file.shared) recall(ino, file);
}

bool Delegations::opened(OpenOwner client, Ino ino, bool writes, bool wants) {
  Opener& mine = enter(client, ino);
  if (writes) changes_.begin(client, ino);
  mine.writes |= writes;
  settle(client, ino);
  const OfFile& file = files_.at(ino);
  if (file.shared || !wants) return false;
  for (const auto& [other, opener] : file.openers) {
    const bool others_write = other != client && (opener.writes || opener.changes > 0);
    PMSTORE_CHECK(!others_write, "a file that is cached has no writer elsewhere");
  }
  mine.caches = true;
  return true;
}

void Delegations::begin_change(OpenOwner client, Ino ino) {
  changes_.begin(client, ino);
  ++enter(client, ino).changes;
  settle(client, ino);
}

void Delegations::end_change(OpenOwner client, Ino ino) {
  const auto file = files_.find(ino);
  if (file == files_.end()) return;
  const auto mine = file->second.openers.find(client);
  if (mine == file->second.openers.end()) return;  // dropped meanwhile
  --mine->second.changes;
  closed(client, ino);
}

void Delegations::recall(Ino ino, OfFile& file) {
  file.shared = true;
  const bool cached = std::any_of(file.openers.begin(), file.openers.end(),
                                  [](const auto& each) { return each.second.caches; });
  if (!cached) return;
  ++recalls_;
  PMSTORE_CHECK(on_recall != nullptr, "clients are told of recalls");
  const uint64_t number = on_recall(ino);
  for (const auto& [client, opener] : file.openers) {
    if (opener.caches) clients_.at(client).recalls.emplace(number, ino);
  }
}

void Delegations::share(Ino ino) {
  const auto file = files_.find(ino);
  if (file != files_.end() && !file->second.shared) recall(ino, file->second);
}

void Delegations::closed(OpenOwner client, Ino ino) {
  const auto file = files_.find(ino);
  if (file == files_.end()) return;
  const auto mine = file->second.openers.find(client);
  if (mine == file->second.openers.end() || --mine->second.opens > 0) return;
  file->second.openers.erase(mine);
  if (file->second.openers.empty()) files_.erase(file);
  const auto of_client = clients_.find(client);
  PMSTORE_CHECK(of_client != clients_.end(), "who has a file open is known");
  of_client->second.files.erase(ino);
  std::erase_if(of_client->second.recalls, [ino](const auto& each) { return each.second == ino; });
  of_client->second.unlanded.erase(ino);
  if (of_client->second.files.empty()) clients_.erase(of_client);
}

void Delegations::drop(OpenOwner client) {
  list(client, {});
  const auto of_client = clients_.find(client);
  if (of_client == clients_.end()) return;
  for (const Ino ino : of_client->second.files) {
    const auto file = files_.find(ino);
    PMSTORE_CHECK(file != files_.end(), "what a client has open is known");
    file->second.openers.erase(client);
    if (file->second.openers.empty()) files_.erase(file);
  }
  clients_.erase(of_client);
}

void Delegations::admit(OpenOwner client, Ino ino) {
  const auto file = files_.find(ino);
  if (file == files_.end()) return;
  const auto mine = file->second.openers.find(client);
  if (mine != file->second.openers.end()) mine->second.admitted = mine->second.writes;
}

bool Delegations::is_admitted(OpenOwner client, Ino ino) const {
  const auto file = files_.find(ino);
  if (file == files_.end()) return false;
  const auto mine = file->second.openers.find(client);
  return mine != file->second.openers.end() && mine->second.admitted;
}

bool Delegations::is_cached_beside(OpenOwner client, Ino ino) const {
  const auto file = files_.find(ino);
  if (file == files_.end() || !file->second.shared) return false;
  return std::any_of(file->second.openers.begin(), file->second.openers.end(),
                     [&](const auto& each) { return each.first != client && each.second.caches; });
}

bool Delegations::caches(OpenOwner client) const {
  const auto of_client = clients_.find(client);
  if (of_client == clients_.end()) return false;
  return std::any_of(of_client->second.files.begin(), of_client->second.files.end(),
                     [&](Ino ino) { return files_.at(ino).openers.at(client).caches; });
}

uint64_t Delegations::changed_by_others(OpenOwner client, Ino ino) const {
  for (const auto& [other, listed] : listed_) {
    if (other == client) continue;
    const bool may_land = std::any_of(listed.begin(), listed.end(), [ino](const auto& each) {
      return each.second.contains(ino);
    });
    if (may_land) return UINT64_MAX;
  }
  return changes_.last_by_others(client, ino);
}

void Delegations::end_listed(OpenOwner client, const UnlandedFiles& listed,
                             const UnlandedFiles* still) {
  if (listed.any && (still == nullptr || !still->any)) changes_.begin_all();
  for (const Ino ino : listed.inos) {
    if (still == nullptr || !still->contains(ino)) changes_.begin(client, ino);
  }
}

void Delegations::list(OpenOwner client, const UnlandedWrites& unlanded) {
  if (const auto before = listed_.find(client); before != listed_.end()) {
    for (const auto& [server, files] : before->second) {
      const auto still = unlanded.find(server);
      end_listed(client, files, still == unlanded.end() ? nullptr : &still->second);
    }
    listed_.erase(before);
  }
  if (!unlanded.empty()) listed_.emplace(client, unlanded);
}

void Delegations::confirmed(OpenOwner client, uint64_t through, const UnlandedWrites* unlanded,
                            uint64_t now_ns) {
  if (unlanded != nullptr) list(client, *unlanded);
  const auto of_client = clients_.find(client);
  if (of_client == clients_.end()) return;
  // A server that landed() has told of does not come back by a later list.
  if (unlanded != nullptr) {
    note_landed(client, of_client->second, [unlanded](uint16_t server, Ino ino, uint64_t) {
      const auto listed = unlanded->find(server);
      return listed == unlanded->end() || !listed->second.contains(ino);
    });
  }
  auto& recalls = of_client->second.recalls;
  while (!recalls.empty() && recalls.begin()->first <= through) {
    const Ino ino = recalls.begin()->second;
    recalls.erase(recalls.begin());
    std::map<uint16_t, uint64_t> servers;
    if (unlanded != nullptr) {
      for (const auto& [server, files] : *unlanded) {
        if (files.contains(ino)) servers.emplace(server, now_ns);
      }
    }
    if (servers.empty()) {
      files_.at(ino).openers.at(client).caches = false;
    } else {
      of_client->second.unlanded[ino] = std::move(servers);
    }
  }
}

void Delegations::note_landed(OpenOwner client, OfClient& of_client, const HasLanded& has_landed) {
  for (auto& [ino, servers] : of_client.unlanded) {
    const Ino file = ino;
    std::erase_if(servers,
                  [&](const auto& each) { return has_landed(each.first, file, each.second); });
    if (servers.empty()) files_.at(file).openers.at(client).caches = false;
  }
  std::erase_if(of_client.unlanded, [](const auto& each) { return each.second.empty(); });
}

void Delegations::landed(OpenOwner client, uint16_t server) {
  if (const auto listed = listed_.find(client); listed != listed_.end()) {
    UnlandedWrites still = listed->second;
    still.erase(server);
    list(client, still);
  }
  const auto of_client = clients_.find(client);
  if (of_client == clients_.end()) return;
  note_landed(client, of_client->second,
              [server](uint16_t each, Ino, uint64_t) { return each == server; });
}

void Delegations::give_up(OpenOwner client, uint16_t server, uint64_t since_ns) {
  const auto of_client = clients_.find(client);
  if (of_client == clients_.end()) return;
  note_landed(client, of_client->second, [&](uint16_t each, Ino, uint64_t since) {
    return each == server && since <= since_ns;
  });
}

bool Delegations::must_hear(OpenOwner client, uint64_t confirmed) const {
  const auto of_client = clients_.find(client);
  if (of_client == clients_.end() || of_client->second.recalls.empty()) return false;
  return of_client->second.recalls.rbegin()->first > confirmed;
}

}  // namespace pmstore::fs::internal
