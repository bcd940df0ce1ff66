#include "fs/internal/unsynced_files.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pmstore::fs::internal {

// What one step makes durable. Where it does not, also because its task is destroyed, the ranges
// are unsynced again.
class UnsyncedFiles::Step {
 public:
  explicit Step(std::shared_ptr<OfFile> file) : file_(std::move(file)) {
    PMSTORE_CHECK(!file_->persisting, "one step of a file runs at a time");
    file_->persisting = true;
    servers_ = file_->ranges.take();
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  ~Step() {
    for (const DirtyRanges::OfServer& dirty : servers_) file_->ranges.add(dirty);
    file_->persisting = false;
    file_->ended.notify_all();
  }
  const std::vector<DirtyRanges::OfServer>& servers() const { return servers_; }
  // Of the server with this number in the list.
  void end(size_t number, PersistOutcome outcome) {
    servers_[number].ranges.clear();
    if (outcome == PersistOutcome::kLost) ++file_->losses;
  }

 private:
  const std::shared_ptr<OfFile> file_;
  std::vector<DirtyRanges::OfServer> servers_;
};

bool UnsyncedFiles::add(Ino ino, const DataSessions& sessions,
                        const std::vector<MapExtent>& written) {
  std::shared_ptr<OfFile>& file = files_[ino];
  if (file == nullptr) file = std::make_shared<OfFile>(executor_);
  for (const MapExtent& piece : written) {
    const uint16_t server = piece.place.server;
    PMSTORE_CHECK(server < sessions.size() && sessions[server] != 0,
                  "what was written was written in a session");
    const uint64_t start = links_.start_of(server, sessions[server]);
    file->ranges.add(server, start, {piece.place.offset, piece.place.bytes});
  }
  return file->ranges.full();
}

base::Task<PosixStatus> UnsyncedFiles::persist(Ino ino) {
  const auto found = files_.find(ino);
  if (found == files_.end()) co_return PosixStatus{};
  const std::shared_ptr<OfFile> file = found->second;
  while (file->persisting) co_await file->ended.wait();
  if (file->ranges.empty()) co_return PosixStatus{};
  PosixStatus all;
  {
    Step step(file);
    const auto outcomes = co_await links_.persist(step.servers());
    PMSTORE_CHECK(outcomes.size() == step.servers().size(), "each server has an outcome");
    for (size_t i = 0; i < outcomes.size(); ++i) {
      if (outcomes[i]) {
        step.end(i, *outcomes[i]);
        if (*outcomes[i] == PersistOutcome::kLost && on_loss) on_loss(ino);
      } else {
        all = PosixError(outcomes[i].error());
      }
    }
  }
  // A file that has lost nothing needs no record.
  const auto again = files_.find(ino);
  const bool is_idle = !file->persisting && file->ranges.empty() && file->losses == 0;
  if (is_idle && again != files_.end() && again->second == file) files_.erase(again);
  co_return all;
}

std::set<Ino> UnsyncedFiles::files() const {
  std::set<Ino> all;
  for (const auto& [ino, file] : files_) {
    if (file->is_unsynced()) all.insert(ino);
  }
  return all;
}

bool UnsyncedFiles::any() const {
  return std::any_of(files_.begin(), files_.end(),
                     [](const auto& each) { return each.second->is_unsynced(); });
}

uint64_t UnsyncedFiles::losses(Ino ino) const {
  const auto found = files_.find(ino);
  return found == files_.end() ? 0 : found->second->losses;
}

}  // namespace pmstore::fs::internal
