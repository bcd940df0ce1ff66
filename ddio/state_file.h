// StateFile: the register changes that are not undone yet. A later process can undo them, even if
// the process that made them was killed.
//
//     file  = "pmstore-ddio 1" LF "boot " TEXT LF *( entry LF ) "crc32c " HEX LF
//     entry = REGISTER " mask " HEX " before " HEX " after " HEX
//
// The checksum is over everything before its line. Threads: one at a time; processes exclude each
// other by a lock on the file NAME.lock, which stays.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ddio/register.h"

namespace pmstore::ddio {

struct State {
  std::string boot;  // the boot in which it was written; registers forget at the next one
  std::vector<Change> changes;
};

std::string encode_state(const State& state);
// Io when `text` is not exactly what encode_state() makes.
Result<State> decode_state(std::string_view text);

class StateFile {
 public:
  // Takes the lock, and makes the folder when it is not there. Busy when another process has it; Io
  // when that cannot be done.
  static Result<std::unique_ptr<StateFile>> open(const std::string& path);
  // Reads the file without the lock; an empty State when there is no such file.
  static Result<State> read(const std::string& path);
  ~StateFile();
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;

  const std::string& path() const { return path_; }
  Result<State> load() const { return read(path_); }
  // Replaces the content as a whole; durable when it returns. Without changes, removes the file.
  Status save(const State& state) const;

 private:
  StateFile(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  const std::string path_;
  const int lock_;
};

}  // namespace pmstore::ddio
