// MemorySpace: a DataSpace in the memory of a test. It checks what every DataSpace may ask of the
// namespace: free units are zero, nothing is given back that was written to, and a range is
// released once, zero, after its generation has changed.
//
// The bytes survive a restart; restart() forgets what is allocated, as a crash of the server does.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/executor.h"
#include "fs/data_space.h"

namespace pmstore::fs {

class MemorySpace final : public DataSpace {
 public:
  explicit MemorySpace(uint64_t bytes, uint16_t servers = 1)
      : bytes_(bytes), servers_(servers, Server(bytes)) {
    PMSTORE_CHECK(bytes % kUnitBytes == 0, "an area has whole units");
  }

  void restart() {
    for (Server& server : servers_) {
      std::fill(server.used.begin(), server.used.end(), false);
      for (uint64_t& generation : server.generations) ++generation;
    }
  }
  // Called before each step, and before what it changes.
  enum class Step : uint8_t { kWrite, kZero, kWords, kRetire, kClean, kRelease };
  std::function<void(Step, const AreaRange&)> on_step;
  // The next calls of a kind fail with Io.
  int failing_writes = 0;
  int failing_zeros = 0;
  int failing_words = 0;
  int failing_cleans = 0;
  // So many allocations, then it is full.
  int allocations_left = -1;
  // So long they take, by the clock of this executor.
  base::Executor* executor = nullptr;
  uint64_t zero_ns = 0;
  uint64_t words_ns = 0;
  // Ranges on this side of an offset cannot be cleaned.
  uint64_t uncleanable_below = 0;
  // Whether all that is not allocated is zero.
  bool free_is_zero() const {
    for (const Server& server : servers_) {
      for (size_t unit = 0; unit < server.used.size(); ++unit) {
        if (!server.used[unit] && !is_zero(server, unit * kUnitBytes, kUnitBytes)) return false;
      }
    }
    return true;
  }
  // Of the first server, as check_namespace() has them.
  std::vector<AreaRange> sections() const { return {{0, 0, bytes_}}; }
  uint64_t used_bytes() const { return total_bytes() - free_bytes(); }
  // Any bytes, as a client that has an old map may leave them.
  std::span<std::byte> bytes_of(const AreaRange& range) {
    return {servers_[range.server].bytes.data() + range.offset, range.bytes};
  }
  uint64_t cleans() const { return cleans_; }
  // One of several servers, which takes no new data from now on.
  void drain(uint16_t server) {
    PMSTORE_CHECK(servers() > 1 && server < servers(), "another one is left");
    drained_ = server;
  }

  uint16_t servers() const override { return static_cast<uint16_t>(servers_.size()); }
  uint16_t takers() const override { return static_cast<uint16_t>(servers() - (drained_ ? 1 : 0)); }
  uint16_t taker(uint64_t number) const override {
    const auto taker = static_cast<uint16_t>(number % takers());
    return drained_ && taker >= *drained_ ? static_cast<uint16_t>(taker + 1) : taker;
  }
  uint64_t total_bytes() const override { return bytes_ * servers_.size(); }
  uint64_t free_bytes() const override {
    uint64_t units = 0;
    for (const Server& server : servers_) {
      units += static_cast<uint64_t>(std::count(server.used.begin(), server.used.end(), false));
    }
    return units * kUnitBytes;
  }

  Status claim(const AreaRange& range) override {
    if (range.server >= servers_.size() || range.offset + range.bytes > bytes_) {
      return make_error(ErrorCode::kDamaged, "a range lies outside of the area");
    }
    Server& server = servers_[range.server];
    for (uint64_t unit = first(range); unit < last(range); ++unit) {
      if (server.used[unit]) return make_error(ErrorCode::kDamaged, "a range is claimed twice");
      server.used[unit] = true;
    }
    return {};
  }
  Result<AreaRange> allocate(uint16_t server, uint64_t least, uint64_t most) override {
    PMSTORE_CHECK(least % kUnitBytes == 0 && most % kUnitBytes == 0 && least > 0 && least <= most,
                  "whole units are allocated");
    if (allocations_left == 0) return make_error(ErrorCode::kFull, "a test wants it");
    if (allocations_left > 0) --allocations_left;
    std::vector<bool>& used = servers_[server].used;
    size_t at = 0;
    while (at < used.size()) {
      if (used[at]) {
        ++at;
        continue;
      }
      size_t end = at;
      while (end < used.size() && !used[end] && (end - at) * kUnitBytes < most) ++end;
      if ((end - at) * kUnitBytes >= least) {
        for (size_t unit = at; unit < end; ++unit) used[unit] = true;
        const AreaRange range{server, at * kUnitBytes, (end - at) * kUnitBytes};
        PMSTORE_CHECK(is_zero(servers_[server], range.offset, range.bytes), "free units are zero");
        return range;
      }
      at = end;
    }
    return make_error(ErrorCode::kFull, "the file area is full; delete files");
  }
  std::optional<AreaRange> take_unclean(uint16_t server) override {
    std::vector<bool>& used = servers_[server].used;
    const auto first = std::find(used.begin(), used.end(), false);
    if (first == used.end()) return std::nullopt;
    const auto end = std::find(first, used.end(), true);
    std::fill(first, end, true);
    return AreaRange{server, static_cast<uint64_t>(first - used.begin()) * kUnitBytes,
                     static_cast<uint64_t>(end - first) * kUnitBytes};
  }
  void give_back(const AreaRange& range) override { set_free(range); }

  uint64_t generation(const AreaRange& range) const override {
    return servers_[range.server].generations[first(range)];
  }
  base::Task<Status> change_generations(std::vector<AreaRange> ranges) override {
    for (const AreaRange& range : ranges) tell(Step::kWords, range);
    if (words_ns > 0) co_await executor->sleep_for(words_ns);
    if (fails(failing_words)) co_return make_error(ErrorCode::kIo, "a test wants it");
    for (const AreaRange& range : ranges) {
      PMSTORE_CHECK(servers_[range.server].used[first(range)], "what changes was allocated");
      ++servers_[range.server].generations[first(range)];
    }
    co_return Status{};
  }

  base::Task<Status> write(AreaRange range, std::span<const std::byte> bytes) override {
    check_used(range);
    PMSTORE_CHECK(bytes.size() == range.bytes, "as many bytes as their place");
    tell(Step::kWrite, range);
    if (fails(failing_writes)) co_return make_error(ErrorCode::kIo, "a test wants it");
    std::copy(bytes.begin(), bytes.end(), bytes_of(range).begin());
    co_return Status{};
  }
  base::Task<Status> zero(AreaRange range) override {
    check_used(range);
    tell(Step::kZero, range);
    if (fails(failing_zeros)) co_return make_error(ErrorCode::kIo, "a test wants it");
    if (zero_ns > 0) co_await executor->sleep_for(zero_ns);
    fill_zero(range);
    co_return Status{};
  }
  base::Task<Status> read(AreaRange range, std::span<std::byte> into) override {
    check_used(range);
    const auto bytes = bytes_of(range);
    std::copy(bytes.begin(), bytes.end(), into.begin());
    co_return Status{};
  }

  void retire(const AreaRange& range) override { tell(Step::kRetire, range); }
  base::Task<Status> clean(AreaRange range) override {
    check_used(range);
    tell(Step::kClean, range);
    if (range.offset < uncleanable_below || fails(failing_cleans)) {
      co_return make_error(ErrorCode::kIo, "a test wants it");
    }
    fill_zero(range);
    ++cleans_;
    co_return Status{};
  }
  void release(const AreaRange& range) override {
    tell(Step::kRelease, range);
    set_free(range);
  }

 private:
  struct Server {
    explicit Server(uint64_t size)
        : bytes(size), used(size / kUnitBytes), generations(size / kUnitBytes, 1) {}
    std::vector<std::byte> bytes;
    std::vector<bool> used;
    std::vector<uint64_t> generations;
  };

  static uint64_t first(const AreaRange& range) { return range.offset / kUnitBytes; }
  static uint64_t last(const AreaRange& range) {
    return (range.offset + range.bytes + kUnitBytes - 1) / kUnitBytes;
  }
  static bool is_zero(const Server& server, uint64_t offset, uint64_t bytes) {
    const std::byte* at = server.bytes.data() + offset;
    return at[0] == std::byte{0} && std::memcmp(at, at + 1, bytes - 1) == 0;
  }
  void check_used(const AreaRange& range) const {
    PMSTORE_CHECK(
        range.server < servers_.size() && range.bytes > 0 && range.offset + range.bytes <= bytes_,
        "a range lies in the area");
    for (uint64_t unit = first(range); unit < last(range); ++unit) {
      PMSTORE_CHECK(servers_[range.server].used[unit], "only allocated units are touched");
    }
  }
  void set_free(const AreaRange& range) {
    check_used(range);
    Server& server = servers_[range.server];
    PMSTORE_CHECK(is_zero(server, range.offset, range.bytes), "what is released is zero");
    for (uint64_t unit = first(range); unit < last(range); ++unit) server.used[unit] = false;
  }
  void tell(Step step, const AreaRange& range) const {
    if (on_step) on_step(step, range);
  }
  static bool fails(int& times) { return times > 0 && times-- > 0; }
  void fill_zero(const AreaRange& range) {
    const auto bytes = bytes_of(range);
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
  }

  const uint64_t bytes_;
  std::vector<Server> servers_;
  uint64_t cleans_ = 0;
  std::optional<uint16_t> drained_;
};

}  // namespace pmstore::fs
