#include "fs/files_protocol.h"

namespace pmstore::fs {

bool is_known(FileType type) {
  return type >= FileType::kRegular && type <= FileType::kBlockDevice;
}

WireAttributes to_wire(const Attributes& attributes) {
  WireAttributes wire;
  wire.ino = raw(attributes.ino);
  wire.size = attributes.size;
  wire.data_bytes = attributes.data_bytes;
  wire.atime_ns = attributes.atime_ns;
  wire.mtime_ns = attributes.mtime_ns;
  wire.ctime_ns = attributes.ctime_ns;
  wire.created_ns = attributes.created_ns;
  wire.version = attributes.version;
  wire.uid = attributes.uid;
  wire.gid = attributes.gid;
  wire.links = attributes.links;
  wire.device = attributes.device;
  wire.mode = attributes.mode;
  wire.type = attributes.type;
  wire.is_inline = attributes.is_inline ? 1 : 0;
  return wire;
}

std::optional<Attributes> decode_attributes(fabric::MessageReader& reader) {
  const auto wire = reader.get<WireAttributes>();
  if (reader.failed() || !is_known(wire.type) || wire.size > kMaxFileBytes) return std::nullopt;
  Attributes attributes;
  attributes.ino = Ino{wire.ino};
  attributes.size = wire.size;
  attributes.data_bytes = wire.data_bytes;
  attributes.atime_ns = wire.atime_ns;
  attributes.mtime_ns = wire.mtime_ns;
  attributes.ctime_ns = wire.ctime_ns;
  attributes.created_ns = wire.created_ns;
  attributes.version = wire.version;
  attributes.uid = wire.uid;
  attributes.gid = wire.gid;
  attributes.links = wire.links;
  attributes.device = wire.device;
  attributes.mode = wire.mode;
  attributes.type = wire.type;
  attributes.is_inline = wire.is_inline != 0;
  return attributes;
}

void put_extent(const MapExtent& extent, fabric::MessageWriter& writer) {
  WireExtent wire;
  wire.file_offset = extent.file_offset;
  wire.offset = extent.place.offset;
  wire.bytes = extent.place.bytes;
  wire.generation = extent.generation;
  wire.server = extent.place.server;
  writer.put(wire);
}

MapExtent get_extent(fabric::MessageReader& reader) {
  const auto wire = reader.get<WireExtent>();
  MapExtent extent;
  extent.file_offset = wire.file_offset;
  extent.place = AreaRange{wire.server, wire.offset, wire.bytes};
  extent.generation = wire.generation;
  return extent;
}

void put_listed(const Namespace::Listed& listed, fabric::MessageWriter& writer) {
  WireEntry wire;
  wire.ino = raw(listed.entry.ino);
  wire.cookie = listed.entry.cookie;
  wire.type = listed.entry.type;
  wire.name_bytes = static_cast<uint8_t>(listed.entry.name.size());
  wire.has_attributes = listed.attributes ? 1 : 0;
  writer.put(wire);
  writer.put_bytes(listed.entry.name);
  if (listed.attributes) writer.put(to_wire(*listed.attributes));
}

std::optional<Namespace::Listed> get_listed(fabric::MessageReader& reader) {
  const auto wire = reader.get<WireEntry>();
  Namespace::Listed listed;
  listed.entry.name = reader.get_bytes(wire.name_bytes);
  listed.entry.ino = Ino{wire.ino};
  listed.entry.cookie = wire.cookie;
  listed.entry.type = wire.type;
  if (reader.failed() || !is_known(wire.type) || wire.name_bytes == 0) return std::nullopt;
  if (wire.has_attributes != 0) {
    listed.attributes = decode_attributes(reader);
    if (!listed.attributes) return std::nullopt;
  }
  return listed;
}

void put_walked(const Namespace::Walked& walked, fabric::MessageWriter& writer) {
  const std::string& line = walked.error ? walked.error->message : walked.target;
  const std::string_view text = std::string_view(line).substr(0, kMaxSymlinkBytes);
  WalkReply head;
  head.count = static_cast<uint32_t>(walked.found.size());
  head.error = walked.error ? walked.error->number : 0;
  head.text_bytes = static_cast<uint32_t>(text.size());
  writer.put(head);
  for (const Attributes& each : walked.found) writer.put(to_wire(each));
  writer.put_bytes(text);
}

std::optional<Namespace::Walked> get_walked(fabric::MessageReader& reader) {
  const auto head = reader.get<WalkReply>();
  if (reader.failed() || head.count > kMaxWalkedNames || head.error < 0) return std::nullopt;
  if (head.text_bytes > kMaxSymlinkBytes) return std::nullopt;
  Namespace::Walked walked;
  for (uint32_t i = 0; i < head.count; ++i) {
    const auto each = decode_attributes(reader);
    if (!each) return std::nullopt;
    walked.found.push_back(*each);
  }
  std::string text(reader.get_bytes(head.text_bytes));
  if (reader.failed()) return std::nullopt;
  if (head.error != 0) {
    walked.error.emplace(head.error, std::move(text));
  } else {
    walked.target = std::move(text);
  }
  return walked;
}

std::optional<RequestHead> get_head(fabric::MessageReader& reader, Caller& caller) {
  const auto head = reader.get<RequestHead>();
  if (reader.failed() || head.groups > kMaxGroups) return std::nullopt;
  caller.uid = head.uid;
  caller.gid = head.gid;
  caller.groups.resize(head.groups);
  for (uint32_t& group : caller.groups) group = reader.get<uint32_t>();
  if (reader.failed()) return std::nullopt;
  return head;
}

AttributeChange change_of(const SetAttributesRequest& request) {
  AttributeChange change;
  change.set = request.set;
  change.mode = request.mode;
  change.uid = request.uid;
  change.gid = request.gid;
  change.size = request.size;
  change.atime_ns = request.atime_ns;
  change.mtime_ns = request.mtime_ns;
  return change;
}

LockRequest request_of(Ino ino, const FileLock& lock, bool reclaim) {
  LockRequest request;
  request.ino = raw(ino);
  request.start = lock.start;
  request.end = lock.end;
  request.owner = lock.owner;
  request.pid = lock.pid;
  request.kind = lock.kind;
  request.type = lock.type;
  request.reclaim = reclaim ? 1 : 0;
  return request;
}

std::optional<FileLock> lock_of(const LockRequest& request) {
  const bool sane = request.kind <= LockKind::kFlock && request.type <= LockType::kUnlock &&
                    request.start <= request.end;
  if (!sane) return std::nullopt;
  return FileLock{request.kind, request.type,  request.start,
                  request.end,  request.owner, request.pid};
}

void put_data_server(const DataServerInfo& server, fabric::MessageWriter& writer) {
  WireDataServer wire;
  wire.area = server.area;
  wire.bytes = server.bytes;
  wire.used_bytes = server.used_bytes;
  wire.end = server.end;
  wire.index = server.index;
  wire.state = server.state;
  wire.is_there = server.is_there ? 1 : 0;
  wire.uri_bytes = static_cast<uint16_t>(server.uri.size());
  wire.problem_bytes = static_cast<uint16_t>(server.problem.size());
  writer.put(wire);
  writer.put_bytes(server.uri);
  writer.put_bytes(server.problem);
}

std::optional<DataServerInfo> get_data_server(fabric::MessageReader& reader) {
  const auto wire = reader.get<WireDataServer>();
  const std::string_view uri = reader.get_bytes(wire.uri_bytes);
  const std::string_view problem = reader.get_bytes(wire.problem_bytes);
  const bool is_state =
      wire.state >= DataServerState::kInUse && wire.state <= DataServerState::kGone;
  if (reader.failed() || !is_state) return std::nullopt;
  DataServerInfo server;
  server.index = wire.index;
  server.state = wire.state;
  server.is_there = wire.is_there != 0;
  server.area = wire.area;
  server.bytes = wire.bytes;
  server.used_bytes = wire.used_bytes;
  server.end = wire.end;
  server.uri = uri;
  server.problem = problem;
  return server;
}

}  // namespace pmstore::fs
