// NamespaceSurvey: one look at all records of a file system, and what does not fit together in it.
//
// The tables are read one after the other, so on a file system in use a survey finds differences
// that are none; a caller looks again. Every change of what belongs to an inode changes the inode's
// record: a finding about one whose record was the same in the next survey, too, is no such
// difference. A record with a wrong checksum is counted, and passed over. Memory: some 100 bytes
// for each inode, entry and extent.
// Threads: one executor's. Lifetimes: client and tables outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/task.h"
#include "fs/internal/area_sections.h"
#include "fs/internal/data_server_records.h"
#include "fs/internal/namespace_tables.h"
#include "fs/layout/fs_layout.h"
#include "pmstore/client.h"

namespace pmstore::fs::internal {

// What is wrong, and how it can be mended.
struct Finding {
  enum class Kind : uint8_t {
    kOther,  // reported only
    kLinks,  // of `ino`, no directory; `value` is right
    kDirectoryLinks,
    kSize,         // of a directory
    kDataBytes,    //
    kXattrBytes,   //
    kNoOrphan,     // `ino` has no name and no orphan's record
    kUnreachable,  // `ino` has links, but the root does not lead to it
    kNoInode,      // the entry `name` of `ino` names an inode that is not there
    kNumber,       // the entry `name` of `ino` and its number do not agree
    kStrayNumber,  // number `value` of `ino` has no entry
    kParent,       // `ino`'s parent record; `value` is right
    kStrayPiece,   // the extent at `value` of `ino`, which is no file
    kStrayRecord,  // a record of an inode that is not there: `table`, `name` is its key
    // The extent at `value` of `ino`, or, of ino 0, the freed range `value`, has units of another
    // one: `name` is its place, then the other's place.
    kSharedPlace,
    // The record `name` of `table` does not say which units it means, or means units outside of
    // their area. It may have been any that no other record names.
    kWrongPlace,
  };
  Kind kind = Kind::kOther;
  std::string line;
  Ino ino{};
  uint64_t value = 0;
  std::string name;
  TableId table{};
};

// What is wrong with a count of an inode.
Finding wrong_size(Ino directory, uint64_t counts, uint64_t has);
Finding wrong_links_of_directory(Ino directory, uint64_t links, uint64_t subdirectories);
Finding wrong_data_bytes(Ino ino, uint64_t counts, uint64_t has);
Finding wrong_xattr_bytes(Ino ino, uint64_t counts, uint64_t has);

class NamespaceSurvey {
 public:
  // `sections` of server 0, by offset; none: not known.
  NamespaceSurvey(Client& client, const NamespaceTables& tables,
                  const std::vector<AreaRange>& sections);

  base::Task<Status> run();
  const std::vector<Finding>& findings() const { return findings_; }
  uint64_t inodes() const { return inodes_.size(); }
  uint64_t directories() const { return directories_; }
  uint64_t extents() const { return extents_; }
  // Of an inode's record; 0: it was not there.
  uint64_t fingerprint(Ino ino) const;
  // What of all areas no record names that is right; of server 0 only where its sections are known.
  std::vector<AreaRange> unnamed() const;

 private:
  struct Seen {
    FileType type{};
    uint32_t links = 0;
    uint64_t size = 0;
    uint64_t data_bytes = 0;
    uint64_t next_number = 0;
    uint32_t xattr_bytes = 0;
    uint64_t version = 0;
    uint64_t fingerprint = 0;
    // Counted.
    uint32_t names = 0;
    uint32_t subdirectories = 0;
    uint64_t entries = 0;
    uint64_t mapped_bytes = 0;
    uint32_t xattr_names = 0;
    Ino named_by{};  // of a directory: where its entry is
    Ino parent{};    // as its record says
    bool is_orphan = false;
    bool is_damaged = false;  // its record does not decode: nothing of it is judged
    bool is_reachable = false;
  };
  struct Place {
    AreaRange range;
    Ino ino{};         // 0: quarantine
    uint64_t key = 0;  // file offset, or id of the freed range
  };
  using Kind = Finding::Kind;
  using Numbers = std::map<std::pair<uint64_t, uint64_t>, std::pair<Ino, std::string>>;

  base::Task<Status> look_up_areas();
  void look_for_lost_servers(const DataServerRecords::Loaded& listed);
  base::Task<Status> see_all(TableId table, std::string_view name,
                             std::function<void(const RecordRef&)> see);
  void see_inode(const RecordRef& record);
  void see_entry(const RecordRef& record, Numbers& numbers);
  void see_number(const RecordRef& record, Numbers& numbers);
  void see_parent(const RecordRef& record);
  void see_piece(const RecordRef& record);
  void see_freed(const RecordRef& record);
  void see_orphan(const RecordRef& record);
  void see_xattr(const RecordRef& record);
  void compare_numbers(const Numbers& numbers);
  void judge_inode(Ino ino, const Seen& seen);
  void judge_directory(Ino ino, const Seen& seen);
  void judge_reachable();
  void judge_places();
  // Whether it is inside of a section of its area.
  bool judge_place(const Place& place);
  void add_wrong_place(std::string line, Ino ino, TableId table, std::string key);
  void judge_shared(const Place& first, const Place& second);
  bool leads_to_root(Ino ino);
  Seen* seen(Ino ino);
  void add(Kind kind, std::string line, Ino ino = {}, uint64_t value = 0, std::string name = {},
           TableId table = {});
  void add(Finding finding) { findings_.push_back(std::move(finding)); }
  void add_damaged(const Error& error) { add(Kind::kOther, error.message); }

  Client& client_;
  const NamespaceTables& tables_;
  AreaSections areas_;               // of the servers that are known
  std::set<uint16_t> lost_servers_;  // the list has had them, and has them no more
  bool areas_are_known_ = false;     // all of them
  bool records_are_legible_ = true;  // of the tables that name units
  std::unordered_map<uint64_t, Seen> inodes_;
  std::vector<Place> places_;
  Piece last_piece_;
  Ino last_piece_ino_{};
  uint64_t directories_ = 0;
  uint64_t extents_ = 0;
  std::vector<Finding> findings_;
};

}  // namespace pmstore::fs::internal
