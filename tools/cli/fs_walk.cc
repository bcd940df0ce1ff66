#include "tools/cli/fs_walk.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tools/cli/fs_session.h"

namespace pmstore::tools {

base::Task<fs::PosixResult<std::vector<WalkedFile>>> entries_of(fs::FileSystem& files,
                                                                const fs::Caller& caller,
                                                                fs::Ino directory,
                                                                const std::string& path) {
  constexpr uint32_t kPerMessage = 256;
  std::vector<WalkedFile> all;
  uint64_t cookie = 0;
  while (true) {
    auto page = co_await files.read_directory(caller, directory, cookie, kPerMessage, true);
    if (!page) co_return std::move(page.error());
    if (page->empty()) co_return all;
    for (fs::Namespace::Listed& listed : *page) {
      cookie = listed.entry.cookie;
      if (!listed.attributes) continue;
      all.push_back(
          {joined(path, listed.entry.name), directory, listed.entry.name, *listed.attributes});
    }
  }
}

base::Task<fs::PosixStatus> Walk::enter(const WalkedFile& directory) {
  auto entries = co_await entries_of(files_, caller_, directory.attributes.ino, directory.path);
  if (!entries) co_return std::move(entries.error());
  std::sort(entries->begin(), entries->end(),
            [](const WalkedFile& a, const WalkedFile& b) { return a.name > b.name; });
  std::move(entries->begin(), entries->end(), std::back_inserter(waiting_));
  co_return fs::PosixStatus{};
}

}  // namespace pmstore::tools
