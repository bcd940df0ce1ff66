#include "tests/crash/store_run.h"

#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "tests/crash/recorded_store.h"

namespace pmstore::crash {
namespace {

class StoreRun final : public RecordedStore {
 public:
  StoreRun(const std::string& scenario, uint64_t seed, persist::Domain domain, StoreSize size,
           const persist::PaddingRules& padding)
      : RecordedStore(scenario, seed, domain, size, padding) {
    seed == 0 ? play_script() : draw();
    end_recording();
  }

 private:
  void play_script() {
    switch (size()) {
      case StoreSize::kSmall: return script();
      case StoreSize::kLarge: return large_script();
      case StoreSize::kFrames: return frames_script();
      case StoreSize::kLargeFrames: return large_frames_script();
      case StoreSize::kWithRoom: return checkpoint_script();
    }
  }
  void script();
  void large_script();
  void frames_script();
  void large_frames_script();
  void moves_script();
  void checkpoint_script();
  void draw();
  void draw_one();
  void draw_frame_step();
};

void StoreRun::script() {
  commit({write("a", 140), write("b", 210)});  // two slabs
  commit({write("a", 140), write("c", 500)});  // another
  commit({write("b", 210), erase("c")});
  commit({write("c", 500), write("a", 210)});  // reuses a slot; moves a record
  restart_process();
  commit({erase("a"), write("b", 140)});
  close_and_restart();
  commit({write("d", 1500), write("c", 400)});
  // The rings wrap, with truncation on the way; small records are only in the rings, some of them
  // in one entry only.
  for (int i = 0; i < 26; ++i) {
    const char* const small = keys()[4 + i / 2 % 4].c_str();
    commit({write("d", 1500), write(small, 140)});
  }
  change_client(0);
  restart_process();
  commit({write("b", 1500)});  // a second slot of the slab that will be given back
  commit({write("a", 3000)});  // the last free chunk
  commit({erase("d"), erase("b")});
  // Until the tombstones are in no ring any more.
  for (int i = 0; i < 12; ++i) commit({write("a", 3000)});
  commit({write("f", 900)});  // does not fit where it is: the slab is given back
  commit({write("a", 900), write("b", 140)});
  commit({write("f", 100), erase("h")});
  commit({erase("a")});
  commit({write("g", 1900)});  // gives a slab back whose tombstone is still in a ring
  commit({write("a", 140)});
  // Records of the dropped table are in the rings, and in slots that are used again.
  recreate_table();
  commit({write("b", 140)});
  restart_process();
  commit({write("a", 140), write("g", 900)});
  recreate_table();
  close_and_restart();
  commit({write("c", 140)});
}

void StoreRun::large_script() {
  commit({write("a", 140)});
  commit({write_large("b", 2)});
  commit({write("c", 500)});
  commit({write("d", 1500)});
  commit({erase("b")});
  commit({write("e", 3000)});  // gives both chunks back, takes the first
  restart_process();
  commit({write("a", 100), write("f", 5000)});  // takes the second
  commit({erase("e"), erase("f")});
  commit({write_large("g", 2)});  // both again
  commit({write("a", 140), erase("g")});
  close_and_restart();
  commit({write("h", 6000)});
}

void StoreRun::frames_script() {
  commit({write("a", 140)});                     // the chunk that was made with the pool
  commit({write("b", 500)});                     // takes an extent
  commit({write("c", 1500), write("d", 3000)});  // two more
  for (int i = 0; i < 3; ++i) commit({write("b", 500)});
  commit({write("e", 6000)});    // the last that there is room for
  commit({write("f", 12'000)});  // Full
  commit({erase("b"), erase("c"), erase("e")});
  give_frames_back();         // what was erased is still in the log
  commit({write("b", 500)});  // a frame that had another extent
  commit({write("f", 12'000)});
  restart_process();
  commit({write("b", 500), erase("d")});
  commit({erase("f"), erase("a")});
  give_frames_back();
  close_and_restart();
  give_frames_back();
  commit({write("g", 900), write("h", 3000)});
  commit({erase("b"), write("a", 1500)});
  give_frames_back();
  restart_process();
  commit({write("b", 140), write("g", 900)});
  moves_script();
}

// The chunks that were made with the pool are used, so each further slab is one of the frame behind
// them, whose headers are blanked two at a time. What lies there looks like slabs with records.
// Slabs over used space have few slots: each of them is zeroed, which is an event.
void StoreRun::large_frames_script() {
  commit({write("a", 140), write("b", 210), write("c", 400), write("d", 60), write("e", 10)});
  commit({write("f", 2000)});  // takes the frame, with two headers
  PMSTORE_CHECK(has_frame_over_forged_slabs(), "the script is of such a frame");
  commit({write("g", 900)});
  commit({write("h", 3000)});  // two more
  restart_process();
  commit({write("a", 1500), write("b", 4000)});
  commit({write("c", 5000)});
  close_and_restart();
  commit({erase("a"), erase("b"), erase("c"), erase("d")});
  commit({erase("e"), erase("f"), erase("g"), erase("h")});
  give_frames_back();
  leave_forged_slabs();
  commit({write("a", 3000), write("b", 4000)});
  commit({write("c", 5000), write("d", 2000), write("e", 900)});
  commit({write("f", 700), write("g", 6500), write("h", 1500)});
  PMSTORE_CHECK(has_frame_over_forged_slabs(), "this one has the same place");
  restart_process();
  commit({erase("g"), write("f", 1500)});
}

// The record in the last frame finds room in front of it.
void StoreRun::moves_script() {
  for (const std::string& key : keys()) {
    if (now().contains(key)) commit({erase(key.c_str())});
  }
  give_frames_back();
  commit({write("a", 140), write("b", 500)});
  commit({write("c", 900), write("d", 1500)});
  commit({erase("a"), erase("b")});
  const uint64_t moved = store().moved_records();
  move_records();
  PMSTORE_CHECK(store().moved_records() > moved, "the script has what should move");
  give_frames_back();
  commit({write("a", 140)});
  restart_process();
  commit({write("d", 1500)});
}

// A start that uses what a stop has left, changes behind it, and another stop, in each order.
void StoreRun::checkpoint_script() {
  commit({write("a", 140), write("b", 500)});
  commit({erase("b"), write("c", 140)});
  close_and_restart();
  commit({write("a", 140), write("b", 500)});
  close_and_restart();
  mend_headers(Copy::kOlder);
  close_and_restart();
  mend_headers(Copy::kNewest);  // both say the same
  commit({write("e", 900)});
  close_and_restart();
  close_and_restart();  // nothing has changed
  commit({erase("c"), write("d", 210)});
  restart_process();
  commit({write("c", 140)});
  close_and_restart();
  recreate_table();
  commit({write("a", 140)});
  close_and_restart();
  restart_process();
  commit({write("b", 140)});
}

void StoreRun::draw() {
  const uint64_t least = size() == StoreSize::kLarge ? 8 : 20;
  for (uint64_t steps = least + random().below(least); steps > 0; --steps) draw_one();
}

void StoreRun::draw_frame_step() {
  switch (random().below(3)) {
    case 0: return give_frames_back();
    case 1: return move_records();
    default: return leave_forged_slabs();
  }
}

void StoreRun::draw_one() {
  if (random().below(15) == 0) return restart_process();
  if (random().below(25) == 0) return close_and_restart();
  if (size() == StoreSize::kFrames && random().below(2) == 0) {
    return random().below(2) == 0 ? give_frames_back() : move_records();
  }
  if (size() == StoreSize::kLargeFrames && random().below(4) == 0) return draw_frame_step();
  if (random().below(30) == 0) return recreate_table();
  if (random().below(15) == 0)
    return change_client(static_cast<uint32_t>(random().below(kClients)));
  std::vector<KeyWrite> writes;
  const size_t count = 1 + random().below(3);
  const size_t first = random().below(keys().size() - 1);
  static constexpr size_t kBytes[] = {100, 150, 210, 500, 900, 1500, 3000};
  static constexpr size_t kBytesInLargeFrames[] = {400, 600, 900, 1500, 2000, 3000, 4000};
  const std::span<const size_t> sizes = size() == StoreSize::kLargeFrames
                                            ? std::span<const size_t>(kBytesInLargeFrames)
                                            : std::span<const size_t>(kBytes);
  const size_t largest = 1 + random().below(sizes.size());
  for (size_t i = 0; i < count; ++i) {
    const std::string& key = keys()[(first + i) % (keys().size() - 1)];
    if (random().below(4) == 0 && now().contains(key)) {
      writes.push_back(erase(key.c_str()));
    } else if (size() == StoreSize::kLarge && i == 0 && random().below(3) == 0) {
      writes.push_back(write_large(key.c_str(), 1 + static_cast<uint32_t>(random().below(4))));
    } else {
      writes.push_back(write(key.c_str(), sizes[random().below(largest)]));
    }
  }
  commit(writes);
}

}  // namespace

std::unique_ptr<RecordedRun> store_run(const std::string& scenario, uint64_t seed,
                                       persist::Domain domain, StoreSize size,
                                       const persist::PaddingRules& padding) {
  return std::make_unique<StoreRun>(scenario, seed, domain, size, padding);
}

}  // namespace pmstore::crash
