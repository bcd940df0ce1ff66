#include "tests/crash/log_run.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "model/page_bytes.h"
#include "tests/crash/log_scripts.h"

namespace pmstore::crash {
namespace {

using log::LogContent;
using log::LogVersion;
using log::LogWriter;
using log::Script;

constexpr const char* kNames[] = {"a", "b", "c"};

class LogRun final : public RecordedRun {
 public:
  LogRun(const std::string& scenario, uint64_t seed, persist::Domain domain, LogWriter writer,
         LogVersion version)
      : RecordedRun(scenario, seed), domain_(domain), random_(seed) {
    model::PageBytes region(log::kPoolBytes);
    if (version == LogVersion::kByNeed) new_identity_ = log::kIdentityByNeed;
    Script script(
        region,
        {.domain = domain, .writer = writer, .new_identity = new_identity_, .rests = false});
    seed != 0 ? draw(script, version) : run_once(script, version);
    trace_ = script.take();
    for (size_t marks = 0; marks <= script.marks(); ++marks) {
      std::vector<uint64_t> digests;
      for (const log::Content& content : script.expected(marks).possible) {
        digests.push_back(content.digest());
        describe(digests.back(), content.text());
      }
      allow(std::move(digests));
    }
  }

  uint64_t samples() const override { return 256; }
  uint64_t death_every() const override { return 4; }
  Result<std::unique_ptr<Restarted>> restart(std::span<std::byte> memory) const override {
    return RestartedLogs::open(memory, domain_, new_identity_);
  }

 private:
  static void run_once(Script& script, LogVersion version);
  void draw(Script& script, LogVersion version);
  void draw_one(Script& script);
  void draw_append(Script& script, const std::string& name);
  // A change whose stores stay in the caches when the process dies.
  void draw_interrupted(Script& script, const std::string& name);
  std::vector<size_t> draw_sizes();

  persist::Domain domain_;
  uint64_t new_identity_ = 0;
  Random random_;
};

void LogRun::run_once(Script& script, LogVersion version) {
  switch (version) {
    case LogVersion::kNone: return log::whole_script(script);
    case LogVersion::kOne: return log::version_one_script(script);
    case LogVersion::kByNeed: return log::by_need_script(script);
  }
}

std::vector<size_t> LogRun::draw_sizes() {
  std::vector<size_t> sizes(1 + (random_.below(2) == 0 ? random_.below(5) : 0));
  for (size_t& bytes : sizes) {
    static constexpr size_t kMost[] = {30, 100, 300, 1000, 5000};
    bytes = 1 + random_.below(kMost[random_.below(5)]);
  }
  return sizes;
}

void LogRun::draw_append(Script& script, const std::string& name) {
  const std::vector<size_t> sizes = draw_sizes();
  if (random_.below(6) == 0) {
    script.acquire(name);
    return;
  }
  const bool produces = script.is_exclusive(name) || random_.below(4) == 0;
  if (script.fits(name, sizes)) {
    return produces ? script.land(name, sizes) : script.append(name, sizes);
  }
  if (script.is_exclusive(name)) return script.release(name);
  uint64_t together = 0;
  for (const size_t bytes : sizes) together += bytes + 512;
  if (together < log::kScriptLogBytes / 2) script.append_over_oldest(name, sizes);
}

void LogRun::draw_interrupted(Script& script, const std::string& name) {
  const LogContent& log = script.now().logs.at(name);
  const size_t kept = std::min<size_t>(random_.below(2), log.entries.size());
  const uint64_t index = log.next_index - kept;
  switch (random_.below(3)) {
    case 0:
      script.interrupted(
          name, [](log::LogStore& s, uint64_t id) { return s.seal(id); },
          [](LogContent& changed) { changed.sealed = true; });
      break;
    case 1:
      script.interrupted(name, [](log::LogStore& s, uint64_t id) { return s.erase(id); }, {});
      break;
    default:
      script.interrupted(
          name,
          [=](log::LogStore& s, uint64_t id) {
            return log::as_status(s.trim_below_index(id, index));
          },
          [=](LogContent& changed) { changed.trim(kept); });
      break;
  }
  script.restart();
}

void LogRun::draw(Script& script, LogVersion version) {
  switch (version) {
    case LogVersion::kNone: script.format(); break;
    case LogVersion::kOne: script.find_version_one({"a"}); break;
    case LogVersion::kByNeed: script.begin_without_area(); break;
  }
  script.restart();
  for (uint64_t steps = 12 + random_.below(16); steps > 0; --steps) draw_one(script);
}

void LogRun::draw_one(Script& script) {
  const std::string name = kNames[random_.below(3)];
  const uint64_t what = random_.below(20);
  if (script.in_doubt()) {
    // Until it is settled nothing else happens: the oracle stays small.
    const std::string& landed = script.log_in_doubt();
    if (what < 8) return script.release(landed);
    if (what < 12) {
      script.acquire(landed);
      return;
    }
    if (what < 15 && script.fits(landed, {60})) return script.land(landed, {60});
    return script.restart();
  }
  if (!script.now().logs.contains(name)) return script.create(name);
  const LogContent& log = script.now().logs.at(name);
  if (what == 0 || what == 1) return script.restart();
  if (what == 2) {
    script.close();
    return script.restart();
  }
  if (script.is_exclusive(name)) {
    return what < 14 ? draw_append(script, name) : script.release(name);
  }
  if (log.sealed) {
    return what < 8 ? script.erase(name) : script.trim(name, log.entries.size() / 2);
  }
  if (what == 3) return script.erase(name);
  if (what == 4) return script.seal(name);
  if (what == 5) return draw_interrupted(script, name);
  if (what < 9) {
    return script.trim(name, std::min<size_t>(random_.below(3), log.entries.size()));
  }
  draw_append(script, name);
}

}  // namespace

std::unique_ptr<RecordedRun> log_run(const std::string& scenario, uint64_t seed,
                                     persist::Domain domain, LogWriter writer, LogVersion version) {
  return std::make_unique<LogRun>(scenario, seed, domain, writer, version);
}

}  // namespace pmstore::crash
