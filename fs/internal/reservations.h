// Reservations: room behind the ends of files that clients write one-sided before the sizes grow.
//
// A client reserves room at the end of a file, writes there without the server, and then says that
// the size is to grow. Between these calls the file is not locked. So a call that writes or zeroes
// behind the size, or changes the map there, takes the reservation back, and the client writes once
// more by a call. A reservation is good for the owner that has made it, and in this start of the
// server: an owner that was forgotten has lost its locks, and the file is others' by then.
// Invariant: a file has one reservation, the last one. Numbers begin at a random one, so those of
// two starts do not meet. Bounded: kMost files; with more of them all are taken back. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "base/random.h"
#include "fs/namespace.h"
#include "fs/types.h"

namespace pmstore::fs::internal {

class Reservations {
 public:
  static constexpr size_t kMost = 4096;

  // Of [from, to), where `from` is at most the size. Gives what names it.
  uint64_t begin(OpenOwner owner, Ino ino, uint64_t from, uint64_t to);
  // True: the room is as this owner has reserved it, and its bytes through `size` become the
  // file's. The reservation is over.
  bool end(OpenOwner owner, Ino ino, uint64_t id, uint64_t size);
  void take_back(Ino ino);
  void take_back_all_of(OpenOwner owner);
  size_t files() const { return files_.size(); }

 private:
  struct Reserved {
    OpenOwner owner{};
    uint64_t id = 0;
    uint64_t from = 0;
    uint64_t to = 0;
  };
  uint64_t last_ = base::random_identity();
  std::unordered_map<Ino, Reserved> files_;
};

}  // namespace pmstore::fs::internal
