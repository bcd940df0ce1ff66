#include "tools/cli/fs_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tools/cli/bytes_text.h"

namespace pmstore::tools {

// "12 files, 345 MiB, 512 MiB/s", some times a second.
class Copier::Progress {
 public:
  Progress(base::Executor& executor, const Counts& counts)
      : executor_(executor), counts_(counts), started_ns_(executor.now_ns()) {}
  void update() {
    if (!line_.shown()) return;
    const uint64_t now_ns = executor_.now_ns();
    constexpr uint64_t kBetweenNs = 200'000'000;
    if (now_ns < said_ns_ + kBetweenNs) return;
    said_ns_ = now_ns;
    constexpr double kMiB = 1 << 20;
    const double mib = static_cast<double>(counts_.bytes) / kMiB;
    const double seconds = static_cast<double>(now_ns - started_ns_) / 1e9;
    line_.update(fmt::format("{} files, {:.0f} MiB, {:.0f} MiB/s", counts_.files, mib,
                             seconds > 0 ? mib / seconds : 0));
  }
  // Before another line is printed.
  void clear() { line_.clear(); }

 private:
  base::Executor& executor_;
  const Counts& counts_;
  const uint64_t started_ns_;
  uint64_t said_ns_ = 0;
  ProgressLine line_;
};

Copier::Copier(base::Executor& executor, CopySide& from, CopySide& to, CopyOptions options,
               Failures& failures)
    : executor_(executor),
      from_(from),
      to_(to),
      options_(options),
      failures_(failures),
      finished_(executor),
      progress_(std::make_unique<Progress>(executor, counts_)) {}

Copier::~Copier() { PMSTORE_CHECK(running_ == 0, "a copy waits for its files"); }

base::Task<void> Copier::run_counted(base::Task<void> task) {
  co_await std::move(task);
  --running_;
  finished_.notify_all();
}

base::Task<void> Copier::start(base::Task<void> task) {
  while (running_ >= kFilesAtATime) co_await finished_.wait();
  ++running_;
  executor_.spawn(run_counted(std::move(task)));
}

base::Task<void> Copier::wait_for_all() {
  while (running_ > 0) co_await finished_.wait();
}

base::Task<void> Copier::copy(std::string from, std::string to) {
  auto facts = co_await from_.facts(from, !options_.recursive);
  if (!facts) {
    failures_.add(from, facts.error());
    co_return;
  }
  const auto there = co_await to_.facts(to, true);
  if (there && there->device == facts->device && there->inode == facts->inode) {
    failures_.add(from, "'" + printable(to) + "' is the same file");
    co_return;
  }
  if (facts->type == fs::FileType::kDirectory && !options_.recursive) {
    failures_.add(from, "it is a directory; give -r to copy it with all that is in it");
    co_return;
  }
  Job root{std::move(from), std::move(to), *facts};
  co_await copy_tree(std::move(root));
  progress_->clear();
}

base::Task<void> Copier::copy_tree(Job root) {
  std::vector<Job> waiting;
  std::vector<Job> directories;
  waiting.push_back(std::move(root));
  while (!waiting.empty()) {
    Job job = std::move(waiting.back());
    waiting.pop_back();
    progress_->update();
    if (job.facts.type == fs::FileType::kRegular) {
      co_await start(copy_file(std::move(job)));
    } else if (job.facts.type == fs::FileType::kSymlink) {
      co_await copy_link(job);
    } else if (job.facts.type != fs::FileType::kDirectory) {
      failures_.add(job.from, "it is left out: only files, directories and symlinks are copied");
    } else if (co_await enter_directory(job)) {
      auto names = co_await from_.names(job.from);
      if (!names) {
        failures_.add(job.from, names.error());
        continue;
      }
      std::sort(names->begin(), names->end(), std::greater<>());
      for (const std::string& name : *names) {
        // A name from a server that is no name would lead out of the target.
        if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
          failures_.add(job.from, "the name '" + printable(name) + "' in it is none");
          continue;
        }
        const std::string path = joined(job.from, name);
        auto facts = co_await from_.facts(path, false);
        if (!facts) {
          failures_.add(path, facts.error());
          continue;
        }
        waiting.push_back({path, joined(job.to, name), *facts});
      }
      if (options_.preserve) directories.push_back(std::move(job));
    }
  }
  co_await wait_for_all();
  // Their times change while something is put into them: the innermost first.
  for (auto job = directories.rbegin(); job != directories.rend(); ++job) {
    co_await keep_facts(*job);
  }
}

base::Task<bool> Copier::enter_directory(const Job& job) {
  // Something has to be put into it, whatever its mode will be.
  constexpr uint16_t kOwnerMay = 0700;
  const auto made =
      co_await to_.make_directory(job.to, static_cast<uint16_t>(job.facts.mode | kOwnerMay));
  if (!made && made.error().number == EEXIST) {
    const auto there = co_await to_.facts(job.to, true);
    if (there && there->type == fs::FileType::kDirectory) co_return true;
  }
  if (!made) {
    failures_.add(job.to, made.error());
    co_return false;
  }
  ++counts_.directories;
  co_return true;
}

base::Task<void> Copier::copy_link(const Job& job) {
  const auto target = co_await from_.read_link(job.from);
  if (!target) {
    failures_.add(job.from, target.error());
    co_return;
  }
  auto made = co_await to_.make_symlink(*target, job.to);
  if (!made && made.error().number == EEXIST) {
    const auto there = co_await to_.facts(job.to, false);
    if (there && there->type == fs::FileType::kSymlink) {
      (void)co_await to_.remove(job.to);
      made = co_await to_.make_symlink(*target, job.to);
    }
  }
  if (!made) {
    failures_.add(job.to, made.error());
    co_return;
  }
  ++counts_.symlinks;
  if (options_.preserve) co_await keep_facts(job);
}

base::Task<void> Copier::keep_facts(const Job& job) {
  const auto kept = co_await to_.set_facts(job.to, job.facts);
  if (!kept) failures_.add(job.to, "mode, owner and times: " + posix_text(kept.error()));
}

base::Task<void> Copier::copy_file(Job job) {
  const auto copied = co_await copy_data(job);
  if (!copied) {
    progress_->clear();
    failures_.add(job.from, "to '" + printable(job.to) + "': " + posix_text(copied.error()));
    co_return;
  }
  ++counts_.files;
  if (options_.preserve) co_await keep_facts(job);
  progress_->update();
}

base::Task<fs::PosixStatus> Copier::copy_data(const Job& job) {
  auto from = co_await from_.open(job.from);
  if (!from) co_return std::move(from.error());
  auto to =
      co_await to_.create(job.to, static_cast<uint16_t>(job.facts.mode & 0777), job.facts.size);
  if (!to) {
    (void)co_await (*from)->close();
    co_return std::move(to.error());
  }
  auto status = co_await copy_parts(**from, **to, job.facts.size);
  (void)co_await (*from)->close();
  auto closed = co_await (*to)->close();
  if (status && !closed) status = std::move(closed);
  // No half file stays, and none of zeros.
  if (!status) (void)co_await to_.remove(job.to);
  co_return status;
}

base::Task<fs::PosixStatus> Copier::copy_parts(CopyFile& from, CopyFile& to, uint64_t size) {
  uint64_t next = 0;
  fs::PosixStatus status;
  size_t running = 0;
  base::WaitList finished(executor_);
  const auto helper = [&]() -> base::Task<void> {
    co_await copy_some_parts(from, to, size, next, status);
    --running;
    finished.notify_all();
  };
  const uint64_t parts = (size + kPartBytes - 1) / kPartBytes;
  while (running + 1 < std::min<uint64_t>(parts, kPartsAtATime)) {
    ++running;
    executor_.spawn(helper());
  }
  co_await copy_some_parts(from, to, size, next, status);
  while (running > 0) co_await finished.wait();
  co_return status;
}

base::Task<void> Copier::copy_some_parts(CopyFile& from, CopyFile& to, uint64_t size,
                                         uint64_t& next, fs::PosixStatus& status) {
  std::vector<std::byte> part(std::min<uint64_t>(kPartBytes, size));
  while (status && next < size) {
    const uint64_t offset = next;
    next += std::min<uint64_t>(kPartBytes, size - next);
    const auto want = std::span(part).first(next - offset);
    const auto got = co_await from.read(want, offset);
    if (!got) {
      status = PosixError(got.error());
    } else if (*got < want.size()) {
      status = PosixError(EIO, "the file became shorter while it was copied");
    } else {
      auto written = co_await to.write(want, offset);
      if (!written) status = std::move(written);
    }
    counts_.bytes += want.size();
    progress_->update();
  }
}

}  // namespace pmstore::tools
