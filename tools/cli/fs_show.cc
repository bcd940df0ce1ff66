// pmstore fs ls | stat | df
#include <fmt/format.h>

#include <algorithm>

#include "base/size_text.h"
#include "tools/cli/bytes_text.h"
#include "tools/cli/fs_session.h"
#include "tools/cli/fs_walk.h"
#include "tools/cli/text_table.h"

namespace pmstore::tools {
namespace {

// Prints files as they come; JSON is one object, so its entries are collected.
class Listing {
 public:
  Listing(FileSystem& files, const FsOptions& options) : files_(files), options_(options) {}

  base::Task<void> print(std::vector<WalkedFile> entries) {
    if (!options_.details || options_.session.json) {
      for (const WalkedFile& file : entries) print_name(file);
      co_return;
    }
    TextTable table(1, TextTable::LastColumn::kLeft);
    for (const WalkedFile& file : entries) {
      const fs::Attributes& is = file.attributes;
      std::string name = printable(file.name);
      if (is.type == fs::FileType::kSymlink) {
        const auto target = co_await files_.read_link(is.ino);
        if (target) name += " -> " + printable(*target);
      }
      table.row({mode_text(is), std::to_string(is.links), std::to_string(is.uid),
                 std::to_string(is.gid), std::to_string(is.size), time_text(is.mtime_ns), name});
    }
    print_text(table.text());
  }
  void headline(const std::string& path) {
    if (options_.session.json) return;
    print_text((any_ ? "\n" : "") + printable(path) + ":\n");
    any_ = true;
  }
  void end(uint64_t failures) {
    if (options_.session.json) print_json({{"entries", entries_}, {"failures", failures}});
  }

 private:
  void print_name(const WalkedFile& file) {
    if (options_.session.json) {
      entries_.push_back(attributes_json(file.path, file.attributes));
    } else {
      print_text(printable(file.name) + "\n");
    }
  }
  FileSystem& files_;
  const FsOptions& options_;
  bool any_ = false;
  nlohmann::ordered_json entries_ = nlohmann::ordered_json::array();
};

base::Task<void> list_tree(FileSystem& files, const FsOptions& options, WalkedFile root,
                           bool headlines, Listing& listing, Failures& failures) {
  const fs::Caller caller = caller_of_process();
  std::vector<WalkedFile> waiting;
  waiting.push_back(std::move(root));
  while (!waiting.empty()) {
    const WalkedFile directory = std::move(waiting.back());
    waiting.pop_back();
    auto entries = co_await entries_of(files, caller, directory.attributes.ino, directory.path);
    if (!entries) {
      failures.add(directory.path, entries.error());
      continue;
    }
    for (const auto& entry : entries->unreadable) failures.add(entry.path, entry.why);
    std::vector<WalkedFile>& inside = entries->files;
    std::sort(inside.begin(), inside.end(),
              [](const WalkedFile& a, const WalkedFile& b) { return a.name < b.name; });
    if (options.recursive) {
      for (auto file = inside.rbegin(); file != inside.rend(); ++file) {
        if (file->attributes.type == fs::FileType::kDirectory) waiting.push_back(*file);
      }
    }
    if (headlines || options.recursive) listing.headline(directory.path);
    co_await listing.print(std::move(inside));
  }
}

}  // namespace

base::Task<int> list_files(FileSystem& files, const FsOptions& options) {
  Failures failures("fs ls");
  Listing listing(files, options);
  std::vector<WalkedFile> plain;
  std::vector<WalkedFile> directories;
  const std::vector<std::string> paths =
      options.paths.empty() ? std::vector<std::string>{"/"} : options.paths;
  for (const std::string& given : paths) {
    const std::string path = absolute(given);
    auto found = co_await files.stat(path, !options.details);
    if (!found) {
      failures.add(path, found.error());
      continue;
    }
    const bool is_directory = found->type == fs::FileType::kDirectory;
    (is_directory ? directories : plain).push_back({path, {}, given, *found});
  }
  co_await listing.print(std::move(plain));
  for (WalkedFile& directory : directories) {
    co_await list_tree(files, options, std::move(directory), paths.size() > 1, listing, failures);
  }
  listing.end(failures.count());
  co_return failures.status();
}

base::Task<int> show_status(FileSystem& files, const FsOptions& options) {
  Failures failures("fs stat");
  auto all = nlohmann::ordered_json::array();
  for (const std::string& given : options.paths) {
    const std::string path = absolute(given);
    const auto found = co_await files.stat(path, options.follow);
    if (!found) {
      failures.add(path, found.error());
      continue;
    }
    auto json = attributes_json(path, *found);
    if (found->type == fs::FileType::kSymlink) {
      const auto target = co_await files.read_link(found->ino);
      if (target) json["target"] = json_bytes(*target);
    }
    if (options.session.json) {
      all.push_back(std::move(json));
      continue;
    }
    TextTable table(2);
    table.row({"path", printable(path)});
    if (json.contains("target")) table.row({"target", json["target"].dump()});
    table.row({"type", std::string(type_name(found->type))});
    table.row({"inode", std::to_string(raw(found->ino))});
    table.row({"mode", mode_text(*found) + fmt::format(" ({:04o})", found->mode)});
    table.row({"owner", fmt::format("uid {}, gid {}", found->uid, found->gid)});
    table.row({"links", std::to_string(found->links)});
    table.row({"size", base::size_text(found->size)});
    table.row(
        {"allocated", found->is_inline ? "in the inode" : base::size_text(found->data_bytes)});
    table.row({"modified", time_text(found->mtime_ns)});
    table.row({"changed", time_text(found->ctime_ns)});
    table.row({"created", time_text(found->created_ns)});
    print_text(table.text());
  }
  if (options.session.json) print_json({{"files", all}, {"failures", failures.count()}});
  co_return failures.status();
}

base::Task<int> show_usage(FileSystem& files, const FsOptions& options) {
  const auto usage = co_await files.usage();
  if (!usage) co_return fail(kProgram, "fs df", posix_text(usage.error()));
  const uint64_t used = usage->data_bytes - usage->free_bytes - usage->quarantined_bytes;
  if (options.session.json) {
    print_json({{"identity", fmt::format("{:016x}", files.identity())},
                {"data_bytes", usage->data_bytes},
                {"used_bytes", used},
                {"free_bytes", usage->free_bytes},
                {"growable_bytes", usage->growable_bytes},
                {"quarantined_bytes", usage->quarantined_bytes},
                {"inodes", usage->inodes},
                {"max_inodes", usage->max_inodes}});
    co_return kDone;
  }
  TextTable table(2);
  table.row({"room for data", base::size_text(usage->data_bytes)});
  table.row({"used", base::size_text(used)});
  table.row({"free", fmt::format("{}, {} of it still to be taken from the pool",
                                 base::size_text(usage->free_bytes),
                                 base::size_text(usage->growable_bytes))});
  table.row({"being cleaned", base::size_text(usage->quarantined_bytes)});
  table.row({"inodes", usage->max_inodes == 0
                           ? std::to_string(usage->inodes)
                           : fmt::format("{} of {}", usage->inodes, usage->max_inodes)});
  print_text(table.text());
  co_return kDone;
}

}  // namespace pmstore::tools
