// PoolFile: a file or DAX device opened to be looked at, and only that: read-only descriptor,
// read-only shared mapping, and a shared lock that whoever has the pool open (libpmemobj locks
// exclusively) keeps it from getting. Two that only look do not disturb each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/file_descriptor.h"
#include "base/result.h"
#include "persist/internal/mapped_pool.h"

namespace pmstore::persist::internal {

enum class Medium { kDeviceDax, kFsDax, kFile };
std::string_view medium_name(Medium medium);

struct MediumFacts {
  Medium medium;
  uint64_t bytes;
  uint64_t map_alignment;  // mappings of it begin and end on multiples of this
};

// What an open descriptor is. BadPool when it is neither a regular file nor a DAX device.
Result<MediumFacts> probe_medium(int fd, std::string_view name);

// A file of the system's memory: no disk is behind it.
bool is_in_memory(int fd);

// As Pool::next_data(), of the whole of what is open.
std::optional<uint64_t> next_data_in(int fd, Medium medium, uint64_t offset);

// "PATH: in use by another process: ...", in one wording.
Error busy(std::string_view name);
// Io with strerror(errno).
Error system_error(std::string_view name, std::string_view what);

using base::FileDescriptor;

// Io: the file ends before all of `to` is read, or the system has an error.
Status read_bytes(int fd, const std::string& path, uint64_t offset, std::span<std::byte> to);

class PoolFile {
 public:
  // Io (does not exist, no permission), Busy, BadPool (empty, or not a file or DAX device).
  static Result<PoolFile> open(const std::string& path);
  PoolFile(PoolFile&& other) noexcept;
  PoolFile& operator=(PoolFile&&) = delete;
  ~PoolFile();

  std::span<const std::byte> bytes() const { return mapping_; }
  const MediumFacts& facts() const { return facts_; }
  int descriptor() const { return fd_.get(); }
  // Others may open it from now on; it can still be looked at.
  void unlock();

 private:
  PoolFile() = default;
  FileDescriptor fd_;
  MediumFacts facts_{};
  std::span<const std::byte> mapping_;
  MappedPool mapped_;
};

}  // namespace pmstore::persist::internal
