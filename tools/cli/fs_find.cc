// pmstore fs find | du
#include <fmt/format.h>
#include <fnmatch.h>

#include <unordered_set>

#include "tools/cli/bytes_text.h"
#include "tools/cli/fs_session.h"
#include "tools/cli/fs_walk.h"

namespace pmstore::tools {
namespace {

// Where a walk begins.
base::Task<fs::PosixResult<WalkedFile>> start_at(FileSystem& files, const std::string& given) {
  const std::string path = absolute(given);
  auto found = co_await files.stat(path, false);
  if (!found) co_return std::move(found.error());
  co_return WalkedFile{path, {}, last_name(path), *found};
}

bool matches(const WalkedFile& file, const FsOptions& options) {
  if (!options.type.empty() && type_letter(file.attributes.type) != options.type[0]) return false;
  return options.name.empty() || fnmatch(options.name.c_str(), file.name.c_str(), 0) == 0;
}

std::vector<std::string> paths_of(const FsOptions& options) {
  return options.paths.empty() ? std::vector<std::string>{"/"} : options.paths;
}

struct Sum {
  uint64_t files = 0;
  uint64_t directories = 0;
  uint64_t size_bytes = 0;
  uint64_t data_bytes = 0;
};

// A file with several names counts once.
class Summing {
 public:
  void add(const fs::Attributes& is) {
    if (is.type == fs::FileType::kDirectory) {
      ++sum_.directories;
      return;
    }
    if (is.links > 1 && !seen_.insert(raw(is.ino)).second) return;
    ++sum_.files;
    sum_.size_bytes += is.size;
    sum_.data_bytes += is.data_bytes;
  }
  const Sum& sum() const { return sum_; }

 private:
  Sum sum_;
  std::unordered_set<uint64_t> seen_;
};

base::Task<Sum> sum_tree(FileSystem& files, WalkedFile root, Failures& failures) {
  Summing summing;
  Walk walk(files, caller_of_process(), std::move(root));
  while (!walk.done()) {
    const WalkedFile file = walk.next();
    summing.add(file.attributes);
    if (file.attributes.type != fs::FileType::kDirectory) continue;
    co_await walk.enter(file, failures);
  }
  co_return summing.sum();
}

}  // namespace

base::Task<int> find_files(FileSystem& files, const FsOptions& options) {
  Failures failures("fs find");
  auto found = nlohmann::ordered_json::array();
  for (const std::string& path : paths_of(options)) {
    auto root = co_await start_at(files, path);
    if (!root) {
      failures.add(absolute(path), root.error());
      continue;
    }
    Walk walk(files, caller_of_process(), std::move(*root));
    while (!walk.done() && std::ferror(stdout) == 0) {
      const WalkedFile file = walk.next();
      if (matches(file, options)) {
        if (options.session.json) {
          found.push_back(attributes_json(file.path, file.attributes));
        } else if (options.zero_ends) {
          print_text(file.path + '\0');
        } else {
          print_text(printable(file.path) + "\n");
        }
      }
      if (file.attributes.type != fs::FileType::kDirectory) continue;
      co_await walk.enter(file, failures);
    }
  }
  if (options.session.json) print_json({{"entries", found}, {"failures", failures.count()}});
  co_return failures.status();
}

base::Task<int> sum_usage(FileSystem& files, const FsOptions& options) {
  Failures failures("fs du");
  auto sums = nlohmann::ordered_json::array();
  for (const std::string& given : paths_of(options)) {
    auto root = co_await start_at(files, given);
    if (!root) {
      failures.add(absolute(given), root.error());
      continue;
    }
    std::vector<WalkedFile> roots;
    if (!options.summary && root->attributes.type == fs::FileType::kDirectory) {
      auto entries =
          co_await entries_of(files, caller_of_process(), root->attributes.ino, root->path);
      if (!entries) {
        failures.add(root->path, entries.error());
        continue;
      }
      roots = std::move(entries->files);  // the sum of the root names those that are damaged
    }
    roots.push_back(std::move(*root));
    for (WalkedFile& one : roots) {
      const std::string path = one.path;
      const Sum sum = co_await sum_tree(files, std::move(one), failures);
      if (options.session.json) {
        sums.push_back({{"path", json_bytes(path)},
                        {"files", sum.files},
                        {"directories", sum.directories},
                        {"size_bytes", sum.size_bytes},
                        {"data_bytes", sum.data_bytes}});
      } else {
        print_text(fmt::format("{}\t{}\t{}\n", sum.data_bytes, sum.size_bytes, printable(path)));
      }
    }
  }
  if (options.session.json) print_json({{"sums", sums}, {"failures", failures.count()}});
  co_return failures.status();
}

}  // namespace pmstore::tools
