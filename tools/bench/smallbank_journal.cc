#include "tools/bench/smallbank_journal.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace pmstore::tools::smallbank {

struct JournalHeader {
  uint64_t magic;
  uint64_t run;
  uint32_t clients;
  uint32_t coroutines;
};

// `current` says which of the two acknowledged entries counts, so that a kill between two stores
// never shows half an entry.
struct JournalEntry {
  LedgerEntry acknowledged[2];
  LedgerEntry attempted;
  std::atomic<uint64_t> current;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

namespace {

constexpr uint64_t kMagic = 0x314c4e4a4d4c4c53;  // "SLLMJNL1"

size_t size_for(uint32_t clients, uint32_t coroutines) {
  return sizeof(JournalHeader) + sizeof(JournalEntry) * clients * coroutines;
}

Error io_error(const std::string& path) {
  return make_error(ErrorCode::kIo, "journal '" + path + "': " + std::strerror(errno));
}

}  // namespace

Result<std::unique_ptr<Journal>> Journal::map(const std::string& path, int file, size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const Error failed = io_error(path);
  close(file);
  if (memory == MAP_FAILED) return failed;
  return std::unique_ptr<Journal>(new Journal(memory, bytes));
}

Result<std::unique_ptr<Journal>> Journal::create(const std::string& path, uint64_t run,
                                                 uint32_t clients, uint32_t coroutines) {
  const size_t bytes = size_for(clients, coroutines);
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0 && errno == EEXIST) {
    return make_error(ErrorCode::kAlreadyExists,
                      "journal '" + path +
                          "' exists: name a new file, or remove it; --audit-only compares with it");
  }
  if (file < 0) return io_error(path);
  if (ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    const Error failed = io_error(path);
    close(file);
    return failed;
  }
  PMSTORE_TRY(auto journal, map(path, file, bytes));
  journal->header().run = run;
  journal->header().clients = clients;
  journal->header().coroutines = coroutines;
  std::atomic_ref(journal->header().magic).store(kMagic, std::memory_order_release);
  return journal;
}

Result<std::unique_ptr<Journal>> Journal::open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return io_error(path);
  struct stat status;
  const bool readable = fstat(file, &status) == 0;
  const size_t bytes = readable ? static_cast<size_t>(status.st_size) : 0;
  const Error foreign = make_error(ErrorCode::kInvalidArgument,
                                   "'" + path + "' is not the journal of a SmallBank run");
  if (bytes < sizeof(JournalHeader)) {
    close(file);
    return foreign;
  }
  PMSTORE_TRY(auto journal, map(path, file, bytes));
  const JournalHeader& header = journal->header();
  if (header.magic != kMagic || bytes != size_for(header.clients, header.coroutines)) {
    return foreign;
  }
  return journal;
}

Journal::~Journal() { munmap(memory_, bytes_); }

JournalHeader& Journal::header() const { return *static_cast<JournalHeader*>(memory_); }
JournalEntry& Journal::entry(uint32_t client, uint32_t coroutine) const {
  auto* const entries = reinterpret_cast<JournalEntry*>(&header() + 1);
  return entries[client * header().coroutines + coroutine];
}

uint64_t Journal::run() const { return header().run; }
uint32_t Journal::clients() const { return header().clients; }
uint32_t Journal::coroutines() const { return header().coroutines; }

void Journal::note_attempted(uint32_t client, uint32_t coroutine, const LedgerEntry& next) {
  entry(client, coroutine).attempted = next;
  // The process may be killed at any point, so the stores must keep this order.
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

void Journal::note_acknowledged(uint32_t client, uint32_t coroutine, const LedgerEntry& next) {
  JournalEntry& mine = entry(client, coroutine);
  const uint64_t other = 1 - mine.current.load(std::memory_order_relaxed);
  mine.acknowledged[other] = next;
  mine.current.store(other, std::memory_order_release);
}

LedgerEntry Journal::acknowledged(uint32_t client, uint32_t coroutine) const {
  const JournalEntry& one = entry(client, coroutine);
  return one.acknowledged[one.current.load(std::memory_order_acquire) & 1];
}

LedgerEntry Journal::attempted(uint32_t client, uint32_t coroutine) const {
  return entry(client, coroutine).attempted;
}

}  // namespace pmstore::tools::smallbank
