// ReferenceFs: a file system in memory, as POSIX and the manual pages of Linux describe one: what
// the model test compares the real one with. It shares no code with fs/.
//
// Threads: one.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/scenario/fs/model/model_operation.h"

namespace pmstore::fs::model {

// What an operation gives: an errno, or 0 and a text of all that the caller may see.
struct Outcome {
  int error = 0;
  std::string text;
  bool operator==(const Outcome&) const = default;
};

struct User {
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::vector<uint32_t> groups;
};
// By Operation::caller.
User user_of(unsigned caller);

// The attributes that both file systems have.
std::string attributes_text(char type, unsigned mode, uint32_t uid, uint32_t gid, uint64_t links,
                            uint64_t size, uint64_t atime, uint64_t mtime, uint64_t ctime);

class ReferenceFs {
 public:
  // `by_clients`: as clients see it, who tell the server of writes later: without the times of
  // regular files, and a write gives nothing.
  explicit ReferenceFs(bool by_clients = false);
  ReferenceFs clone() const;

  // At this time.
  Outcome apply(const Operation& operation, uint64_t now);
  // The whole tree, and what the slots have open.
  std::string dump() const;

  struct Slot {
    bool is_open = false;
    bool reads = false;
    bool writes = false;
  };
  Slot slot(unsigned index) const {
    return {slots_[index].node != nullptr, slots_[index].reads, slots_[index].writes};
  }
  // All slots, or those of one program (0, 1).
  void close_all();
  void close_program(unsigned program);
  void close_slot(unsigned index) { slots_[index] = {}; }

 private:
  struct Node;
  using Ref = std::shared_ptr<Node>;
  struct Name {
    Ref node;
    uint64_t number = 0;
  };
  struct Node {
    char type = 'f';  // d, f, l
    unsigned mode = 0;
    uint32_t uid = 0;
    uint32_t gid = 0;
    uint64_t links = 1;
    uint64_t atime = 0, mtime = 0, ctime = 0;
    std::string data;
    std::map<std::string, std::string> xattrs;
    std::map<std::string, Name> names;  // of a directory
    std::map<uint64_t, std::string> order;
    uint64_t next_number = 1;
    bool removed = false;
  };
  struct Open {
    Ref node;
    bool reads = false;
    bool writes = false;
  };
  struct Listing {
    Ref directory;
    uint64_t number = 0;
  };
  // Where a path leads: its directory, and the last name.
  struct Found {
    int error = 0;
    Ref directory;
    std::string name;
    Ref node;  // null: the name is free
  };

  // Without the last name.
  Found find(const User& user, const std::vector<uint8_t>& path) const;
  // The last name; it may be free.
  static Found look(const User& user, Found found);
  Found find_there(const User& user, const std::vector<uint8_t>& path) const;
  static bool may(const User& user, const Node& node, unsigned bits);
  static bool may_remove(const User& user, const Node& directory, const Node& node);
  static void clear_set_id(Node& node);
  std::string text(const Node& node) const;
  Ref make(const User& user, const Found& found, char type, unsigned mode, uint64_t now);
  void add(Node& directory, const std::string& name, Ref node, uint64_t now);
  void take(Node& directory, const std::string& name, uint64_t now);
  static void lose_name(Node& node, uint64_t now);
  static bool contains(const Ref& outer, const Ref& inner);
  std::string dump_node(const Node& node, const std::string& path, int depth) const;

  Outcome make_any(const Operation& operation, uint64_t now);
  Outcome make_file(const Operation& operation, uint64_t now);
  Outcome link(const Operation& operation, uint64_t now);
  Outcome remove(const Operation& operation, uint64_t now);
  Outcome rename(const Operation& operation, uint64_t now);
  static Outcome exchange(const Found& from, const Found& to, uint64_t now);
  static int rename_error(const User& user, const Operation& operation, const Found& from,
                          const Found& to);
  Outcome open(const Operation& operation, uint64_t now);
  Outcome write(const Operation& operation, uint64_t now);
  Outcome read(const Operation& operation) const;
  Outcome truncate(const Operation& operation, uint64_t now);
  Outcome allocate(const Operation& operation, uint64_t now);
  Outcome change(const Operation& operation, uint64_t now);
  Outcome xattr(const Operation& operation, uint64_t now);
  Outcome list(const Operation& operation);

  bool by_clients_ = false;
  Ref root_;
  std::array<Open, kSlots> slots_;
  std::array<Listing, kSlots> listings_;
};

}  // namespace pmstore::fs::model
