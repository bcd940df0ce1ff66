#include "tools/cli/fs_walk.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

namespace pmstore::tools {

base::Task<fs::PosixResult<WalkedDirectory>> entries_of(fs::FileSystem& files,
                                                        const fs::Caller& caller, fs::Ino directory,
                                                        const std::string& path) {
  constexpr uint32_t kPerMessage = 256;
  WalkedDirectory all;
  uint64_t cookie = 0;
  while (true) {
    auto page = co_await files.read_directory(caller, directory, cookie, kPerMessage, true);
    if (!page) co_return std::move(page.error());
    if (page->empty()) co_return all;
    for (fs::Namespace::Listed& listed : *page) {
      cookie = listed.entry.cookie;
      const std::string& name = listed.entry.name;
      std::string full = joined(path, name);
      if (!listed.attributes) {
        const auto asked = co_await files.get_attributes(listed.entry.ino);
        if (asked) listed.attributes = *asked;
        const bool is_gone = !asked && asked.number() == ESTALE;
        if (!asked && !is_gone) all.unreadable.push_back({full, name, asked.error()});
      }
      if (!listed.attributes) continue;
      all.files.push_back({std::move(full), directory, name, *listed.attributes});
    }
  }
}

base::Task<std::vector<WalkedFile>> readable_entries(fs::FileSystem& files,
                                                     const fs::Caller& caller, fs::Ino directory,
                                                     const std::string& path, Failures& failures) {
  auto entries = co_await entries_of(files, caller, directory, path);
  if (!entries) {
    failures.add(path, entries.error());
    co_return std::vector<WalkedFile>();
  }
  for (const auto& entry : entries->unreadable) failures.add(entry.path, entry.why);
  co_return std::move(entries->files);
}

base::Task<void> Walk::enter(const WalkedFile& directory, Failures& failures) {
  auto entries = co_await readable_entries(files_, caller_, directory.attributes.ino,
                                           directory.path, failures);
  std::sort(entries.begin(), entries.end(),
            [](const WalkedFile& a, const WalkedFile& b) { return a.name > b.name; });
  std::move(entries.begin(), entries.end(), std::back_inserter(waiting_));
}

}  // namespace pmstore::tools
