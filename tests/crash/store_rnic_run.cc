#include "tests/crash/store_rnic_run.h"

#include <utility>
#include <vector>

namespace pmstore::crash {
namespace {

class StoreRnicRun final : public ServedStoreSteps {
 public:
  StoreRnicRun(const std::string& scenario, uint64_t seed, const ServedStore& what)
      : ServedStoreSteps(scenario, seed, what) {
    seed == 0 ? script() : draw();
    end();
  }

 private:
  void script();
  void draw();
  void draw_one();
};

void StoreRnicRun::script() {
  commit(0, {write("a", 140), write("b", 210)});
  commit(1, {write("c", 500)});
  commit(0, {write("a", 140), write("b", 210)});  // in place
  commit_together({{0, {write("a", 140), write("b", 200)}}, {1, {write("c", 450)}}});
  commit(1, {write("b", 210), erase("c")});
  commit(0, {write("c", 500), write("a", 210)});  // moves a record
  die_amid({{0, {write("a", 200), write("c", 480)}}, {1, {write("b", 200), write("e", 90)}}}, 9000);
  commit(0, {erase("a"), write("b", 140)});
  stop_and_start();
  commit(1, {write("d", 1500), write("c", 400)});
  // The rings wrap, with truncation on the way.
  for (uint32_t i = 0; i < 12; ++i) {
    commit_together({{0, {write("d", 1500), write("c", 400)}}, {1, {write("b", 140)}}});
  }
  commit(1, {write("e", 140), write("f", 140)});
  die_amid({{0, {write("c", 300), write("d", 1400)}}}, 12'000);
  commit(0, {write("g", 900), erase("d")});
  die_amid({{1, {write("e", 130), write("f", 130)}}}, 6000);
  commit(1, {write("e", 140), write("f", 140)});
  commit(0, {erase("g"), write("c", 350)});
}

void StoreRnicRun::draw() {
  for (uint64_t steps = 12 + random().below(16); steps > 0; --steps) draw_one();
}

void StoreRnicRun::draw_one() {
  if (random().below(25) == 0) return stop_and_start();
  std::vector<Commit> commits(1 + random().below(2));
  const size_t first = random().below(history().keys.size() - 1);
  static constexpr size_t kBytes[] = {100, 150, 210, 500, 900, 1500, 3000};
  const size_t largest = 1 + random().below(std::size(kBytes));
  size_t next = first;
  for (size_t i = 0; i < commits.size(); ++i) {
    commits[i].client = static_cast<uint32_t>(commits.size() == 1 ? random().below(kClients) : i);
    for (size_t count = 1 + random().below(3); count > 0; --count) {
      const std::string& key = history().keys[next++ % (history().keys.size() - 1)];
      const bool erases = random().below(4) == 0 && now().contains(key);
      commits[i].writes.push_back(erases ? erase(key.c_str())
                                         : write(key.c_str(), kBytes[random().below(largest)]));
    }
  }
  if (random().below(6) == 0) return die_amid(std::move(commits), random().below(20'000));
  commit_together(std::move(commits));
}

}  // namespace

std::unique_ptr<RecordedRun> store_rnic_run(const std::string& scenario, uint64_t seed,
                                            const ServedStore& what) {
  return std::make_unique<StoreRnicRun>(scenario, seed, what);
}

}  // namespace pmstore::crash
