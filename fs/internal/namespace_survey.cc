#include "fs/internal/namespace_survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "fs/internal/data_server_records.h"

namespace pmstore::fs::internal {

void NamespaceSurvey::add(Kind kind, std::string line, Ino ino, uint64_t value, std::string name,
                          TableId table) {
  findings_.push_back({kind, std::move(line), ino, value, std::move(name), table});
}

NamespaceSurvey::Seen* NamespaceSurvey::seen(Ino ino) {
  const auto found = inodes_.find(raw(ino));
  return found == inodes_.end() ? nullptr : &found->second;
}

template <typename See>
Task<Status> NamespaceSurvey::see_all(TableId table, See see) {
  std::string from;
  while (true) {
    Transaction transaction = client_.begin();
    const KeyRange range{from, {}};
    TransactionScan scan = transaction.scan(table, range);
    auto page = co_await scan.next();
    if (!page && page.code() == ErrorCode::kConflict) continue;
    if (!page) co_return page.error();
    if (page->empty()) co_return Status{};
    for (const RecordRef record : *page) see(record);
    from = std::string(page->back().key) + '\0';
  }
}

void NamespaceSurvey::see_inode(const RecordRef& record) {
  const auto ino = ino_of_key(record.key);
  if (!ino) return add_damaged(ino.error());
  const auto inode = decode_inode(*ino, record.value);
  if (!inode) {
    // It is there: what belongs to it must not be taken for something that nobody has.
    inodes_.emplace(raw(*ino), Seen{.is_damaged = true});
    return add_damaged(inode.error());
  }
  const Attributes& a = inode->attributes;
  inodes_.emplace(raw(*ino), Seen{.type = a.type,
                                  .links = a.links,
                                  .size = a.size,
                                  .data_bytes = a.data_bytes,
                                  .next_number = inode->next_number,
                                  .xattr_bytes = inode->xattr_bytes,
                                  .version = a.version});
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
                    raw(*parent), entry->number, directory->next_number));
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
  if (!ino) return add_damaged(ino.error());
  const auto piece = decode_piece(record.key, record.value);
  if (!piece) return add_damaged(piece.error());
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
        fmt::format("inode {} has two extents for byte {}", raw(*ino), piece->file_offset));
  }
  last_piece_ = *piece;
  last_piece_ino_ = *ino;
  file->mapped_bytes += piece->place.bytes;
}

void NamespaceSurvey::see_freed(const RecordRef& record) {
  const auto id = freed_id_of_key(record.key);
  if (!id) return add_damaged(id.error());
  const auto range = decode_place(record.value);
  if (!range) return add_damaged(range.error());
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
    add(Kind::kLinks,
        fmt::format("directory {} has link count {}, but {} subdirectories", raw(ino), seen.links,
                    seen.subdirectories),
        ino, 2 + seen.subdirectories);
  }
  if (seen.size != seen.entries) {
    add(Kind::kSize,
        fmt::format("directory {} counts {} entries, but has {}", raw(ino), seen.size,
                    seen.entries),
        ino, seen.entries);
  }
  if (seen.names > 1) {
    add(Kind::kOther, fmt::format("directory {} has {} names", raw(ino), seen.names));
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
    add(Kind::kDataBytes,
        fmt::format("inode {} counts {} bytes of extents, but has {}", raw(ino), seen.data_bytes,
                    seen.mapped_bytes),
        ino, seen.mapped_bytes);
  }
  if (seen.xattr_bytes != seen.xattr_names) {
    add(Kind::kXattrBytes,
        fmt::format("inode {} counts {} bytes of attribute names, but has {}", raw(ino),
                    seen.xattr_bytes, seen.xattr_names),
        ino, seen.xattr_names);
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
    if (reached || one->names == 0) break;
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

void NamespaceSurvey::judge_place(const Place& place) {
  uint64_t area_bytes = area_bytes_;
  if (place.range.server != 0) {
    const auto found = other_bytes_.find(place.range.server);
    if (found == other_bytes_.end()) {
      return add(Kind::kOther, fmt::format("an extent of inode {} is at data server {}, which is "
                                           "not in the list",
                                           raw(place.ino), place.range.server));
    }
    area_bytes = found->second;
  }
  const uint64_t end = place.range.offset + place.range.bytes;
  if (area_bytes == 0 || end <= area_bytes) return;
  add(Kind::kOther,
      fmt::format("an extent of inode {} ends at {}, outside of its area", raw(place.ino), end));
}

void NamespaceSurvey::judge_places() {
  std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
    return std::tuple(a.range.server, a.range.offset) < std::tuple(b.range.server, b.range.offset);
  });
  const auto end_of = [](const Place& place) { return place.range.offset + place.range.bytes; };
  const Place* furthest = nullptr;  // of those that begin before
  for (const Place& place : places_) {
    judge_place(place);
    const bool is_same_area = furthest != nullptr && furthest->range.server == place.range.server;
    if (is_same_area && place.range.offset < end_of(*furthest)) judge_shared(*furthest, place);
    if (!is_same_area || end_of(place) > end_of(*furthest)) furthest = &place;
  }
}

Task<Status> NamespaceSurvey::run() {
  const auto each = [this](auto see) {
    return [this, see](const RecordRef& record) { (this->*see)(record); };
  };
  DataServerRecords records(client_);
  const auto listed = co_await records.load();
  if (!listed && listed.code() != ErrorCode::kDamaged) co_return listed.error();
  if (!listed) add_damaged(listed.error());
  for (size_t i = 0; listed && i < listed->servers.size(); ++i) {
    const DataServerEntry& server = listed->servers[i];
    const bool has_data = server.index != 0 && server.state != DataServerState::kGone;
    if (has_data) other_bytes_[server.index] = server.bytes;
  }
  PMSTORE_CO_TRY_STATUS(co_await see_all(tables_.inodes, each(&NamespaceSurvey::see_inode)));
  Numbers numbers;
  const auto entry = [&](const RecordRef& record) { see_entry(record, numbers); };
  PMSTORE_CO_TRY_STATUS(co_await see_all(tables_.entries, entry));
  const auto number = [&](const RecordRef& record) { see_number(record, numbers); };
  PMSTORE_CO_TRY_STATUS(co_await see_all(tables_.numbers, number));
  compare_numbers(numbers);
  PMSTORE_CO_TRY_STATUS(co_await see_all(tables_.parents, each(&NamespaceSurvey::see_parent)));
  PMSTORE_CO_TRY_STATUS(co_await see_all(tables_.maps, each(&NamespaceSurvey::see_piece)));
  PMSTORE_CO_TRY_STATUS(co_await see_all(tables_.freed, each(&NamespaceSurvey::see_freed)));
  PMSTORE_CO_TRY_STATUS(co_await see_all(tables_.orphans, each(&NamespaceSurvey::see_orphan)));
  PMSTORE_CO_TRY_STATUS(co_await see_all(tables_.xattrs, each(&NamespaceSurvey::see_xattr)));
  if (seen(kRootIno) == nullptr) add(Kind::kOther, "the root directory is not there");
  for (const auto& [ino, seen] : inodes_) judge_inode(Ino{ino}, seen);
  judge_reachable();
  judge_places();
  co_return Status{};
}

}  // namespace pmstore::fs::internal
