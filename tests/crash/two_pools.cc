#include "tests/crash/two_pools.h"

#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/checksum.h"
#include "fs/file_area.h"
#include "persist/pool_layout.h"
#include "pmstore/layout/slab_layout.h"
#include "tests/crash/files_process.h"

namespace pmstore::crash {
namespace {

constexpr uint64_t kShardLogBytes = 64 << 10;
constexpr uint64_t kAreaBytes = FormatOptions::kLeastFileBytes;

constexpr uint64_t bytes_of_pool(uint64_t chunks) {
  return persist::round_up(persist::kPoolLayoutBytes + kShardLogBytes +
                               chunks * internal::kChunkBytes + kAreaBytes + 8192,
                           4096);
}
constexpr uint64_t kNamesChunks = 14;
constexpr uint64_t kOtherChunks = 4;

void format_files(persist::Pool& pool, uint64_t identity) {
  FormatOptions options{.rings = 0, .identity = identity, .log_bytes = 0};
  options.shard_log_bytes = kShardLogBytes;
  options.file_bytes = kAreaBytes;
  const Status done = fs::format_pool(pool, options);
  PMSTORE_CHECK(done.has_value(), done ? "" : done.error().message.c_str());
}

class RestartedMoves final : public Restarted {
 public:
  explicit RestartedMoves(TwoPools pools) : pools_(std::move(pools)) {}
  std::vector<persist::Memory*> memories() override { return pools_.memories(); }
  Result<uint64_t> recover() override {
    PMSTORE_TRY(process_, FilesProcess::open(*pools_.names, pools_.other.get()));
    PMSTORE_TRY(const std::string content, process_->content());
    PMSTORE_TRY_STATUS(process_->check());
    return TwoPools::digest_of(content);
  }
  uint64_t start_number() const override { return process_ ? process_->start_number() : 0; }
  Result<uint64_t> work() override {
    PMSTORE_TRY(const std::string before, process_->content());
    if (const auto drained = process_->drained()) {
      const auto moved = process_->run(process_->names().move_off(*drained));
      if (!moved) return make_error(ErrorCode::kDamaged, moved.error().to_string());
      PMSTORE_TRY_STATUS(process_->check());
      if (process_->used_bytes(*drained) != 0) {
        return make_error(ErrorCode::kDamaged, "a server that was drained still has something");
      }
    }
    PMSTORE_TRY(const std::string after, process_->content());
    if (before != after) return make_error(ErrorCode::kDamaged, "a move has changed a file");
    const auto made = process_->run(process_->names().make({}, fs::kRootIno, "later", {}));
    if (!made && made.number() != EEXIST) {
      return make_error(ErrorCode::kDamaged, made.error().to_string());
    }
    PMSTORE_TRY(const std::string content, process_->content());
    return TwoPools::digest_of(content);
  }

 private:
  TwoPools pools_;
  std::unique_ptr<FilesProcess> process_;
};

}  // namespace

const uint64_t TwoPools::kNamesBytes = bytes_of_pool(kNamesChunks);
const uint64_t TwoPools::kBytes = bytes_of_pool(kNamesChunks) + bytes_of_pool(kOtherChunks);

Result<TwoPools> TwoPools::in(std::span<std::byte> memory, persist::Domain domain, bool is_new) {
  TwoPools pools;
  PMSTORE_TRY(pools.names, persist::Pool::in_region(memory.first(kNamesBytes), domain, is_new));
  PMSTORE_TRY(pools.other, persist::Pool::in_region(memory.subspan(kNamesBytes), domain, is_new));
  return pools;
}

TwoPools TwoPools::make(std::span<std::byte> memory, persist::Domain domain, uint64_t identity) {
  auto pools = in(memory, domain, true);
  PMSTORE_CHECK(pools.has_value(), pools ? "" : pools.error().message.c_str());
  format_files(*pools->names, identity);
  format_files(*pools->other, identity + 1);
  return std::move(*pools);
}

uint64_t TwoPools::digest_of(const std::string& content) {
  return base::checksum64(std::as_bytes(std::span(content.data(), content.size())), 1);
}

std::unique_ptr<Restarted> restarted_files(TwoPools pools) {
  return std::make_unique<RestartedMoves>(std::move(pools));
}

}  // namespace pmstore::crash
