#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/random.h"
#include "tools/bench/fs_load_state.h"

namespace pmstore::tools {
namespace {

Error error_of(const fs::PosixError& error, std::string_view what) {
  const bool unsupported = error.number == EOPNOTSUPP;
  return make_error(unsupported ? ErrorCode::kUnsupported : ErrorCode::kIo,
                    fmt::format("{}: {}", what, error.to_string()));
}

// What the block `block` (of all files) has after its write number `number`; 0: at the start.
void fill(std::span<std::byte> payload, uint64_t block, uint64_t number) {
  uint64_t word = base::mix64(block * 0x10001 + number);
  // Whole words by themselves: a vector loop, or else a 1 MiB block takes longer than its write.
  const size_t whole = payload.size() / sizeof(word);
  for (size_t i = 0; i < whole; ++i, ++word) {
    std::memcpy(payload.data() + i * sizeof(word), &word, sizeof(word));
  }
  const size_t rest = payload.size() % sizeof(word);
  if (rest > 0) std::memcpy(payload.data() + whole * sizeof(word), &word, rest);
}

}  // namespace

FsLoad::FsLoad(const FsLoadOptions& options) : options_(options), workers_(options.workers()) {
  for (size_t i = 0; i < workers_.size(); ++i) {
    workers_[i].number = i;
    if (options_.mode == FsLoadMode::kData) workers_[i].written.resize(blocks_of(workers_[i]));
  }
  const auto add = [this](std::string name, Phase phase) {
    phases_.push_back(std::make_unique<NamedPhase>(std::move(name), phase));
  };
  if (options_.mode == FsLoadMode::kData) {
    add("data", &FsLoad::data);
    return;
  }
  add("create", &FsLoad::create);
  add("stat", &FsLoad::stat);
  add("readdir", &FsLoad::list);
  add("rename", &FsLoad::rename);
  add("unlink", &FsLoad::unlink);
}

void FsLoad::fail(Error error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  failed_ = true;
  control_.stop();
}

bool FsLoad::over(const FsWorker& worker, uint64_t now_ns) const {
  const uint64_t share = options_.ops / options_.workers() +
                         (worker.number < options_.ops % options_.workers() ? 1 : 0);
  return control_.over(now_ns) || (options_.ops != 0 && worker.operations >= share);
}

// ---- data ----

Task<Status> FsLoad::sync_files(const std::vector<std::unique_ptr<fs::File>>& open,
                                std::set<uint64_t>& written) {
  for (const uint64_t file : written) {
    const fs::PosixStatus durable = co_await open[file]->fsync();
    if (!durable) co_return error_of(durable.error(), data_path(file));
  }
  written.clear();
  co_return Status{};
}

Task<Status> FsLoad::data(fs::FileSystem& files, FsWorker& worker, Histogram&) {
  Histogram reads;
  Histogram writes;
  std::vector<std::unique_ptr<fs::File>> open(options_.files);
  Random random(base::mix64(options_.seed) + worker.number);
  std::vector<std::byte>& payload = worker.payload;
  payload.resize(options_.payload_bytes);
  // Memory that is used again and again. The modelled RNIC has no region for each worker.
  if (model_ == nullptr) {
    const fs::PosixStatus registered = co_await files.register_buffer(payload);
    if (!registered) co_return error_of(registered.error(), "cannot register the payload");
  }
  Executor& executor = files.executor();
  const uint64_t workers = options_.workers();
  const auto read_below = static_cast<uint64_t>(options_.read_share * (1u << 16));
  uint64_t next = 0;
  std::set<uint64_t> unsynced;  // files
  uint64_t written = 0;
  while (!over(worker, executor.now_ns()) && !failed_) {
    const bool reads_one = (random.next() & 0xffff) < read_below;
    const uint64_t own =
        options_.sequential ? next++ % worker.written.size() : random.below(worker.written.size());
    const uint64_t block = reads_one && !options_.sequential ? random.below(options_.blocks())
                                                             : worker.number + own * workers;
    const uint64_t file = block / options_.blocks_per_file();
    const uint64_t offset = block % options_.blocks_per_file() * options_.payload_bytes;
    if (open[file] == nullptr) {
      const std::string path = data_path(file);
      auto opened = co_await files.open(path, O_RDWR);
      if (!opened) co_return error_of(opened.error(), path);
      open[file] = std::move(*opened);
    }
    ++worker.operations;
    if (!reads_one) fill(payload, block, worker.written[own] + 1);
    const uint64_t start_ns = executor.now_ns();
    fs::PosixResult<uint64_t> done = 0;
    if (reads_one) {
      done = co_await open[file]->pread(payload, offset);
    } else {
      done = co_await open[file]->pwrite(payload, offset);
    }
    if (!done) co_return error_of(done.error(), data_path(file));
    if (!reads_one && options_.fsync_every != 0) {
      unsynced.insert(file);
      if (++written % options_.fsync_every == 0) {
        PMSTORE_CO_TRY_STATUS(co_await sync_files(open, unsynced));
      }
    }
    (reads_one ? reads : writes).record(executor.now_ns() - start_ns);
    if (!reads_one) ++worker.written[own];
  }
  for (auto& each : open) {
    if (each == nullptr) continue;
    const fs::PosixStatus closed = co_await each->close();
    if (!closed) co_return error_of(closed.error(), "close");
  }
  const std::lock_guard lock(mutex_);
  read_ns_.merge(reads);
  write_ns_.merge(writes);
  co_return Status{};
}

// ---- metadata ----

Task<Status> FsLoad::create(fs::FileSystem& files, FsWorker& worker, Histogram& latency) {
  for (uint64_t i = 0; i < options_.files && !control_.stopped(); ++i) {
    const std::string path = path_of(worker, i);
    const uint64_t start_ns = files.executor().now_ns();
    auto file = co_await files.open(path, O_RDWR | O_CREAT | O_EXCL);
    if (!file) co_return error_of(file.error(), path);
    const fs::PosixStatus closed = co_await (*file)->close();
    if (!closed) co_return error_of(closed.error(), path);
    latency.record(files.executor().now_ns() - start_ns);
  }
  co_return Status{};
}

Task<Status> FsLoad::stat(fs::FileSystem& files, FsWorker& worker, Histogram& latency) {
  for (uint64_t i = 0; i < options_.files && !control_.stopped(); ++i) {
    const std::string path = path_of(worker, i);
    const uint64_t start_ns = files.executor().now_ns();
    const auto there = co_await files.stat(path);
    if (!there) co_return error_of(there.error(), path);
    latency.record(files.executor().now_ns() - start_ns);
  }
  co_return Status{};
}

// One operation is a page of entries.
Task<Status> FsLoad::list(fs::FileSystem& files, FsWorker& worker, Histogram& latency) {
  const std::string path = directory_of(worker);
  uint64_t cookie = 0;
  uint64_t found = 0;
  for (;;) {
    const uint64_t start_ns = files.executor().now_ns();
    const auto page = co_await files.list(path, cookie);
    if (!page) co_return error_of(page.error(), path);
    latency.record(files.executor().now_ns() - start_ns);
    if (page->empty()) break;
    found += page->size();
    cookie = page->back().entry.cookie;
  }
  if (found != options_.files && !control_.stopped()) {
    const std::lock_guard lock(mutex_);
    problem(fmt::format("{} has {} entries, not {}", path, found, options_.files));
  }
  co_return Status{};
}

Task<Status> FsLoad::rename(fs::FileSystem& files, FsWorker& worker, Histogram& latency) {
  for (uint64_t i = 0; i < options_.files && !control_.stopped(); ++i) {
    const std::string from = path_of(worker, i);
    const std::string to = path_of(worker, i, true);
    const uint64_t start_ns = files.executor().now_ns();
    const auto done = co_await files.rename(from, to);
    if (!done) co_return error_of(done.error(), from);
    latency.record(files.executor().now_ns() - start_ns);
  }
  co_return Status{};
}

Task<Status> FsLoad::unlink(fs::FileSystem& files, FsWorker& worker, Histogram& latency) {
  for (uint64_t i = 0; i < options_.files && !control_.stopped(); ++i) {
    const std::string path = path_of(worker, i, true);
    const uint64_t start_ns = files.executor().now_ns();
    const auto done = co_await files.remove(path);
    if (!done) co_return error_of(done.error(), path);
    latency.record(files.executor().now_ns() - start_ns);
  }
  co_return Status{};
}

// ---- before and after ----

Task<Status> FsLoad::remove_all(fs::FileSystem& files, std::string path) {
  for (;;) {
    auto page = co_await files.list(path);
    if (!page && page.number() == ENOENT) co_return Status{};
    if (!page) co_return error_of(page.error(), path);
    if (page->empty()) break;
    for (const auto& each : *page) {
      const std::string inner = path + "/" + each.entry.name;
      if (each.entry.type == fs::FileType::kDirectory) {
        PMSTORE_CO_TRY_STATUS(co_await remove_all(files, inner));
        continue;
      }
      const auto removed = co_await files.remove(inner);
      if (!removed) co_return error_of(removed.error(), inner);
    }
  }
  const auto removed = co_await files.remove(path);
  if (!removed) co_return error_of(removed.error(), path);
  co_return Status{};
}

Task<Status> FsLoad::prepare(fs::FileSystem& files) {
  PMSTORE_CO_TRY_STATUS(co_await remove_all(files, std::string(kFsLoadDirectory)));
  const auto made = co_await files.make_directory(kFsLoadDirectory);
  if (!made) co_return error_of(made.error(), kFsLoadDirectory);
  if (options_.mode == FsLoadMode::kMetadata) {
    for (const FsWorker& worker : workers_) {
      const std::string path = directory_of(worker);
      const auto inner = co_await files.make_directory(path);
      if (!inner) co_return error_of(inner.error(), path);
    }
    co_return Status{};
  }
  std::vector<std::byte> payload(options_.payload_bytes);
  for (uint64_t i = 0; i < options_.files; ++i) {
    const std::string path = data_path(i);
    auto file = co_await files.open(path, O_RDWR | O_CREAT | O_EXCL);
    if (!file) co_return error_of(file.error(), path);
    const auto room = co_await (*file)->allocate(fs::AllocateMode::kExtend, 0, options_.file_bytes);
    if (!room) co_return error_of(room.error(), path);
    for (uint64_t b = 0; b < options_.blocks_per_file() && !control_.stopped(); ++b) {
      fill(payload, i * options_.blocks_per_file() + b, 0);
      const auto done = co_await (*file)->pwrite(payload, b * payload.size());
      if (!done) co_return error_of(done.error(), path);
    }
    const auto closed = co_await (*file)->close();
    if (!closed) co_return error_of(closed.error(), path);
  }
  co_return Status{};
}

void FsLoad::problem(std::string text) {
  if (++result_.audit.wrong == 1) result_.audit.first_problem = std::move(text);
}

Task<Status> FsLoad::audit_data(fs::FileSystem& files) {
  std::vector<std::byte> payload(options_.payload_bytes);
  std::vector<std::byte> wanted(options_.payload_bytes);
  for (uint64_t i = 0; i < options_.files; ++i) {
    const std::string path = data_path(i);
    auto file = co_await files.open(path, O_RDONLY);
    if (!file) co_return error_of(file.error(), path);
    for (uint64_t b = 0; b < options_.blocks_per_file(); ++b) {
      const uint64_t block = i * options_.blocks_per_file() + b;
      const FsWorker& owner = workers_[block % workers_.size()];
      fill(wanted, block, owner.written[block / workers_.size()]);
      const auto got = co_await (*file)->pread(payload, b * payload.size());
      if (!got) co_return error_of(got.error(), path);
      ++result_.audit.checked;
      if (*got != payload.size() || payload != wanted) {
        problem(fmt::format("{} at {}: not what was written last", path, b * payload.size()));
      }
    }
  }
  co_return Status{};
}

Task<Status> FsLoad::audit_metadata(fs::FileSystem& files) {
  for (const FsWorker& worker : workers_) {
    const std::string path = directory_of(worker);
    const auto page = co_await files.list(path);
    if (!page) co_return error_of(page.error(), path);
    result_.audit.checked += options_.files;
    if (!page->empty()) problem(fmt::format("{} has entries that were removed", path));
  }
  co_return Status{};
}

Task<Status> FsLoad::audit(fs::FileSystem& files) {
  if (options_.mode == FsLoadMode::kData) {
    PMSTORE_CO_TRY_STATUS(co_await audit_data(files));
  } else if (!control_.stopped()) {
    PMSTORE_CO_TRY_STATUS(co_await audit_metadata(files));
  }
  co_return co_await remove_all(files, std::string(kFsLoadDirectory));
}

}  // namespace pmstore::tools
