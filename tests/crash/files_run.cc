#include "tests/crash/files_run.h"

#include <cerrno>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/checksum.h"
#include "fs/file_area.h"
#include "model/crash_recorder.h"
#include "model/page_bytes.h"
#include "persist/pool_layout.h"
#include "pmstore/layout/slab_layout.h"
#include "tests/crash/files_process.h"
#include "tests/crash/opened_pool.h"

namespace pmstore::crash {
namespace {

using fs::Ino;

constexpr uint64_t kLogBytes = 64 << 10;
constexpr uint64_t kRecordChunks = 14;
constexpr uint64_t kFileBytes = FormatOptions::kLeastFileBytes;
constexpr uint64_t kFilesPoolBytes = persist::kPoolLayoutBytes + kLogBytes +
                                     kRecordChunks * internal::kChunkBytes + kFileBytes + 8192;

uint64_t digest_of(const std::string& content) {
  return base::checksum64(std::as_bytes(std::span(content.data(), content.size())), 1);
}

// Recovery: the file system opens and is sound, and what was left over is given back. Work: one
// more file.
class RestartedFiles final : public Restarted {
 public:
  RestartedFiles(std::unique_ptr<persist::Pool> pool) : pool_(std::move(pool)) {}
  std::vector<persist::Memory*> memories() override { return {&pool_->memory()}; }
  Result<uint64_t> recover() override {
    PMSTORE_TRY_STATUS(record_opening(*pool_));
    PMSTORE_TRY(process_, FilesProcess::open(*pool_));
    PMSTORE_TRY(const std::string content, process_->content());
    PMSTORE_TRY_STATUS(process_->check());
    return digest_of(content);
  }
  uint64_t start_number() const override { return process_ ? process_->start_number() : 0; }
  Result<uint64_t> work() override {
    const fs::Caller root;
    const auto made = process_->run(process_->names().make(root, fs::kRootIno, "later", {}));
    if (!made && made.number() != EEXIST) {
      return make_error(ErrorCode::kDamaged, made.error().to_string());
    }
    PMSTORE_TRY(const std::string content, process_->content());
    return digest_of(content);
  }

 private:
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<FilesProcess> process_;
};

class FilesRun final : public RecordedRun {
 public:
  FilesRun(const std::string& scenario, uint64_t seed, persist::Domain domain)
      : RecordedRun(scenario, seed),
        domain_(domain),
        random_(seed),
        region_(persist::round_up(kFilesPoolBytes, 4096)) {
    pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain, true));
    FormatOptions options{.rings = 0, .identity = seed + 1, .log_bytes = 0};
    options.shard_log_bytes = kLogBytes;
    options.file_bytes = kFileBytes;
    PMSTORE_CHECK(fs::format_pool(*pool_, options), "the region is large enough");
    // Power cuts of making a pool and its tables are those of the store's runs.
    start();
    recorder_.emplace(pool_->memory());
    now_ = content();
    seed == 0 ? script() : draw();
    allow({digest_of(now_)});
    trace_ = recorder_->take();
    process_.reset();
    pool_.reset();
  }

  Result<std::unique_ptr<Restarted>> restart(std::span<std::byte> memory) const override {
    PMSTORE_TRY(auto pool, persist::Pool::in_region(memory, domain_, false));
    return std::make_unique<RestartedFiles>(std::move(pool));
  }
  // A start takes some milliseconds.
  uint64_t samples() const override { return domain_ == persist::Domain::kNone ? 4 : 16; }
  uint64_t most_exhaustive() const override { return 64; }
  uint64_t inner_samples() const override { return 1; }
  uint64_t death_every() const override { return 256; }

 private:
  void script();
  void draw();
  void start() {
    auto opened = FilesProcess::open(*pool_);
    PMSTORE_CHECK(opened, opened ? "" : opened.error().message.c_str());
    process_ = std::move(*opened);
  }
  std::string content() {
    auto found = process_->content();
    PMSTORE_CHECK(found, "a live file system can be read");
    describe(digest_of(*found), *found);
    return std::move(*found);
  }
  // Runs `call`, which a power cut leaves undone or done as a whole.
  template <typename T>
  std::optional<T> step(base::Task<fs::PosixResult<T>> call) {
    auto result = process_->run(std::move(call));
    ended();
    return result ? std::optional<T>(std::move(*result)) : std::nullopt;
  }
  void step(base::Task<fs::PosixStatus> call) {
    [[maybe_unused]] const auto result = process_->run(std::move(call));
    ended();
  }
  // The call was acknowledged: what is there now stays.
  void ended() {
    std::string after = content();
    allow({digest_of(now_), digest_of(after)});
    recorder_->mark();
    now_ = std::move(after);
  }
  void settle() {
    PMSTORE_CHECK(process_->check(), "a live file system is sound");
    ended();
  }
  void restart_process() {
    allow({digest_of(now_)});
    process_.reset();
    recorder_->process_dies();
    start();
    recorder_->mark();
  }

  Ino make(std::string_view name, Ino parent = fs::kRootIno,
           fs::FileType type = fs::FileType::kRegular) {
    fs::NewFile file;
    file.type = type;
    file.mode = 0755;
    const auto made = step(fs().make({}, parent, name, file));
    return made ? made->ino : Ino{};
  }
  Ino make_open(std::string_view name) {
    const auto made = step(fs().make({}, fs::kRootIno, name, {}, fs::OpenOwner{1}));
    return made ? made->ino : Ino{};
  }
  void append(Ino ino, size_t bytes, char letter) { write(ino, std::nullopt, bytes, letter); }
  void write(Ino ino, std::optional<uint64_t> offset, size_t bytes, char letter) {
    const std::string data(bytes, letter);
    step(fs().write(ino, offset, std::as_bytes(std::span(data.data(), data.size()))));
  }
  void replace(Ino ino, uint64_t offset, size_t bytes, char letter) {
    const std::string data(bytes, letter);
    step(fs().write(ino, offset, std::as_bytes(std::span(data.data(), data.size())), true));
  }
  void truncate(Ino ino, uint64_t size) {
    const fs::AttributeChange change{.set = fs::AttributeChange::kSize, .size = size};
    step(fs().set_attributes({}, ino, change));
  }
  void punch(Ino ino, uint64_t offset, uint64_t bytes) {
    step(fs().allocate(ino, fs::AllocateMode::kPunchHole, offset, bytes));
  }
  void unlink(std::string_view name, Ino parent = fs::kRootIno) {
    step(fs().unlink({}, parent, name));
  }
  void rename(Ino from, std::string_view name, Ino to, std::string_view new_name,
              fs::RenameMode mode = fs::RenameMode::kReplace) {
    step(fs().rename({}, from, name, to, new_name, mode));
  }
  fs::Namespace& fs() { return process_->names(); }

  persist::Domain domain_;
  Random random_;
  model::PageBytes region_;
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<FilesProcess> process_;
  std::optional<model::CrashRecorder> recorder_;
  std::string now_;
};

void FilesRun::script() {
  const Ino root = fs::kRootIno;
  const Ino d = make("d", root, fs::FileType::kDirectory);
  const Ino f = make("f");
  append(f, 3000, 'a');            // inline
  append(f, 3000, 'b');            // outgrows its inode
  append(f, 100, 'c');             // in its unit
  append(f, fs::kUnitBytes, 'd');  // another unit
  truncate(f, 7000);
  append(f, 1000, 'e');  // where other bytes were
  truncate(f, 9000);     // what was there stays hidden
  settle();
  const Ino g = make("g", d);
  write(g, 2 * fs::kUnitBytes + 10, 50, 'g');  // behind a hole
  rename(root, "f", d, "g");                   // replaces a file with data
  settle();
  replace(f, 8000, 1500, 'R');                 // grows
  append(f, fs::kUnitBytes, 's');              // two units, of one extent each
  replace(f, fs::kUnitBytes - 700, 900, 'T');  // in both
  settle();
  restart_process();
  rename(d, "g", root, "f");
  rename(root, "d", root, "e");
  const Ino open = make_open("open");
  append(open, 5000, 'o');
  unlink("open");
  step(fs().close_file(open, fs::OpenOwner{1}));
  settle();
  write(f, 3 * fs::kUnitBytes, 10, 'h');
  punch(f, 0, fs::kUnitBytes);
  step(fs().link({}, f, d, "l"));
  unlink("f");
  restart_process();
  make("h", d);
  rename(d, "l", d, "h", fs::RenameMode::kExchange);
  unlink("h", d);
  settle();
  step(fs().remove_directory({}, root, "e"));  // it is not empty
  unlink("l", d);
  step(fs().remove_directory({}, root, "e"));
}

void FilesRun::draw() {
  const Ino root = fs::kRootIno;
  const Ino d = make("d", root, fs::FileType::kDirectory);
  constexpr const char* kFiles[] = {"a", "b", "c"};
  for (uint64_t steps = 12 + random_.below(8); steps > 0; --steps) {
    const Ino parent = random_.below(2) == 0 ? root : d;
    const char* const name = kFiles[random_.below(std::size(kFiles))];
    const auto there = process_->run(fs().lookup({}, parent, name));
    const Ino ino = there ? there->ino : make(name, parent);
    switch (random_.below(11)) {
      case 0: unlink(name, parent); break;
      case 1: rename(parent, name, root, kFiles[random_.below(3)]); break;
      case 2: rename(parent, name, d, kFiles[random_.below(3)]); break;
      case 3: truncate(ino, random_.below(9000)); break;
      case 4: truncate(ino, random_.below(3 * fs::kUnitBytes)); break;
      case 5: punch(ino, 0, fs::kUnitBytes); break;
      case 6: restart_process(); break;
      case 7:
      case 8:
        replace(ino, random_.below(9000), 1 + random_.below(fs::kUnitBytes + 5000),
                static_cast<char>('A' + random_.below(26)));
        break;
      default:
        append(ino, 1 + random_.below(fs::kUnitBytes + 5000),
               static_cast<char>('a' + random_.below(26)));
        break;
    }
  }
  settle();
}

}  // namespace

std::unique_ptr<RecordedRun> files_run(const std::string& scenario, uint64_t seed,
                                       persist::Domain domain) {
  return std::make_unique<FilesRun>(scenario, seed, domain);
}

}  // namespace pmstore::crash
