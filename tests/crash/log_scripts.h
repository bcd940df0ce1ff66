// The scripts of the log runs of seed 0, in parts; log_store_crash_test runs each part alone.
#pragma once

#include "tests/crash/log_area_script.h"

namespace pmstore::log {

// Logs are made, sealed, deleted, and their regions used again.
inline void directory_script(Script& script) {
  script.format();
  script.restart();
  script.create("a");
  script.append("a", {10});
  script.create("b");
  script.append("b", {20, 300});
  script.seal("b");
  script.erase("a");
  script.create("c");  // where a was
  script.append("c", {50});
  script.restart();
  script.trim("c", 0);
}

// The process dies in the middle of a change, and the next one sees it in the caches.
inline void interrupted_script(Script& script) {
  script.format();
  script.restart();
  script.create("a");
  script.append("a", {10, 200});
  script.create("b");
  script.append("b", {40});
  script.interrupted(
      "a", [](LogStore& s, uint64_t id) { return s.seal(id); },
      [](LogContent& log) { log.sealed = true; });
  script.restart();
  script.trim("b", 0);
  script.append("b", {60, 70});
  script.interrupted(
      "b", [](LogStore& s, uint64_t id) { return as_status(s.trim_below_index(id, 3)); },
      [](LogContent& log) { log.trim(1); });
  script.restart();
  script.trim("b", 0);
  script.append("b", {30});
  script.interrupted("b", [](LogStore& s, uint64_t id) { return s.erase(id); }, {});
  script.restart();
  script.create("c");
  script.append("c", {30});
}

// Entries: laps, pads, trimming, a producer that is fenced, one that forges, closing.
inline void entries_script(Script& script) {
  script.format();
  script.restart();
  script.create("a");
  script.append("a", {10, 300, 1});
  script.trim("a", 1);
  script.append("a", {5000});
  script.append("a", {7000});
  script.trim("a", 1);
  script.append("a", {4000, 50});  // wraps
  script.trim("a", 0);
  script.land("a", {60});
  script.land("a", {500, 20});
  script.release("a");
  script.append("a", {70});
  script.land("a", {30, 40});
  script.restart();
  script.append("a", {80});
  script.forge("a");
  script.land("a", {});
  script.release("a");
  script.append("a", {20});
  script.restart();
  script.append("a", {90});
  script.close();
  script.append("a", {15});
  script.trim("a", 0);
  script.seal("a");
}

// An area of version 1: it is opened, and has logs with identities from then on.
inline void version_one_script(Script& script) {
  script.find_version_one({"a"});
  script.restart();
  script.append("a", {30, 200});
  script.create("b");  // the first slot with an identity
  script.append("b", {50});
  script.restart();
  script.trim("a", 1);
  script.land("a", {60});
  script.release("a");
  script.erase("b");
  script.create("c");
  script.seal("a");
}

inline constexpr uint64_t kIdentityByNeed = 78;

// Extents that are taken and given back, with the process dying at times.
inline void by_need_script(Script& script) {
  script.begin_without_area();
  script.create("a");  // takes the area, and an extent
  script.append("a", {10, 300});
  script.create("b");
  script.append("b", {20});
  script.erase("a");
  script.create("c");  // where a was
  script.append("c", {50, 5000});
  script.restart();
  script.append("c", {60});
  script.interrupted("b", [](LogStore& s, uint64_t id) { return s.erase(id); }, {});
  script.restart();  // gives back what b had
  script.create("d");
  script.append("d", {70});
  script.land("d", {60});
  script.release("d");
  script.erase("c");
  script.erase("d");
  script.restart();
  script.create("a");
  script.append("a", {80});
}

// Everything once, in one area.
inline void whole_script(Script& script) {
  script.format();
  script.restart();
  script.create("a");
  script.append("a", {10, 300, 1});
  script.create("b");
  script.append("b", {20, 300});
  script.trim("a", 1);
  script.land("a", {60});
  script.acquire("a");  // another producer; the first is fenced
  script.land("a", {500, 20});
  script.land("a", {30});
  script.release("a");
  script.append("a", {80});
  script.forge("a");
  script.land("a", {});
  script.release("a");
  script.append("a", {20});
  script.seal("b");
  script.append("a", {5000});
  script.land("a", {6000, 40});
  script.restart();
  script.append_over_oldest("a", {4000, 50});  // wraps
  script.erase("b");
  script.create("c");  // where b was
  script.append("c", {50, 250});
  script.interrupted(
      "c", [](LogStore& s, uint64_t id) { return as_status(s.trim_below_index(id, 2)); },
      [](LogContent& log) { log.trim(1); });
  script.restart();
  script.land("c", {90});
  script.close();
  script.restart();
  script.append("c", {15});
  script.interrupted(
      "a", [](LogStore& s, uint64_t id) { return s.seal(id); },
      [](LogContent& log) { log.sealed = true; });
  script.restart();
  script.trim("a", 0);
  script.interrupted("c", [](LogStore& s, uint64_t id) { return s.erase(id); }, {});
  script.restart();
}

}  // namespace pmstore::log
