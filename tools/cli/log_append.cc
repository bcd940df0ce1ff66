// pmstore log append
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "log/log_producer.h"
#include "tools/cli/bytes_text.h"
#include "tools/cli/log_session.h"

namespace pmstore::tools {
namespace {

constexpr uint64_t kLookAgainNs = 200'000;
constexpr size_t kReadBytes = 256u << 10;

// Entries from the command line or from standard input, as many at a time as are there. While none
// is, the executor goes on: leases are kept.
class EntryInput {
 public:
  EntryInput(base::Executor& executor, const LogCommandOptions& options)
      : executor_(executor),
        splitter_(options.has_payload ? Framing::kWhole : options.parsed_framing()),
        batch_(options.batch) {
    if (!options.has_payload) return;
    splitter_.feed(options.payload);
    end();
  }

  // Empty at the end. Entries before an error are given first.
  base::Task<Result<std::vector<std::string>>> next() {
    std::vector<std::string> entries;
    if (wrong_) co_return *wrong_;
    while (entries.size() < batch_) {
      auto entry = splitter_.next();
      if (!entry) {
        wrong_ = std::move(entry.error());
        if (entries.empty()) co_return *wrong_;
        break;
      }
      if (*entry) {
        entries.push_back(std::move(**entry));
        continue;
      }
      if (ended_ || !entries.empty()) break;
      const Status read = co_await read_more();
      if (!read) co_return read.error();
    }
    co_return entries;
  }

 private:
  void end() {
    ended_ = true;
    splitter_.finish();
  }

  base::Task<Status> read_more() {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    while (poll(&input, 1, 0) == 0) co_await executor_.sleep_for(kLookAgainNs);
    room_.resize(kReadBytes);
    const ssize_t got = read(STDIN_FILENO, room_.data(), room_.size());
    if (got < 0 && errno != EINTR && errno != EAGAIN) {
      co_return make_error(ErrorCode::kIo,
                           std::string("cannot read standard input: ") + std::strerror(errno));
    }
    if (got == 0) end();
    if (got > 0) splitter_.feed({room_.data(), static_cast<size_t>(got)});
    co_return Status{};
  }

  base::Executor& executor_;
  EntrySplitter splitter_;
  size_t batch_;
  bool ended_ = false;
  std::optional<Error> wrong_;  // what next() ends with
  std::string room_;
};

struct Progress {
  uint64_t entries = 0;
  uint64_t payload_bytes = 0;
  log::Appended first;
  log::Appended last;
};

// Appends until the input ends. `progress` counts the acknowledged entries, also after a failure.
template <typename Append>
base::Task<Status> append_all(EntryInput& input, Append append, Progress& progress) {
  while (true) {
    PMSTORE_CO_TRY(const auto entries, co_await input.next());
    if (entries.empty()) co_return Status{};
    std::vector<std::span<const std::byte>> payloads;
    for (const std::string& entry : entries) payloads.push_back(std::as_bytes(std::span(entry)));
    PMSTORE_CO_TRY(const log::Appended last, co_await append(payloads));
    if (progress.entries == 0) progress.first.index = last.index + 1 - entries.size();
    progress.entries += entries.size();
    for (const std::string& entry : entries) progress.payload_bytes += entry.size();
    progress.last = last;
  }
}

base::Task<Result<log::LogInfo>> open_or_create(log::LogClient& client,
                                                const LogCommandOptions& options) {
  auto info = co_await open_single(client, options);
  if (info || info.code() != ErrorCode::kNotFound || !options.create) co_return info;
  auto made = co_await client.create(options.name, options.log_options());
  if (made || made.code() != ErrorCode::kAlreadyExists) co_return made;
  co_return co_await open_single(client, options);  // somebody else was faster
}

base::Task<Status> append_exclusively(log::LogClient& client, uint64_t id,
                                      const LogCommandOptions& options, EntryInput& input,
                                      Progress& progress) {
  log::LogProducerOptions producing;
  producing.takeover = options.steal ? log::Takeover::kSteal : log::Takeover::kIfFree;
  PMSTORE_CO_TRY(const auto producer, co_await log::LogProducer::open(client, id, producing));
  const Status appended = co_await append_all(
      input, [&](const auto& payloads) { return producer->append_batch(payloads); }, progress);
  if (!appended) co_return appended.error();
  co_return co_await producer->close();
}

base::Task<Result<std::unique_ptr<log::ReplicatedLog>>> open_or_create_replicas(
    base::Executor& executor, const LogCommandOptions& options) {
  const auto how = replicated_options(options);
  auto opened = co_await log::ReplicatedLog::open(executor, options.name, options.replicas, how);
  if (opened || opened.code() != ErrorCode::kNotFound || !options.create) co_return opened;
  const Status made = co_await log::ReplicatedLog::create(
      executor, options.name, options.log_options(), options.replicas, how);
  if (!made && made.code() != ErrorCode::kAlreadyExists) co_return made.error();
  co_return co_await log::ReplicatedLog::open(executor, options.name, options.replicas, how);
}

void report(const LogCommandOptions& options, const Progress& progress) {
  if (options.session.json) {
    print_json({{"log", options.name},
                {"entries", progress.entries},
                {"payload_bytes", progress.payload_bytes},
                {"first_index", progress.entries > 0 ? progress.first.index : 0},
                {"last_index", progress.last.index},
                {"last_lsn", progress.last.lsn},
                {"next_lsn", progress.last.next_lsn}});
  } else if (progress.entries == 0) {
    print_text("appended nothing: the input was empty\n");
  } else {
    const std::string what = progress.entries == 1
                                 ? fmt::format("1 entry, index {}", progress.last.index)
                                 : fmt::format("{} entries, index {} to {}", progress.entries,
                                               progress.first.index, progress.last.index);
    print_text(fmt::format("appended {}; the next lsn is {}\n", what, progress.last.next_lsn));
  }
}

}  // namespace

base::Task<int> append_to_replicas(base::Executor& executor, const LogCommandOptions& options) {
  const std::string what = what_of("append", options);
  auto log = co_await open_or_create_replicas(executor, options);
  if (!log) {
    co_return fail(kProgram, what, log.error().message + advice(log.error(), options));
  }
  EntryInput input(executor, options);
  Progress progress;
  Status done = co_await append_all(
      input, [&](const auto& payloads) { return (*log)->append_batch(payloads); }, progress);
  if (done) done = co_await (*log)->close();
  if (done || progress.entries > 0) report(options, progress);
  if (done) co_return kDone;
  co_return fail(
      kProgram, what,
      fmt::format("{}; {} entries before it are durable on every replica{}", why_text(done.error()),
                  progress.entries, advice(done.error(), options)));
}

base::Task<int> append_to_log(log::LogClient& client, const LogCommandOptions& options) {
  const std::string what = what_of("append", options);
  const auto info = co_await open_or_create(client, options);
  if (!info) co_return fail(kProgram, what, info.error());
  EntryInput input(client.executor(), options);
  Progress progress;
  Status done;
  if (options.exclusive) {
    done = co_await append_exclusively(client, info->id, options, input, progress);
  } else {
    done = co_await append_all(
        input, [&](const auto& payloads) { return client.append_batch(info->id, payloads); },
        progress);
  }
  if (done || progress.entries > 0) report(options, progress);
  if (done) co_return kDone;
  co_return fail(kProgram, what,
                 fmt::format("{}; {} entries before it are durable", why_text(done.error()),
                             progress.entries));
}

}  // namespace pmstore::tools
