#include "tests/crash/files_grow_run.h"

#include <cerrno>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/checksum.h"
#include "fs/file_area.h"
#include "log/log_client.h"
#include "model/crash_recorder.h"
#include "model/page_bytes.h"
#include "persist/pool_layout.h"
#include "pmstore/layout/slab_layout.h"
#include "tests/crash/files_process.h"
#include "tests/crash/opened_pool.h"

namespace pmstore::crash {
namespace {

using fs::Ino;

constexpr uint64_t kGrowLogBytes = 64 << 10;
constexpr uint64_t kGrowFrameBytes = 16 * internal::kChunkBytes;
constexpr uint64_t kFirstSectionBytes = FormatOptions::kLeastFileBytes;
constexpr uint64_t kStepBytes = 256 << 10;  // two or three units
constexpr uint64_t kMostSteps = 3;
constexpr uint64_t kLogAreaBytes = 128 << 10;
// The last step is what is left to records.
constexpr uint64_t kGrowPoolBytes = persist::kPoolLayoutBytes + kGrowLogBytes + kGrowFrameBytes +
                                    kFirstSectionBytes + (kMostSteps + 1) * kStepBytes +
                                    kLogAreaBytes + 8192;
constexpr uint64_t kLongEnoughNs = 3 * fs::internal::AreaKeeper::kKeptNs;
constexpr uint64_t kLogRoomBytes = 4096;  // a log's header, and what is left over
constexpr size_t kEntryBytes = 30'000;
constexpr char kWorkFile[] = "work";

fs::internal::AreaKeeperOptions small_steps() {
  return {.least_step_bytes = kStepBytes, .least_section_bytes = kStepBytes};
}

uint64_t grow_digest_of(const std::string& content) {
  return base::checksum64(std::as_bytes(std::span(content.data(), content.size())), 1);
}

Result<std::unique_ptr<FilesProcess>> start_on(persist::Pool& pool) {
  return FilesProcess::open(pool, nullptr, small_steps());
}

// Recovery: all files are as they were, and each extent has one owner. Work: a file gets two units,
// which a new section may be needed for, or loses them; then sections that are empty are gone.
class RestartedGrowth final : public Restarted {
 public:
  explicit RestartedGrowth(std::unique_ptr<persist::Pool> pool) : pool_(std::move(pool)) {}
  std::vector<persist::Memory*> memories() override { return {&pool_->memory()}; }
  Result<uint64_t> recover() override {
    PMSTORE_TRY_STATUS(record_opening(*pool_));
    PMSTORE_TRY(process_, start_on(*pool_));
    PMSTORE_TRY(const std::string content, process_->content());
    PMSTORE_TRY_STATUS(process_->check());
    return grow_digest_of(content);
  }
  uint64_t start_number() const override { return process_ ? process_->start_number() : 0; }
  Result<uint64_t> work() override {
    PMSTORE_TRY_STATUS(change_a_file());
    process_->pass(kLongEnoughNs);
    PMSTORE_TRY_STATUS(process_->check_none_is_empty());
    PMSTORE_TRY_STATUS(process_->check());
    PMSTORE_TRY(const std::string content, process_->content());
    return grow_digest_of(content);
  }

 private:
  Status change_a_file() {
    const auto damaged = [](const fs::PosixError& why) {
      return make_error(ErrorCode::kDamaged, why.to_string());
    };
    fs::Namespace& names = process_->names();
    const auto file = process_->run(names.lookup({}, fs::kRootIno, kWorkFile));
    if (!file) return damaged(file.error());
    if (file->size > 0) {
      const fs::AttributeChange change{.set = fs::AttributeChange::kSize, .size = 0};
      const auto done = process_->run(names.set_attributes({}, file->ino, change));
      return done ? Status{} : Status{damaged(done.error())};
    }
    const std::string data(2 * fs::kUnitBytes, 'w');
    const auto bytes = std::as_bytes(std::span(data.data(), data.size()));
    const auto done = process_->run(names.write(file->ino, 0, bytes));
    // A log may have all that is left.
    if (!done && done.number() != ENOSPC) return damaged(done.error());
    return {};
  }

  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<FilesProcess> process_;
};

// Invariant: between two steps `now_` is the content, and the recorder has a mark behind it.
class FilesGrowRun final : public RecordedRun {
 public:
  FilesGrowRun(const std::string& scenario, uint64_t seed, persist::Domain domain)
      : RecordedRun(scenario, seed),
        domain_(domain),
        random_(seed),
        region_(persist::round_up(kGrowPoolBytes, 4096)) {
    pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain, true));
    FormatOptions options{.rings = 0, .identity = seed + 1, .log_bytes = kLogAreaBytes};
    options.shard_log_bytes = kGrowLogBytes;
    options.frame_bytes = kGrowFrameBytes;
    options.file_bytes = kFirstSectionBytes;
    const Status formatted = fs::format_pool(*pool_, options);
    PMSTORE_CHECK(formatted, formatted ? "" : formatted.error().message.c_str());
    start();
    make_files();
    recorder_.emplace(pool_->memory());
    now_ = content();
    seed == 0 ? script() : draw();
    allow({grow_digest_of(now_)});
    trace_ = recorder_->take();
    process_.reset();
    pool_.reset();
  }

  Result<std::unique_ptr<Restarted>> restart(std::span<std::byte> memory) const override {
    PMSTORE_TRY(auto pool, persist::Pool::in_region(memory, domain_, false));
    return std::make_unique<RestartedGrowth>(std::move(pool));
  }
  // A start takes some milliseconds.
  uint64_t samples() const override { return 2; }
  uint64_t most_exhaustive() const override { return 2; }
  uint64_t inner_samples() const override { return 1; }
  uint64_t death_every() const override { return 512; }

 private:
  void script();
  void draw();
  void start() {
    auto opened = start_on(*pool_);
    PMSTORE_CHECK(opened, opened ? "" : opened.error().message.c_str());
    process_ = std::move(*opened);
  }
  // Before the record: files, and one that has the first section but for a unit.
  void make_files() {
    for (const char* const name : {"full", "a", "b", kWorkFile}) {
      const auto made = process_->run(fs().make({}, fs::kRootIno, name, {}));
      PMSTORE_CHECK(made, "a file is made");
      inos_.push_back(made->ino);
    }
    const uint64_t bytes = process_->area().bytes() - fs::kUnitBytes;
    const auto filled =
        process_->run(fs().allocate(inos_.front(), fs::AllocateMode::kKeepSize, 0, bytes));
    PMSTORE_CHECK(filled, "the first section has its units");
    PMSTORE_CHECK(process_->check(), "a live file system is sound");
  }
  std::string content() {
    auto found = process_->content();
    PMSTORE_CHECK(found, "a live file system can be read");
    describe(grow_digest_of(*found), *found);
    return std::move(*found);
  }
  // The call was acknowledged: what is there now stays.
  void ended() {
    std::string after = content();
    allow({grow_digest_of(now_), grow_digest_of(after)});
    recorder_->mark();
    now_ = std::move(after);
  }
  size_t sections() const { return process_->area().sections().size(); }
  fs::Namespace& fs() { return process_->names(); }

  // ---- steps ----

  // False: the pool is full.
  bool append(Ino ino, size_t bytes, char letter) {
    const std::string data(bytes, letter);
    const auto done = process_->run(
        fs().write(ino, std::nullopt, std::as_bytes(std::span(data.data(), data.size()))));
    PMSTORE_CHECK(done || done.number() == ENOSPC, "a write has room, or there is none");
    ended();
    return done.has_value();
  }
  void truncate(Ino ino, uint64_t size) {
    const fs::AttributeChange change{.set = fs::AttributeChange::kSize, .size = size};
    PMSTORE_CHECK(process_->run(fs().set_attributes({}, ino, change)), "a file becomes shorter");
    ended();
  }
  // Sections that are empty go, if they have the time.
  void pass(uint64_t ns) {
    process_->pass(ns);
    PMSTORE_CHECK(process_->check(), "a live file system is sound");
    ended();
  }
  std::unique_ptr<log::LogClient> logs() {
    log::LogClientOptions options;
    options.secret = ClientSecret::of_number(77);
    auto made = process_->run(
        log::LogClient::connect(process_->executor(), process_->address(), std::move(options)));
    PMSTORE_CHECK(made, "a server has logs");
    return std::move(*made);
  }
  // A log takes what is free together, and has entries there. False: there is too little for one.
  bool take_for_log() {
    const uint64_t free = pool_->largest_free_extent();
    if (free < kLogAreaBytes + kLogRoomBytes) return false;
    const auto client = logs();
    const auto made = process_->run(
        client->create("log", {.bytes = free - kLogRoomBytes, .identity = seed() + 1}));
    PMSTORE_CHECK(made, made ? "" : made.error().message.c_str());
    log_ = made->id;
    const std::vector<std::byte> entry(kEntryBytes, std::byte{0xa5});
    for (uint64_t bytes = 2 * kEntryBytes; bytes < free - kLogRoomBytes; bytes += kEntryBytes) {
      if (!process_->run(client->append(*log_, entry))) break;
    }
    ended();
    return true;
  }
  void give_log_back() {
    PMSTORE_CHECK(process_->run(logs()->erase(*log_)), "what a log had is the pool's again");
    log_.reset();
    ended();
  }
  void restart_process() {
    allow({grow_digest_of(now_)});
    process_.reset();
    recorder_->process_dies();
    start();
    recorder_->mark();
  }

  persist::Domain domain_;
  Random random_;
  model::PageBytes region_;
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<FilesProcess> process_;
  std::optional<model::CrashRecorder> recorder_;
  std::vector<Ino> inos_;
  std::optional<uint64_t> log_;  // its id
  std::string now_;
};

void FilesGrowRun::script() {
  const Ino a = inos_[1];
  const Ino b = inos_[2];
  append(a, fs::kUnitBytes, 'a');
  PMSTORE_CHECK(sections() == 1, "there was one unit");
  append(a, fs::kUnitBytes + 100, 'c');
  PMSTORE_CHECK(sections() == 2, "a full area gets a section");
  append(b, 3 * fs::kUnitBytes, 'b');
  PMSTORE_CHECK(sections() > 2, "and another one");
  truncate(b, 0);
  pass(kLongEnoughNs);
  PMSTORE_CHECK(sections() == 2, "an empty section goes");
  PMSTORE_CHECK(take_for_log(), "others have its space");
  PMSTORE_CHECK(!append(b, 4 * fs::kUnitBytes, 'd'), "the pool is full");
  give_log_back();
  PMSTORE_CHECK(append(b, 3 * fs::kUnitBytes, 'e'), "files have what the log had");
  restart_process();
  truncate(a, fs::kUnitBytes);
  truncate(b, 0);
  restart_process();  // while all later sections are empty
  PMSTORE_CHECK(sections() > 1, "nothing was given back in so short a time");
  pass(kLongEnoughNs);
  PMSTORE_CHECK(sections() == 1, "a start finds what the last one has not used");
  PMSTORE_CHECK(take_for_log(), "others have all of it");
  restart_process();
}

void FilesGrowRun::draw() {
  for (uint64_t steps = 8 + random_.below(6); steps > 0; --steps) {
    const Ino ino = inos_[1 + random_.below(2)];
    switch (random_.below(8)) {
      case 0: truncate(ino, 0); break;
      case 1: truncate(ino, 0); [[fallthrough]];
      case 2: pass(kLongEnoughNs); break;
      case 3: log_ ? give_log_back() : static_cast<void>(take_for_log()); break;
      case 4: restart_process(); break;
      default:
        append(ino, 1 + random_.below(2 * fs::kUnitBytes),
               static_cast<char>('a' + random_.below(26)));
        break;
    }
  }
  pass(0);
}

}  // namespace

std::unique_ptr<RecordedRun> files_grow_run(const std::string& scenario, uint64_t seed,
                                            persist::Domain domain) {
  return std::make_unique<FilesGrowRun>(scenario, seed, domain);
}

}  // namespace pmstore::crash
