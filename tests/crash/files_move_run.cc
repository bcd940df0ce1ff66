#include "tests/crash/files_move_run.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/crash_recorder.h"
#include "model/page_bytes.h"
#include "tests/crash/files_process.h"
#include "tests/crash/two_pools.h"

namespace pmstore::crash {
namespace {

using fs::DataServerState;
using fs::Ino;

class FilesMoveRun final : public RecordedRun {
 public:
  FilesMoveRun(const std::string& scenario, uint64_t seed, persist::Domain domain)
      : RecordedRun(scenario, seed), domain_(domain), random_(seed), region_(TwoPools::kBytes) {
    pools_ = TwoPools::make(region_.bytes(), domain, seed + 1);
    start();
    must(process_->set_state(FilesProcess::kOther, DataServerState::kInUse));
    recorder_.emplace(pools_.memories(), region_.bytes());
    now_ = content();
    seed == 0 ? script() : draw();
    allow({TwoPools::digest_of(now_)});
    trace_ = recorder_->take();
    process_.reset();
    pools_ = {};
  }

  Result<std::unique_ptr<Restarted>> restart(std::span<std::byte> memory) const override {
    PMSTORE_TRY(TwoPools pools, TwoPools::in(memory, domain_, false));
    return restarted_files(std::move(pools));
  }
  // A start takes some milliseconds.
  uint64_t samples() const override { return domain_ == persist::Domain::kNone ? 4 : 16; }
  uint64_t most_exhaustive() const override { return 64; }
  uint64_t inner_samples() const override { return 1; }
  uint64_t death_every() const override { return 256; }

 private:
  using Moving = base::Task<fs::PosixResult<uint64_t>>;

  static void must(const Status& done) {
    PMSTORE_CHECK(done.has_value(), done ? "" : done.error().message.c_str());
  }
  void script();
  void draw();
  void start() {
    auto opened = FilesProcess::open(*pools_.names, pools_.other.get());
    PMSTORE_CHECK(opened, opened ? "" : opened.error().message.c_str());
    process_ = std::move(*opened);
  }
  std::string content() {
    auto found = process_->content();
    PMSTORE_CHECK(found, "a live file system can be read");
    describe(TwoPools::digest_of(*found), *found);
    return std::move(*found);
  }
  // What has ended was acknowledged: what is there now stays.
  void ended() {
    std::string after = content();
    allow({TwoPools::digest_of(now_), TwoPools::digest_of(after)});
    recorder_->mark();
    now_ = std::move(after);
  }
  void settle() {
    must(process_->check());
    ended();
  }
  void restart_process() {
    allow({TwoPools::digest_of(now_)});
    process_.reset();
    recorder_->process_dies();
    start();
    recorder_->mark();
  }

  Ino make(std::string_view name) {
    const auto made = process_->run(fs().make({}, fs::kRootIno, name, {}));
    PMSTORE_CHECK(made, "a file is made");
    ended();
    return made->ino;
  }
  // Atomic: what is overwritten in place may be found in parts.
  void write(Ino ino, std::optional<uint64_t> offset, size_t bytes, char letter) {
    const std::string data(bytes, letter);
    const auto written = process_->run(
        fs().write(ino, offset, std::as_bytes(std::span(data.data(), data.size())), true));
    PMSTORE_CHECK(written, "there is room for a write");
    ended();
  }
  void truncate(Ino ino, uint64_t size) {
    const fs::AttributeChange change{.set = fs::AttributeChange::kSize, .size = size};
    [[maybe_unused]] const auto cut = process_->run(fs().set_attributes({}, ino, change));
    ended();
  }
  void set_state(uint16_t server, DataServerState state) {
    must(process_->set_state(server, state));
    ended();
  }
  // A move that is under way is given so many turns.
  Moving begin_move(uint16_t server, uint64_t turns) {
    Moving moving = fs().move_off(server);
    moving.start();
    for (uint64_t i = 0; i < turns && !moving.done(); ++i) process_->turn();
    return moving;
  }
  void finish(Moving moving) {
    constexpr int kMostTurns = 100'000;
    for (int i = 0; i < kMostTurns && !moving.done(); ++i) process_->turn();
    PMSTORE_CHECK(moving.done(), "a move ends");
    PMSTORE_CHECK(moving.take(), "what is there can be moved");
    ended();
  }
  void drain(uint16_t server) {
    set_state(server, DataServerState::kDraining);
    finish(begin_move(server, 0));
    emptied(server);
  }
  // Nothing is left there; it is used again.
  void emptied(uint16_t server) {
    settle();
    PMSTORE_CHECK(process_->used_bytes(server) == 0, "a drained server is empty");
    set_state(server, DataServerState::kInUse);
  }
  fs::Namespace& fs() { return process_->names(); }

  persist::Domain domain_;
  Random random_;
  model::PageBytes region_;
  TwoPools pools_;
  std::unique_ptr<FilesProcess> process_;
  std::optional<model::CrashRecorder> recorder_;
  std::string now_;
};

void FilesMoveRun::script() {
  constexpr uint16_t kHere = 0;
  constexpr uint16_t kThere = FilesProcess::kOther;
  const Ino f = make("f");
  write(f, 0, fs::kUnitBytes + 700, 'a');
  drain(kThere);
  // A write and a truncation amid a move.
  set_state(kHere, DataServerState::kDraining);
  Moving moving = begin_move(kHere, 6);
  write(f, fs::kUnitBytes - 50, 100, 'b');
  truncate(f, 4000);
  finish(std::move(moving));
  emptied(kHere);
  // The process dies amid a move, and the next one goes on.
  set_state(kThere, DataServerState::kDraining);
  moving = begin_move(kThere, 9);
  moving = {};
  restart_process();
  finish(begin_move(kThere, 0));
  emptied(kThere);
}

void FilesMoveRun::draw() {
  const std::array<Ino, 2> files{make("a"), make("b")};
  for (const Ino file : files) write(file, 0, 1 + random_.below(2 * fs::kUnitBytes), 'z');
  for (uint64_t rounds = 2 + random_.below(2); rounds > 0; --rounds) {
    const auto server = static_cast<uint16_t>(random_.below(2));
    const Ino file = files[random_.below(files.size())];
    const char letter = static_cast<char>('a' + random_.below(26));
    set_state(server, DataServerState::kDraining);
    Moving moving = begin_move(server, random_.below(40));
    switch (random_.below(4)) {
      case 0: truncate(file, random_.below(2 * fs::kUnitBytes)); break;
      case 1:
        write(file, random_.below(2 * fs::kUnitBytes), 1 + random_.below(70'000), letter);
        break;
      case 2:
        moving = {};
        restart_process();
        moving = begin_move(server, 0);
        break;
      default: break;
    }
    finish(std::move(moving));
    emptied(server);
  }
}

}  // namespace

std::unique_ptr<RecordedRun> files_move_run(const std::string& scenario, uint64_t seed,
                                            persist::Domain domain) {
  return std::make_unique<FilesMoveRun>(scenario, seed, domain);
}

}  // namespace pmstore::crash
