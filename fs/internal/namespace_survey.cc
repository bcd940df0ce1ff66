#include "fs/internal/namespace_survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "fs/internal/table_records.h"

namespace pmstore::fs::internal {

namespace {

// Not 0.
uint64_t fingerprint_of(std::string_view value) { return std::hash<std::string_view>{}(value) | 1; }

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

Finding wrong_count(Finding::Kind kind, Ino ino, uint64_t right, std::string line) {
  return {kind, std::move(line), ino, right, {}, {}};
}

}  // namespace

NamespaceSurvey::NamespaceSurvey(Client& client, const NamespaceTables& tables,
                                 const std::vector<AreaRange>& sections)
    : client_(client), tables_(tables) {
  for (const AreaRange& section : sections) areas_.add(section);
}

Finding wrong_size(Ino directory, uint64_t counts, uint64_t has) {
  return wrong_count(
      Finding::Kind::kSize, directory, has,
      fmt::format("directory {} counts {} entries, but has {}", raw(directory), counts, has));
}

Finding wrong_links_of_directory(Ino directory, uint64_t links, uint64_t subdirectories) {
  return wrong_count(Finding::Kind::kDirectoryLinks, directory, 2 + subdirectories,
                     fmt::format("directory {} has link count {}, but {} subdirectories",
                                 raw(directory), links, subdirectories));
}

Finding wrong_data_bytes(Ino ino, uint64_t counts, uint64_t has) {
  return wrong_count(
      Finding::Kind::kDataBytes, ino, has,
      fmt::format("inode {} counts {} bytes of extents, but has {}", raw(ino), counts, has));
}

Finding wrong_xattr_bytes(Ino ino, uint64_t counts, uint64_t has) {
  return wrong_count(Finding::Kind::kXattrBytes, ino, has,
                     fmt::format("inode {} counts {} bytes of attribute names, but has {}",
                                 raw(ino), counts, has));
}

void NamespaceSurvey::add(Kind kind, std::string line, Ino ino, uint64_t value, std::string name,
                          TableId table) {
  findings_.push_back({kind, std::move(line), ino, value, std::move(name), table});
}

NamespaceSurvey::Seen* NamespaceSurvey::seen(Ino ino) {
  const auto found = inodes_.find(raw(ino));
  return found == inodes_.end() ? nullptr : &found->second;
}

uint64_t NamespaceSurvey::fingerprint(Ino ino) const {
  const auto found = inodes_.find(raw(ino));
  return found == inodes_.end() ? 0 : found->second.fingerprint;
}

void NamespaceSurvey::add_wrong_place(std::string line, Ino ino, TableId table, std::string key) {
  // Where its units may be is known only with all areas.
  add(areas_are_known_ ? Kind::kWrongPlace : Kind::kOther, std::move(line), ino, 0, std::move(key),
      table);
}

Task<Status> NamespaceSurvey::see_all(TableId table, std::string_view name,
                                      std::function<void(const RecordRef&)> see) {
  PMSTORE_CO_TRY(const uint64_t illegible, co_await see_records(client_, table, std::move(see)));
  if (illegible == 0) co_return Status{};
  if (table == tables_.maps || table == tables_.freed) records_are_legible_ = false;
  add(Kind::kOther,
      fmt::format("{} records, of table {} or others, have a wrong checksum; the next start of the "
                  "server treats them as deleted",
                  illegible, name));
  co_return Status{};
}

void NamespaceSurvey::see_inode(const RecordRef& record) {
  const auto ino = ino_of_key(record.key);
  if (!ino) return add_damaged(ino.error());
  const auto inode = decode_inode(*ino, record.value);
  if (!inode) {
    // It is there: what belongs to it must not be taken for something that nobody has.
    inodes_.emplace(raw(*ino),
                    Seen{.fingerprint = fingerprint_of(record.value), .is_damaged = true});
    return add_damaged(inode.error());
  }
  const Attributes& a = inode->attributes;
  inodes_.emplace(raw(*ino), Seen{.type = a.type,
                                  .links = a.links,
                                  .size = a.size,
                                  .data_bytes = a.data_bytes,
                                  .next_number = inode->next_number,
                                  .xattr_bytes = inode->xattr_bytes,
                                  .version = a.version,
                                  .fingerprint = fingerprint_of(record.value)});
  directories_ += inode->is_directory();
}

void NamespaceSurvey::see_entry(const RecordRef& record, Numbers& numbers) {
  const auto parent = ino_of_key(record.key);
  if (!parent) return add_damaged(parent.error());
  const std::string name(record.key.substr(8));
  const auto entry = decode_entry(record.value);
  if (!entry) return add_damaged(entry.error());
  Seen* const directory = seen(*parent);
  const bool is_in_one =
      directory != nullptr && (directory->is_damaged || directory->type == FileType::kDirectory);
  if (!is_in_one) {
    return add(Kind::kStrayRecord,
               fmt::format("entry '{}' is of inode {}, which is no directory", name, raw(*parent)),
               *parent, 0, std::string(record.key), tables_.entries);
  }
  const auto [same, is_first] =
      numbers.emplace(std::pair(raw(*parent), entry->number), std::pair(entry->ino, name));
  if (!is_first) {
    add(Kind::kNumber,
        fmt::format("entries '{}' and '{}' of directory {} have the same number {}",
                    same->second.second, name, raw(*parent), entry->number),
        *parent, entry->number, name);
  }
  Seen* const named = seen(entry->ino);
  const bool fits = named != nullptr && (named->is_damaged || named->type == entry->type);
  if (!fits) {
    return add(Kind::kNoInode,
               fmt::format("entry '{}' of directory {} names inode {}, which is not there", name,
                           raw(*parent), raw(entry->ino)),
               *parent, entry->number, name);
  }
  ++directory->entries;
  ++named->names;
  if (!directory->is_damaged && entry->number >= directory->next_number) {
    add(Kind::kOther,
        fmt::format("entry '{}' of directory {} has number {}, but the next one is {}", name,
                    raw(*parent), entry->number, directory->next_number),
        *parent);
  }
  if (entry->type == FileType::kDirectory) {
    ++directory->subdirectories;
    named->named_by = *parent;
  }
}

void NamespaceSurvey::see_number(const RecordRef& record, Numbers& numbers) {
  const auto parent = ino_of_key(record.key);
  const auto number = number_of_key(record.key);
  if (!parent || !number)
    return add(Kind::kOther, "the key of a directory entry's number is wrong");
  const auto name = decode_number(record.value);
  if (!name) return add_damaged(name.error());
  const auto entry = numbers.find({raw(*parent), *number});
  if (entry == numbers.end()) {
    return add(Kind::kStrayNumber,
               fmt::format("number {} of directory {}, '{}', has no entry", *number, raw(*parent),
                           name->name),
               *parent, *number);
  }
  if (entry->second != std::pair(name->ino, name->name)) {
    add(Kind::kNumber,
        fmt::format("number {} of directory {} says '{}', but the entry is '{}'", *number,
                    raw(*parent), name->name, entry->second.second),
        *parent, *number, entry->second.second);
  }
  numbers.erase(entry);
}

void NamespaceSurvey::compare_numbers(const Numbers& numbers) {
  for (const auto& [key, entry] : numbers) {
    add(Kind::kNumber,
        fmt::format("entry '{}' of directory {} has number {}, which is not there", entry.second,
                    key.first, key.second),
        Ino{key.first}, key.second, entry.second);
  }
}

void NamespaceSurvey::see_parent(const RecordRef& record) {
  const auto ino = ino_of_key(record.key);
  if (!ino) return add_damaged(ino.error());
  const auto parent = decode_parent(record.value);
  if (!parent) return add_damaged(parent.error());
  Seen* const directory = seen(*ino);
  const bool is_one =
      directory != nullptr &&
      (directory->is_damaged || (directory->type == FileType::kDirectory && directory->links > 0));
  if (!is_one) {
    return add(Kind::kStrayRecord,
               fmt::format("a parent is recorded for inode {}, which is no directory", raw(*ino)),
               *ino, 0, std::string(record.key), tables_.parents);
  }
  directory->parent = *parent;
}

void NamespaceSurvey::see_piece(const RecordRef& record) {
  const auto ino = ino_of_key(record.key);
  const auto piece = decode_piece(record.key, record.value);
  if (!ino || !piece) {
    return add_wrong_place(fmt::format("inode {}: {}", ino ? raw(*ino) : 0,
                                       ino ? piece.error().message : ino.error().message),
                           ino ? *ino : Ino{}, tables_.maps, std::string(record.key));
  }
  ++extents_;
  places_.push_back({piece->place, *ino, piece->file_offset});
  Seen* const file = seen(*ino);
  if (file == nullptr || (!file->is_damaged && file->type != FileType::kRegular)) {
    return add(Kind::kStrayPiece,
               fmt::format("an extent at {} is of inode {}, which is no file", piece->file_offset,
                           raw(*ino)),
               *ino, piece->file_offset, encode(piece->place));
  }
  if (last_piece_ino_ == *ino && last_piece_.end() > piece->file_offset) {
    add(Kind::kOther,
        fmt::format("inode {} has two extents for byte {}", raw(*ino), piece->file_offset), *ino);
  }
  last_piece_ = *piece;
  last_piece_ino_ = *ino;
  file->mapped_bytes += piece->place.bytes;
}

void NamespaceSurvey::see_freed(const RecordRef& record) {
  const auto id = freed_id_of_key(record.key);
  const auto range = decode_place(record.value);
  if (!id || !range) {
    return add_wrong_place(fmt::format("quarantine, key {}: {}", hex(record.key),
                                       (id ? range.error() : id.error()).message),
                           {}, tables_.freed, std::string(record.key));
  }
  places_.push_back({*range, Ino{}, *id});
}

void NamespaceSurvey::see_orphan(const RecordRef& record) {
  const auto ino = ino_of_key(record.key);
  if (!ino) return add_damaged(ino.error());
  const auto kind = decode_orphan(record.value);
  if (!kind) return add_damaged(kind.error());
  Seen* const orphan = seen(*ino);
  const bool fits = orphan != nullptr &&
                    (orphan->is_damaged || (*kind == OrphanKind::kDeleted) == (orphan->links == 0));
  if (!fits) {
    return add(Kind::kStrayRecord,
               fmt::format("inode {} is recorded as an orphan, but it is none", raw(*ino)), *ino, 0,
               std::string(record.key), tables_.orphans);
  }
  orphan->is_orphan = true;
}

void NamespaceSurvey::see_xattr(const RecordRef& record) {
  const auto ino = ino_of_key(record.key);
  if (!ino) return add_damaged(ino.error());
  Seen* const owner = seen(*ino);
  if (owner == nullptr) {
    return add(Kind::kStrayRecord,
               fmt::format("attribute '{}' is of inode {}, which is not there",
                           record.key.substr(8), raw(*ino)),
               *ino, 0, std::string(record.key), tables_.xattrs);
  }
  owner->xattr_names += static_cast<uint32_t>(record.key.size() - 8 + 1);
}

void NamespaceSurvey::judge_directory(Ino ino, const Seen& seen) {
  if (seen.links > 0 && seen.links != 2 + seen.subdirectories) {
    add(wrong_links_of_directory(ino, seen.links, seen.subdirectories));
  }
  if (seen.size != seen.entries) {
    add(wrong_size(ino, seen.size, seen.entries));
  }
  if (seen.names > 1) {
    add(Kind::kOther, fmt::format("directory {} has {} names", raw(ino), seen.names), ino);
  }
  if (ino != kRootIno && seen.links > 0 && seen.names == 1 && seen.parent != seen.named_by) {
    add(Kind::kParent,
        fmt::format("directory {} is in directory {}, but its parent is recorded as {}", raw(ino),
                    raw(seen.named_by), raw(seen.parent)),
        ino, raw(seen.named_by));
  }
}

void NamespaceSurvey::judge_inode(Ino ino, const Seen& seen) {
  if (seen.is_damaged) return;
  if (seen.type == FileType::kDirectory) {
    judge_directory(ino, seen);
  } else if (seen.names != seen.links && seen.names > 0) {
    add(Kind::kLinks,
        fmt::format("inode {} has link count {}, but {} names", raw(ino), seen.links, seen.names),
        ino, seen.names);
  }
  if (seen.links == 0 && seen.names == 0 && !seen.is_orphan) {
    add(Kind::kNoOrphan,
        fmt::format("inode {} has no name, and is not recorded as an orphan", raw(ino)), ino);
  }
  if (seen.data_bytes != seen.mapped_bytes) {
    add(wrong_data_bytes(ino, seen.data_bytes, seen.mapped_bytes));
  }
  if (seen.xattr_bytes != seen.xattr_names) {
    add(wrong_xattr_bytes(ino, seen.xattr_bytes, seen.xattr_names));
  }
}

bool NamespaceSurvey::leads_to_root(Ino ino) {
  std::vector<Seen*> path;
  bool reached = false;
  // A path that is longer than there are directories is a loop.
  while (path.size() <= directories_) {
    if (ino == kRootIno) reached = true;
    Seen* const one = seen(ino);
    if (reached || one == nullptr) break;
    if (one->is_reachable || one->is_damaged) reached = true;
    if (reached) break;
    // It is not reached itself, and what lies below it comes back with it.
    if (one->names == 0 && one->links > 0 && !path.empty()) return true;
    if (one->names == 0) break;
    path.push_back(one);
    ino = one->named_by;
  }
  if (reached) {
    for (Seen* const one : path) one->is_reachable = true;
  }
  return reached;
}

void NamespaceSurvey::judge_reachable() {
  for (const auto& [number, seen] : inodes_) {
    const Ino ino{number};
    if (seen.links == 0 || ino == kRootIno) continue;
    const bool is_directory = seen.type == FileType::kDirectory;
    const bool reached = is_directory ? leads_to_root(ino) : seen.names > 0;
    if (reached) continue;
    add(Kind::kUnreachable,
        fmt::format("inode {} cannot be reached: {}", number,
                    seen.names == 0 ? "it has no name" : "its directories lie in each other"),
        ino, is_directory);
  }
}

// Quarantine gives way to a file, and of two files the one that has changed less.
void NamespaceSurvey::judge_shared(const Place& first, const Place& second) {
  const auto owner = [](Ino ino) {
    return raw(ino) == 0 ? std::string("quarantine") : fmt::format("inode {}", raw(ino));
  };
  std::string line = fmt::format("byte {} of area {} belongs to {} and to {}", second.range.offset,
                                 second.range.server, owner(first.ino), owner(second.ino));
  const auto version_of = [this](const Place& place) -> std::optional<uint64_t> {
    if (raw(place.ino) == 0) return 0;
    const Seen* const file = seen(place.ino);
    // Not known, or it loses the extent anyway: it is no file's.
    if (file == nullptr || file->is_damaged || file->type != FileType::kRegular) return {};
    return file->version;
  };
  const auto of_first = version_of(first), of_second = version_of(second);
  if (!of_first || !of_second) return add(Kind::kOther, std::move(line));
  const Place& loses = *of_first < *of_second ? first : second;
  const Place& keeps = *of_first < *of_second ? second : first;
  add(Kind::kSharedPlace, std::move(line), loses.ino, loses.key,
      encode(loses.range) + encode(keeps.range));
}

bool NamespaceSurvey::judge_place(const Place& place) {
  const bool is_freed = raw(place.ino) == 0;
  const auto add_wrong = [&](const std::string& what) {
    const std::string owner =
        is_freed ? fmt::format("freed range {}", place.key)
                 : fmt::format("the extent at {} of inode {}", place.key, raw(place.ino));
    add_wrong_place(owner + what, place.ino, is_freed ? tables_.freed : tables_.maps,
                    is_freed ? freed_key(place.key) : map_key(place.ino, place.key));
  };
  const AreaRange& range = place.range;
  // Its data is there, and the list may be mended.
  if (lost_servers_.contains(range.server)) return false;
  // The sections are not known.
  if (range.server == 0 && !areas_.knows(0)) return true;
  if (!areas_.knows(range.server)) {
    add_wrong(fmt::format(" is at data server {}, which was never in the list", range.server));
    return false;
  }
  if (areas_.has(range)) return true;
  add_wrong(fmt::format(" is from {} to {}, outside of its area", range.offset,
                        range.offset + range.bytes));
  return false;
}

std::vector<AreaRange> NamespaceSurvey::unnamed() const {
  std::vector<AreaRange> ranges;
  const auto add_between = [&](uint16_t server, uint64_t at, uint64_t end) {
    while (at < end) {
      const uint64_t part = std::min(end - at, kMaxExtentBytes);
      PMSTORE_CHECK(areas_.has({server, at, part}), "quarantine names units that there are");
      ranges.push_back({server, at, part});
      at += part;
    }
  };
  auto place = places_.begin();  // in order: judge_places() has sorted them
  for (const auto& [server, sections] : areas_.by_server()) {
    for (const AreaRange& section : sections) {
      uint64_t at = section.offset;
      const uint64_t end = section.offset + section.bytes;
      for (; place != places_.end(); ++place) {
        const AreaRange& range = place->range;
        if (std::pair(range.server, range.offset) >= std::pair(server, end)) break;
        if (!areas_.has(range)) continue;
        add_between(server, at, range.offset);
        at = std::max(at, range.offset + range.bytes);
      }
      add_between(server, at, end);
    }
  }
  return ranges;
}

void NamespaceSurvey::judge_places() {
  std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
    return std::tuple(a.range.server, a.range.offset) < std::tuple(b.range.server, b.range.offset);
  });
  const auto end_of = [](const Place& place) { return place.range.offset + place.range.bytes; };
  const Place* furthest = nullptr;  // of those that begin before
  for (const Place& place : places_) {
    if (!judge_place(place)) continue;
    const bool is_same_area = furthest != nullptr && furthest->range.server == place.range.server;
    if (is_same_area && place.range.offset < end_of(*furthest)) judge_shared(*furthest, place);
    if (!is_same_area || end_of(place) > end_of(*furthest)) furthest = &place;
  }
}

Task<Status> NamespaceSurvey::look_up_areas() {
  DataServerRecords records(client_);
  const auto listed = co_await records.load();
  if (!listed && listed.code() != ErrorCode::kDamaged) co_return listed.error();
  if (!listed) add_damaged(listed.error());
  if (!listed) co_return Status{};
  for (const DataServerEntry& server : listed->servers) {
    const bool has_data = server.index != 0 && server.state != DataServerState::kGone;
    if (has_data) areas_.add({server.index, 0, server.bytes});
  }
  look_for_lost_servers(*listed);
  // Without a super record the list does not say which servers it has had.
  areas_are_known_ = listed->identity != 0 && areas_.knows(0) && lost_servers_.empty();
  co_return Status{};
}

// The record of a server that is gone stays in the list.
void NamespaceSurvey::look_for_lost_servers(const DataServerRecords::Loaded& listed) {
  std::set<uint16_t> there;
  for (const DataServerEntry& server : listed.servers) there.insert(server.index);
  for (uint16_t index = 1; index < listed.next_index; ++index) {
    if (there.contains(index)) continue;
    lost_servers_.insert(index);
    add(Kind::kOther,
        fmt::format("the record of data server {} is lost, and its files keep what they have "
                    "there: restore the pool from a backup; until then no wrong record of maps and "
                    "quarantine is removed",
                    index));
  }
}

Task<Status> NamespaceSurvey::run() {
  const auto each = [this](auto see) {
    return [this, see](const RecordRef& record) { (this->*see)(record); };
  };
  using Self = NamespaceSurvey;
  const NamespaceTables& t = tables_;
  PMSTORE_CO_TRY_STATUS(co_await look_up_areas());
  PMSTORE_CO_TRY_STATUS(co_await see_all(t.inodes, ".fs.inodes", each(&Self::see_inode)));
  Numbers numbers;
  const auto entry = [&](const RecordRef& record) { see_entry(record, numbers); };
  PMSTORE_CO_TRY_STATUS(co_await see_all(t.entries, ".fs.entries", entry));
  const auto number = [&](const RecordRef& record) { see_number(record, numbers); };
  PMSTORE_CO_TRY_STATUS(co_await see_all(t.numbers, ".fs.numbers", number));
  compare_numbers(numbers);
  PMSTORE_CO_TRY_STATUS(co_await see_all(t.parents, ".fs.parents", each(&Self::see_parent)));
  PMSTORE_CO_TRY_STATUS(co_await see_all(t.maps, ".fs.maps", each(&Self::see_piece)));
  PMSTORE_CO_TRY_STATUS(co_await see_all(t.freed, ".fs.freed", each(&Self::see_freed)));
  PMSTORE_CO_TRY_STATUS(co_await see_all(t.orphans, ".fs.orphans", each(&Self::see_orphan)));
  PMSTORE_CO_TRY_STATUS(co_await see_all(t.xattrs, ".fs.xattrs", each(&Self::see_xattr)));
  if (seen(kRootIno) == nullptr) add(Kind::kOther, "the root directory is not there");
  for (const auto& [ino, seen] : inodes_) judge_inode(Ino{ino}, seen);
  judge_reachable();
  judge_places();
  for (Finding& finding : findings_) {
    if (finding.kind == Kind::kWrongPlace && !records_are_legible_) finding.kind = Kind::kOther;
  }
  co_return Status{};
}

}  // namespace pmstore::fs::internal
