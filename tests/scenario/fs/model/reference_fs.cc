#include "tests/scenario/fs/model/reference_fs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <unordered_map>

namespace pmstore::fs::model {

User user_of(unsigned caller) {
  switch (caller) {
    case 0: return {};
    case 1: return {1000, 100, {200}};
    default: return {1001, 100, {}};
  }
}

std::string attributes_text(char type, unsigned mode, uint32_t uid, uint32_t gid, uint64_t links,
                            uint64_t size, uint64_t atime, uint64_t mtime, uint64_t ctime) {
  return fmt::format("{} {:o} {}:{} links {} size {} times {} {} {}", type, mode, uid, gid, links,
                     size, atime, mtime, ctime);
}

ReferenceFs::ReferenceFs(bool by_clients)
    : by_clients_(by_clients), root_(std::make_shared<Node>()) {
  root_->type = 'd';
  root_->mode = 0777;
  root_->links = 2;
}

ReferenceFs ReferenceFs::clone() const {
  std::unordered_map<const Node*, Ref> copies;
  const std::function<Ref(const Ref&)> copy = [&](const Ref& node) -> Ref {
    if (node == nullptr) return nullptr;
    Ref& made = copies[node.get()];
    if (made != nullptr) return made;
    made = std::make_shared<Node>(*node);
    const Ref result = made;
    for (auto& [name, entry] : result->names) entry.node = copy(entry.node);
    return result;
  };
  ReferenceFs other(by_clients_);
  other.root_ = copy(root_);
  for (unsigned i = 0; i < kSlots; ++i) {
    other.slots_[i] = {copy(slots_[i].node), slots_[i].reads, slots_[i].writes};
    other.listings_[i] = {copy(listings_[i].directory), listings_[i].number};
  }
  return other;
}

void ReferenceFs::close_all() { slots_ = {}; }

void ReferenceFs::close_program(unsigned program) {
  for (unsigned i = program; i < kSlots; i += 2) slots_[i] = {};
}

bool ReferenceFs::may(const User& user, const Node& node, unsigned bits) {
  if (user.uid == 0) return true;
  unsigned granted = node.mode;
  const bool in_group = user.gid == node.gid || std::find(user.groups.begin(), user.groups.end(),
                                                          node.gid) != user.groups.end();
  if (user.uid == node.uid) {
    granted >>= 6;
  } else if (in_group) {
    granted >>= 3;
  }
  return (granted & bits) == bits;
}

bool ReferenceFs::may_remove(const User& user, const Node& directory, const Node& node) {
  if ((directory.mode & 01000) == 0) return true;
  return user.uid == 0 || user.uid == node.uid || user.uid == directory.uid;
}

void ReferenceFs::clear_set_id(Node& node) {
  node.mode &= ~04000u;
  if ((node.mode & 010) != 0) node.mode &= ~02000u;
}

std::string ReferenceFs::text(const Node& node) const {
  const uint64_t size = node.type == 'd' ? node.names.size() : node.data.size();
  if (by_clients_ && node.type == 'f') {
    return attributes_text(node.type, node.mode, node.uid, node.gid, node.links, size, 0, 0, 0);
  }
  return attributes_text(node.type, node.mode, node.uid, node.gid, node.links, size, node.atime,
                         node.mtime, node.ctime);
}

ReferenceFs::Found ReferenceFs::find(const User& user, const std::vector<uint8_t>& path) const {
  Found found;
  found.directory = root_;
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    if (found.directory->type != 'd') return {ENOTDIR, {}, {}, {}};
    if (!may(user, *found.directory, 1)) return {EACCES, {}, {}, {}};
    const auto name = found.directory->names.find(kNames[path[i]]);
    if (name == found.directory->names.end()) return {ENOENT, {}, {}, {}};
    found.directory = name->second.node;
  }
  found.name = kNames[path.back()];
  return found;
}

ReferenceFs::Found ReferenceFs::look(const User& user, Found found) {
  if (found.error != 0) return found;
  if (found.directory->type != 'd') {
    found.error = ENOTDIR;
  } else if (!may(user, *found.directory, 1)) {
    found.error = EACCES;
  } else {
    const auto name = found.directory->names.find(found.name);
    if (name != found.directory->names.end()) found.node = name->second.node;
  }
  return found;
}

ReferenceFs::Found ReferenceFs::find_there(const User& user,
                                           const std::vector<uint8_t>& path) const {
  Found found = look(user, find(user, path));
  if (found.error == 0 && found.node == nullptr) found.error = ENOENT;
  return found;
}

void ReferenceFs::add(Node& directory, const std::string& name, Ref node, uint64_t now) {
  auto& entry = directory.names[name];
  if (entry.node == nullptr) {
    entry.number = directory.next_number++;
    directory.order[entry.number] = name;
  }
  if (node->type == 'd') ++directory.links;
  entry.node = std::move(node);
  directory.mtime = directory.ctime = now;
}

void ReferenceFs::take(Node& directory, const std::string& name, uint64_t now) {
  const auto entry = directory.names.find(name);
  if (entry->second.node->type == 'd') --directory.links;
  directory.order.erase(entry->second.number);
  directory.names.erase(entry);
  directory.mtime = directory.ctime = now;
}

void ReferenceFs::lose_name(Node& node, uint64_t now) {
  node.ctime = now;
  if (node.type == 'd') {
    node.links = 0;
  } else {
    --node.links;
  }
  node.removed = node.links == 0;
}

ReferenceFs::Ref ReferenceFs::make(const User& user, const Found& found, char type, unsigned mode,
                                   uint64_t now) {
  Ref node = std::make_shared<Node>();
  node->type = type;
  node->mode = mode;
  node->uid = user.uid;
  node->gid = user.gid;
  node->links = type == 'd' ? 2 : 1;
  node->atime = node->mtime = node->ctime = now;
  if ((found.directory->mode & 02000) != 0) {
    node->gid = found.directory->gid;
    const bool member =
        user.uid == 0 || user.gid == node->gid ||
        std::find(user.groups.begin(), user.groups.end(), node->gid) != user.groups.end();
    if (type == 'd') node->mode |= 02000;
    if (type != 'd' && !member && (mode & 010) != 0) node->mode &= ~02000u;
  }
  add(*found.directory, found.name, node, now);
  return node;
}

Outcome ReferenceFs::make_any(const Operation& operation, uint64_t now) {
  const User user = user_of(operation.caller);
  const Found found = look(user, find(user, operation.path));
  if (found.error != 0) return {found.error, {}};
  if (found.node != nullptr) return {EEXIST, {}};
  if (!may(user, *found.directory, 2)) return {EACCES, {}};
  const bool symlink = operation.kind == Kind::kMakeSymlink;
  const Ref node = make(user, found, symlink ? 'l' : 'd', symlink ? 0777 : operation.bits, now);
  if (symlink) node->data = std::string(1 + operation.bytes % 4000, operation.fill);
  return {0, text(*node)};
}

Outcome ReferenceFs::make_file(const Operation& operation, uint64_t now) {
  slots_[operation.slot] = {};
  const User user = user_of(operation.caller);
  const Found found = look(user, find(user, operation.path));
  if (found.error != 0) return {found.error, {}};
  if (found.node != nullptr) {
    if (operation.flag) return {EEXIST, {}};
    if (found.node->type == 'd') return {EISDIR, {}};
    if (found.node->type == 'l') return {EEXIST, {}};
    return open(operation, now);
  }
  if (!may(user, *found.directory, 2)) return {EACCES, {}};
  const Ref node = make(user, found, 'f', operation.bits, now);
  const unsigned access = operation.mode % 3;
  slots_[operation.slot] = {node, access != 1, access != 0};
  return {0, text(*node)};
}

Outcome ReferenceFs::link(const Operation& operation, uint64_t now) {
  const User user = user_of(operation.caller);
  const Found from = find_there(user, operation.path);
  if (from.error != 0) return {from.error, {}};
  const Found to = look(user, find(user, operation.to));
  if (to.error != 0) return {to.error, {}};
  if (to.node != nullptr) return {EEXIST, {}};
  if (!may(user, *to.directory, 2)) return {EACCES, {}};
  if (from.node->type == 'd') return {EPERM, {}};
  ++from.node->links;
  from.node->ctime = now;
  add(*to.directory, to.name, from.node, now);
  return {0, text(*from.node)};
}

Outcome ReferenceFs::remove(const Operation& operation, uint64_t now) {
  const User user = user_of(operation.caller);
  const Found found = find_there(user, operation.path);
  if (found.error != 0) return {found.error, {}};
  if (!may(user, *found.directory, 2)) return {EACCES, {}};
  if (!may_remove(user, *found.directory, *found.node)) return {EPERM, {}};
  const bool rmdir = operation.kind == Kind::kRemoveDirectory;
  if (rmdir && found.node->type != 'd') return {ENOTDIR, {}};
  if (!rmdir && found.node->type == 'd') return {EISDIR, {}};
  if (rmdir && !found.node->names.empty()) return {ENOTEMPTY, {}};
  take(*found.directory, found.name, now);
  lose_name(*found.node, now);
  return {};
}

bool ReferenceFs::contains(const Ref& outer, const Ref& inner) {
  if (outer == inner) return true;
  return std::any_of(outer->names.begin(), outer->names.end(), [&](const auto& name) {
    return name.second.node->type == 'd' && contains(name.second.node, inner);
  });
}

int ReferenceFs::rename_error(const User& user, const Operation& operation, const Found& from,
                              const Found& to) {
  const unsigned mode = operation.mode % 3;
  if (from.node == nullptr) return ENOENT;
  if (mode == 2 && to.node == nullptr) return ENOENT;
  if (mode == 1 && to.node != nullptr) return EEXIST;
  // Nothing happens, so it needs no permission.
  if (from.node == to.node) return 0;
  if (!may(user, *from.directory, 2) || !may(user, *to.directory, 2)) return EACCES;
  if (!may_remove(user, *from.directory, *from.node)) return EPERM;
  if (to.node != nullptr && !may_remove(user, *to.directory, *to.node)) return EPERM;
  const bool source_is_directory = from.node->type == 'd';
  const bool target_is_directory = to.node != nullptr && to.node->type == 'd';
  if (source_is_directory && contains(from.node, to.directory)) return EINVAL;
  if (mode == 2 && target_is_directory && contains(to.node, from.directory)) return EINVAL;
  if (from.directory != to.directory) {
    if (source_is_directory && !may(user, *from.node, 2)) return EACCES;
    if (mode == 2 && target_is_directory && !may(user, *to.node, 2)) return EACCES;
  }
  if (mode == 2 || to.node == nullptr) return 0;
  if (source_is_directory && !target_is_directory) return ENOTDIR;
  if (!source_is_directory && target_is_directory) return EISDIR;
  if (target_is_directory && !to.node->names.empty()) return ENOTEMPTY;
  return 0;
}

Outcome ReferenceFs::exchange(const Found& from, const Found& to, uint64_t now) {
  const auto count = [](Node& directory, const Node& node, bool more) {
    if (node.type == 'd') directory.links += more ? 1 : -1;
  };
  count(*from.directory, *from.node, false);
  count(*to.directory, *to.node, false);
  count(*from.directory, *to.node, true);
  count(*to.directory, *from.node, true);
  from.directory->names[from.name].node = to.node;
  to.directory->names[to.name].node = from.node;
  for (const Ref& changed : {from.directory, to.directory}) changed->mtime = changed->ctime = now;
  from.node->ctime = to.node->ctime = now;
  return {};
}

Outcome ReferenceFs::rename(const Operation& operation, uint64_t now) {
  const User user = user_of(operation.caller);
  Found from = find(user, operation.path);
  if (from.error != 0) return {from.error, {}};
  Found to = find(user, operation.to);
  if (to.error != 0) return {to.error, {}};
  from = look(user, from);
  if (from.error != 0) return {from.error, {}};
  to = look(user, to);
  if (to.error != 0) return {to.error, {}};
  const int error = rename_error(user, operation, from, to);
  if (error != 0 || from.node == to.node) return {error, {}};
  if (operation.mode % 3 == 2) return exchange(from, to, now);
  take(*from.directory, from.name, now);
  if (to.node != nullptr) {
    if (to.node->type == 'd') --to.directory->links;
    lose_name(*to.node, now);
  }
  add(*to.directory, to.name, from.node, now);
  from.node->ctime = now;
  return {};
}

}  // namespace pmstore::fs::model
