#include "tests/crash/file_worlds.h"

#include <algorithm>
#include <deque>

#include "base/check.h"

namespace pmstore::crash {
namespace {

void apply(const FileChange& change, FileContents& contents) {
  std::string& content = contents.at(change.file);
  if (change.kind == FileChange::Kind::kTruncate) {
    content.resize(change.offset);
    return;
  }
  const bool appends = change.kind == FileChange::Kind::kAppend;
  const uint64_t at = appends ? content.size() : change.offset;
  content.resize(std::max<uint64_t>(content.size(), at + change.data.size()));
  content.replace(at, change.data.size(), change.data);
}

}  // namespace

uint64_t FileWorlds::begin(FileChange change) {
  under_way_.emplace(++last_, std::move(change));
  close();
  return last_;
}

void FileWorlds::close() {
  std::deque<World> open(worlds_.begin(), worlds_.end());
  while (!open.empty()) {
    const World world = std::move(open.front());
    open.pop_front();
    for (const auto& [number, change] : under_way_) {
      if (world.second.contains(number)) continue;
      World next = world;
      apply(change, next.first);
      next.second.insert(number);
      if (worlds_.insert(next).second) open.push_back(std::move(next));
    }
  }
}

void FileWorlds::acknowledged(uint64_t number) {
  PMSTORE_CHECK(under_way_.erase(number) == 1, "a change is acknowledged once");
  std::set<World> left;
  for (const auto& [contents, happened] : worlds_) {
    if (!happened.contains(number)) continue;
    World world{contents, happened};
    world.second.erase(number);
    left.insert(std::move(world));
  }
  worlds_ = std::move(left);
  PMSTORE_CHECK(!worlds_.empty(), "each change may happen");
}

bool FileWorlds::settle(const FileContents& found) {
  const bool is_one = std::any_of(worlds_.begin(), worlds_.end(),
                                  [&](const World& world) { return world.first == found; });
  under_way_.clear();
  worlds_ = {{found, {}}};
  return is_one;
}

std::vector<FileContents> FileWorlds::contents() const {
  std::vector<FileContents> all;
  for (const auto& [contents, happened] : worlds_) {
    if (std::find(all.begin(), all.end(), contents) == all.end()) all.push_back(contents);
  }
  return all;
}

}  // namespace pmstore::crash
