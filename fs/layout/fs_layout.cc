#include "fs/layout/fs_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>

#include "base/check.h"

namespace pmstore::fs::internal {
namespace {

constexpr size_t kMapKeyBytes = 8 + 2 + 8;
constexpr std::string_view kDataServerPrefix = "server";

template <typename Integer>
void append_big_endian(std::string& key, Integer number) {
  std::array<char, sizeof(Integer)> bytes;
  int shift = int{sizeof(Integer)} * 8;
  for (char& byte : bytes) byte = static_cast<char>(number >> (shift -= 8) & 0xff);
  key.append(bytes.data(), bytes.size());
}

uint64_t big_endian(std::string_view bytes) {
  uint64_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

template <typename Record>
std::string bytes_of(const Record& record) {
  return {reinterpret_cast<const char*>(&record), sizeof(record)};
}

template <typename Record>
bool read_fixed(std::string_view value, Record& record) {
  if (value.size() < sizeof(record)) return false;
  std::memcpy(&record, value.data(), sizeof(record));
  return true;
}

Error damaged(std::string_view what) {
  return make_error(
      ErrorCode::kDamaged,
      fmt::format("a record of the file system is wrong: {}; run `pmstore fs check`", what));
}

bool is_type(uint8_t type) {
  return type >= static_cast<uint8_t>(FileType::kRegular) &&
         type <= static_cast<uint8_t>(FileType::kBlockDevice);
}

}  // namespace

std::string ino_key(Ino ino) {
  std::string key;
  append_big_endian(key, raw(ino));
  return key;
}

std::string entry_key(Ino parent, std::string_view name) {
  std::string key = ino_key(parent);
  key += name;
  return key;
}

std::string number_key(Ino parent, uint64_t number) {
  std::string key = ino_key(parent);
  append_big_endian(key, number);
  return key;
}

std::string map_key(Ino ino, uint64_t file_offset) {
  std::string key = ino_key(ino);
  append_big_endian(key, uint16_t{0});
  append_big_endian(key, file_offset);
  return key;
}

std::string freed_key(uint64_t id) {
  std::string key;
  append_big_endian(key, id);
  return key;
}

std::string xattr_key(Ino ino, std::string_view name) { return entry_key(ino, name); }

Result<Ino> ino_of_key(std::string_view key) {
  if (key.size() < 8) return damaged("a key without an inode's number");
  return Ino{big_endian(key.substr(0, 8))};
}

Result<uint64_t> freed_id_of_key(std::string_view key) {
  if (key.size() != 8) return damaged("the key of a freed range");
  const uint64_t id = big_endian(key);
  // Ids are given out in order: none can come behind it.
  if (id == UINT64_MAX) return damaged("the id of a freed range");
  return id;
}

Result<uint64_t> number_of_key(std::string_view key) {
  if (key.size() != 16) return damaged("the key of a directory entry's number");
  return big_endian(key.substr(8));
}

KeyRange keys_of(Ino ino) { return KeyRange::with_prefix(ino_key(ino)); }

KeyRange map_keys(Ino ino, uint64_t from, uint64_t to) {
  return {map_key(ino, from), map_key(ino, to)};
}

KeyRange number_keys(Ino parent, uint64_t cookie) {
  KeyRange range = keys_of(parent);
  range.from = number_key(parent, cookie + 1);
  return range;
}

std::string encode(const SuperRecord& super) { return bytes_of(super); }

std::string encode(const Inode& inode) {
  const Attributes& a = inode.attributes;
  PMSTORE_CHECK(!a.is_inline || inode.tail.size() == a.size, "inline data is the whole file");
  PMSTORE_CHECK(inode.tail.size() <= kMaxInlineBytes, "an inode's record has a bound");
  const InodeRecord record{.type = static_cast<uint8_t>(a.type),
                           .is_inline = a.is_inline,
                           .mode = a.mode,
                           .uid = a.uid,
                           .gid = a.gid,
                           .links = a.links,
                           .size = a.size,
                           .data_bytes = a.data_bytes,
                           .atime_ns = a.atime_ns,
                           .mtime_ns = a.mtime_ns,
                           .ctime_ns = a.ctime_ns,
                           .created_ns = a.created_ns,
                           .version = a.version,
                           .next_number = inode.next_number,
                           .device = a.device,
                           .tail_bytes = static_cast<uint32_t>(inode.tail.size()),
                           .xattr_bytes = inode.xattr_bytes,
                           .reserved = 0};
  return bytes_of(record) + inode.tail;
}

std::string encode(const Entry& entry) {
  return bytes_of(
      EntryRecord{raw(entry.ino), entry.number, static_cast<uint8_t>(entry.type), {}, entry.mark});
}

std::string encode(const NumberedName& name) {
  return bytes_of(NumberRecord{raw(name.ino),
                               static_cast<uint8_t>(name.type),
                               {},
                               static_cast<uint16_t>(name.name.size())}) +
         name.name;
}

std::string encode(const AreaRange& place) {
  return bytes_of(MapRecord{place.server, 0, 0, place.offset, place.bytes});
}

std::string encode_parent(Ino parent) { return bytes_of(ParentRecord{raw(parent)}); }

std::string encode(OrphanKind kind) {
  return bytes_of(OrphanRecord{static_cast<uint8_t>(kind), {}});
}

Result<SuperRecord> decode_super(std::string_view value) {
  SuperRecord super;
  if (value.size() != sizeof(super) || !read_fixed(value, super) || super.magic != kSuperMagic) {
    return damaged("the super record");
  }
  if (super.version != kFsVersion || (super.features & ~kHasDataServers) != 0) {
    return make_error(ErrorCode::kVersionMismatch,
                      fmt::format("the file system has version {} and features {:#x}; this "
                                  "program knows version {}: use a newer one",
                                  super.version, super.features, kFsVersion));
  }
  if (super.next_ino <= raw(kRootIno)) return damaged("the super record's next inode");
  return super;
}

Result<Inode> decode_inode(Ino ino, std::string_view value) {
  InodeRecord record;
  const auto wrong = [&](std::string_view what) {
    return damaged(fmt::format("inode {}, {}", raw(ino), what));
  };
  if (!read_fixed(value, record)) return wrong("too short");
  if (!is_type(record.type)) return wrong("no such type");
  if (record.mode > 07777 || record.is_inline > 1) return wrong("mode or flags");
  if (value.size() != sizeof(record) + record.tail_bytes || record.tail_bytes > kMaxInlineBytes) {
    return wrong("its size");
  }
  const auto type = static_cast<FileType>(record.type);
  const bool has_tail = record.is_inline != 0 || type == FileType::kSymlink;
  if (has_tail ? record.tail_bytes != record.size : record.tail_bytes != 0) {
    return wrong("its inline data");
  }
  if (record.is_inline != 0 && type != FileType::kRegular) return wrong("inline, but no file");
  if (record.size > kMaxFileBytes || record.data_bytes % kUnitBytes != 0) {
    return wrong("the file's size");
  }
  Inode inode;
  inode.attributes = {.ino = ino,
                      .type = type,
                      .mode = record.mode,
                      .uid = record.uid,
                      .gid = record.gid,
                      .links = record.links,
                      .size = record.size,
                      .data_bytes = record.data_bytes,
                      .atime_ns = record.atime_ns,
                      .mtime_ns = record.mtime_ns,
                      .ctime_ns = record.ctime_ns,
                      .created_ns = record.created_ns,
                      .device = record.device,
                      .is_inline = record.is_inline != 0,
                      .version = record.version};
  inode.next_number = record.next_number;
  inode.xattr_bytes = record.xattr_bytes;
  inode.tail = value.substr(sizeof(record));
  return inode;
}

Result<Entry> decode_entry(std::string_view value) {
  EntryRecord record;
  if (value.size() != sizeof(record) || !read_fixed(value, record) || !is_type(record.type) ||
      record.ino == 0 || record.number == 0) {
    return damaged("a directory entry");
  }
  return Entry{Ino{record.ino}, static_cast<FileType>(record.type), record.number, record.mark};
}

Result<NumberedName> decode_number(std::string_view value) {
  NumberRecord record;
  if (!read_fixed(value, record) || !is_type(record.type) || record.ino == 0 ||
      record.name_bytes == 0 || record.name_bytes > kMaxNameBytes ||
      value.size() != sizeof(record) + record.name_bytes) {
    return damaged("a directory entry's number");
  }
  return NumberedName{Ino{record.ino}, static_cast<FileType>(record.type),
                      std::string(value.substr(sizeof(record)))};
}

Result<AreaRange> decode_place(std::string_view value) {
  MapRecord record;
  if (value.size() != sizeof(record) || !read_fixed(value, record) || record.replicas != 0 ||
      record.offset % kUnitBytes != 0 || record.bytes % kUnitBytes != 0 || record.bytes == 0 ||
      record.bytes > kMaxExtentBytes || record.offset + record.bytes < record.offset) {
    return damaged("an extent's place");
  }
  return AreaRange{record.server, record.offset, record.bytes};
}

Result<Piece> decode_piece(std::string_view key, std::string_view value) {
  if (key.size() != kMapKeyBytes) return damaged("the key of an extent");
  const uint64_t file_offset = big_endian(key.substr(10));
  if (big_endian(key.substr(8, 2)) != 0 || file_offset % kUnitBytes != 0) {
    return damaged("the file offset of an extent");
  }
  PMSTORE_TRY(const AreaRange place, decode_place(value));
  if (file_offset > kMaxFileBytes || kMaxFileBytes - file_offset < place.bytes) {
    return damaged("an extent behind the largest file's end");
  }
  return Piece{file_offset, place};
}

Result<Ino> decode_parent(std::string_view value) {
  ParentRecord record;
  if (value.size() != sizeof(record) || !read_fixed(value, record) || record.parent == 0) {
    return damaged("a directory's parent");
  }
  return Ino{record.parent};
}

Result<OrphanKind> decode_orphan(std::string_view value) {
  OrphanRecord record;
  if (value.size() != sizeof(record) || !read_fixed(value, record) || record.kind < 1 ||
      record.kind > 2) {
    return damaged("an orphan's record");
  }
  return static_cast<OrphanKind>(record.kind);
}

// ---- data servers ----

std::string data_server_key(uint16_t index) {
  return fmt::format("{}{:05}", kDataServerPrefix, index);
}

KeyRange data_server_keys() {
  // ':' is behind '9'.
  return {std::string(kDataServerPrefix), std::string(kDataServerPrefix) + ':'};
}

std::string encode(const DataServerEntry& server) {
  DataServerRecord record{};
  record.area = server.area;
  record.bytes = server.bytes;
  record.state = static_cast<uint8_t>(server.state);
  record.uri_bytes = static_cast<uint16_t>(server.uri.size());
  return bytes_of(record) + server.uri;
}

std::string owner_secret_key(uint64_t area) { return fmt::format("owner{:016x}", area); }

std::string encode(const ClientSecret& secret) {
  const auto bits = std::bit_cast<std::array<char, sizeof secret>>(secret);
  return std::string(bits.data(), bits.size());
}

Result<ClientSecret> decode_secret(std::string_view value) {
  std::array<char, sizeof(ClientSecret)> bits;
  if (value.size() != bits.size()) return damaged("the secret of a data server's owner");
  std::copy(value.begin(), value.end(), bits.begin());
  const auto secret = std::bit_cast<ClientSecret>(bits);
  if (secret.empty()) return damaged("the secret of a data server's owner");
  return secret;
}

Result<DataServerEntry> decode_data_server(std::string_view key, std::string_view value) {
  DataServerRecord record{};
  DataServerEntry server;
  if (!key.starts_with(kDataServerPrefix)) return damaged("the key of a data server");
  const std::string_view digits = key.substr(kDataServerPrefix.size());
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), server.index);
  if (error != std::errc() || data_server_key(server.index) != key) {
    return damaged("the key of a data server");
  }
  const bool fits = read_fixed(value, record) && record.state >= 1 && record.state <= 3 &&
                    value.size() == sizeof record + record.uri_bytes &&
                    record.bytes % kUnitBytes == 0;
  if (!fits) return damaged("a data server");
  server.state = static_cast<DataServerState>(record.state);
  server.area = record.area;
  server.bytes = record.bytes;
  server.uri = value.substr(sizeof record);
  return server;
}

}  // namespace pmstore::fs::internal
