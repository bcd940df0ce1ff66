// ReferenceFs: opens, data, attributes, listings.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "tests/scenario/fs/model/reference_fs.h"

namespace pmstore::fs::model {

Outcome ReferenceFs::open(const Operation& operation, uint64_t now) {
  slots_[operation.slot] = {};
  const User user = user_of(operation.caller);
  const Found found = find_there(user, operation.path);
  if (found.error != 0) return {found.error, {}};
  if (found.node->type == 'l') return {ELOOP, {}};
  const unsigned access = operation.mode % 3;
  const bool truncates = operation.mode >= 9;
  const bool reads = access != 1;
  const bool writes = access != 0;
  if (found.node->type == 'd' && (writes || truncates)) return {EISDIR, {}};
  const unsigned bits = (reads ? 4u : 0u) | (writes || truncates ? 2u : 0u);
  if (!may(user, *found.node, bits)) return {EACCES, {}};
  if (truncates) {
    found.node->data.clear();
    found.node->mtime = found.node->ctime = now;
    clear_set_id(*found.node);
  }
  slots_[operation.slot] = {found.node, reads, writes};
  return {0, text(*found.node)};
}

Outcome ReferenceFs::write(const Operation& operation, uint64_t now) {
  Node& node = *slots_[operation.slot].node;
  const bool appends = operation.kind == Kind::kAppend;
  const uint64_t at = appends ? node.data.size() : operation.offset;
  const std::string data = data_of(operation);
  if (!data.empty()) {
    if (node.data.size() < at + data.size()) node.data.resize(at + data.size());
    node.data.replace(at, data.size(), data);
    node.mtime = node.ctime = now;
    clear_set_id(node);
  }
  if (by_clients_) return {};
  return {0, fmt::format("at {}: {}", at, text(node))};
}

Outcome ReferenceFs::read(const Operation& operation) const {
  const std::string& data = slots_[operation.slot].node->data;
  if (operation.offset >= data.size()) return {};
  return {0, data.substr(operation.offset, operation.bytes)};
}

Outcome ReferenceFs::truncate(const Operation& operation, uint64_t now) {
  Node& node = *slots_[operation.slot].node;
  node.data.resize(operation.offset);
  node.mtime = node.ctime = now;
  clear_set_id(node);
  return {0, text(node)};
}

Outcome ReferenceFs::allocate(const Operation& operation, uint64_t now) {
  Node& node = *slots_[operation.slot].node;
  if (operation.bytes == 0) return {EINVAL, {}};
  const uint64_t end = operation.offset + operation.bytes;
  const unsigned mode = operation.mode % 4;
  if ((mode == 0 || mode == 3) && end > node.data.size()) node.data.resize(end);
  if (mode >= 2 && operation.offset < node.data.size()) {
    const uint64_t to = std::min<uint64_t>(end, node.data.size());
    node.data.replace(operation.offset, to - operation.offset, to - operation.offset, '\0');
  }
  node.mtime = node.ctime = now;
  clear_set_id(node);
  return {0, text(node)};
}

Outcome ReferenceFs::change(const Operation& operation, uint64_t now) {
  const User user = user_of(operation.caller);
  const Found found = find_there(user, operation.path);
  if (found.error != 0) return {found.error, {}};
  Node& node = *found.node;
  const bool owns = user.uid == 0 || user.uid == node.uid;
  const auto member = [&](uint32_t gid) {
    return user.uid == 0 || user.gid == gid ||
           std::find(user.groups.begin(), user.groups.end(), gid) != user.groups.end();
  };
  if (operation.kind == Kind::kChangeMode) {
    if (node.type == 'l') return {EOPNOTSUPP, {}};
    if (!owns) return {EPERM, {}};
    node.mode = operation.bits;
    if (!member(node.gid)) node.mode &= ~02000u;
  } else if (operation.kind == Kind::kChangeOwner) {
    const uint32_t uid = 1000 + operation.offset % 3;
    const uint32_t gid = 100 * (1 + operation.offset % 3);
    if (!owns) return {EPERM, {}};
    if (operation.flag && uid != node.uid && user.uid != 0) return {EPERM, {}};
    if (!operation.flag && gid != node.gid && !member(gid)) return {EPERM, {}};
    (operation.flag ? node.uid : node.gid) = operation.flag ? uid : gid;
    if (node.type != 'd') clear_set_id(node);
  } else {
    const bool to_now = operation.flag;
    if (!owns && !to_now) return {EPERM, {}};
    if (!owns && !may(user, node, 2)) return {EACCES, {}};
    node.atime = to_now ? now : operation.offset;
    node.mtime = to_now ? now : operation.bytes;
  }
  node.ctime = now;
  return {0, text(node)};
}

Outcome ReferenceFs::xattr(const Operation& operation, uint64_t now) {
  const User user = user_of(operation.caller);
  const Found found = find_there(user, operation.path);
  if (found.error != 0) return {found.error, {}};
  Node& node = *found.node;
  const bool gets = operation.kind == Kind::kGetXattr;
  if (node.type == 'l') return {gets ? ENODATA : EPERM, {}};
  if (!gets && node.type == 'd' && (node.mode & 01000) != 0 && user.uid != 0 &&
      user.uid != node.uid) {
    return {EPERM, {}};
  }
  if (!may(user, node, gets ? 4 : 2)) return {EACCES, {}};
  const std::string name = fmt::format("user.{}", kNames[operation.to[0]]);
  const bool there = node.xattrs.contains(name);
  if (gets) return there ? Outcome{0, node.xattrs[name]} : Outcome{ENODATA, {}};
  if (operation.kind == Kind::kRemoveXattr) {
    if (!there) return {ENODATA, {}};
    node.xattrs.erase(name);
  } else {
    if (there && operation.mode % 3 == 1) return {EEXIST, {}};
    if (!there && operation.mode % 3 == 2) return {ENODATA, {}};
    node.xattrs[name] = std::string(operation.bytes % 5000, operation.fill);
  }
  node.ctime = now;
  return {};
}

Outcome ReferenceFs::list(const Operation& operation) {
  const User user = user_of(operation.caller);
  Listing& listing = listings_[operation.slot];
  const bool whole = operation.kind == Kind::kList;
  Ref directory = whole ? nullptr : listing.directory;
  if (directory == nullptr) {
    const Found found = find_there(user, operation.path);
    if (found.error != 0) return {found.error, {}};
    directory = found.node;
    if (!whole) listing = {directory, 0};
  }
  const auto fail = [&](int error) {
    if (!whole) listing = {};
    return Outcome{error, {}};
  };
  // The end of its listing, as for readdir(3).
  if (directory->removed) return fail(0);
  if (directory->type != 'd') return fail(ENOTDIR);
  if (!may(user, *directory, 4)) return fail(EACCES);
  Outcome outcome;
  unsigned left = whole ? 1000 : 1 + operation.mode;
  uint64_t number = whole ? 0 : listing.number;
  for (auto entry = directory->order.upper_bound(number);
       entry != directory->order.end() && left > 0; ++entry, --left) {
    number = entry->first;
    const Node& node = *directory->names.at(entry->second).node;
    outcome.text += fmt::format("{} {}; ", entry->second, node.type);
  }
  if (!whole) listing.number = number;
  if (!whole && outcome.text.empty()) listing = {};
  return outcome;
}

Outcome ReferenceFs::apply(const Operation& operation, uint64_t now) {
  const Open& slot = slots_[operation.slot];
  const bool is_file = slot.node != nullptr && slot.node->type == 'f';
  switch (operation.kind) {
    case Kind::kMakeDirectory:
    case Kind::kMakeSymlink: return make_any(operation, now);
    case Kind::kMakeFile: return make_file(operation, now);
    case Kind::kLink: return link(operation, now);
    case Kind::kUnlink:
    case Kind::kRemoveDirectory: return remove(operation, now);
    case Kind::kRename: return rename(operation, now);
    case Kind::kOpen: return open(operation, now);
    case Kind::kClose: slots_[operation.slot] = {}; return {};
    case Kind::kWrite:
    case Kind::kAppend: return is_file && slot.writes ? write(operation, now) : Outcome{EBADF, {}};
    case Kind::kRead: return is_file && slot.reads ? read(operation) : Outcome{EBADF, {}};
    case Kind::kTruncate:
      return is_file && slot.writes ? truncate(operation, now) : Outcome{EBADF, {}};
    case Kind::kAllocate:
      return is_file && slot.writes ? allocate(operation, now) : Outcome{EBADF, {}};
    case Kind::kStat: {
      const Found found = find_there(user_of(operation.caller), operation.path);
      return found.error != 0 ? Outcome{found.error, {}} : Outcome{0, text(*found.node)};
    }
    case Kind::kChangeMode:
    case Kind::kChangeOwner:
    case Kind::kChangeTimes: return change(operation, now);
    case Kind::kSetXattr:
    case Kind::kGetXattr:
    case Kind::kRemoveXattr: return xattr(operation, now);
    case Kind::kReadLink: {
      const Found found = find_there(user_of(operation.caller), operation.path);
      if (found.error != 0) return {found.error, {}};
      return found.node->type == 'l' ? Outcome{0, found.node->data} : Outcome{EINVAL, {}};
    }
    case Kind::kList:
    case Kind::kListNext: return list(operation);
    case Kind::kForget: close_program(operation.slot % 2); return {};
    case Kind::kCrash:
      if (operation.flag) close_all();
      return {};
    case Kind::kSync: return is_file ? Outcome{} : Outcome{EBADF, {}};
    case Kind::kMove: return {};
    case Kind::kCompare: break;
  }
  return {};
}

std::string ReferenceFs::dump_node(const Node& node, const std::string& path, int depth) const {
  std::string all = fmt::format("{} {}\n", path, text(node));
  for (const auto& [name, value] : node.xattrs) {
    all += fmt::format("  {} {}\n", name, std::hash<std::string>()(value));
  }
  if (node.type == 'f' || node.type == 'l') {
    all += fmt::format("  data {}\n", std::hash<std::string>()(node.data));
  }
  for (const auto& [number, name] : node.order) {
    all += dump_node(*node.names.at(name).node, path + "/" + name, depth + 1);
  }
  return all;
}

std::string ReferenceFs::dump() const {
  std::string all = dump_node(*root_, "", 0);
  for (unsigned i = 0; i < kSlots; ++i) {
    if (slots_[i].node == nullptr || slots_[i].node->type != 'f') continue;
    all += fmt::format("slot {} {}\n  data {}\n", i, text(*slots_[i].node),
                       std::hash<std::string>()(slots_[i].node->data));
  }
  return all;
}

}  // namespace pmstore::fs::model
