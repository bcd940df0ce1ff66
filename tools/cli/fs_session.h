// One subcommand of fs: connect, do it, say goodbye. And what its parts share.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "fs/file_system.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/session_options.h"

namespace pmstore::tools {

struct FsOptions {
  SessionOptions session;
  // In the order of the command line; the last one is where to, if the command has that.
  std::vector<std::string> paths;
  bool recursive = false;
  bool details = false;      // ls -l
  bool parents = false;      // mkdir -p
  bool force = false;        // rm -f
  bool follow = false;       // stat -L
  bool symbolic = false;     // ln -s
  bool no_replace = false;   // mv -n
  bool exchange = false;     // mv --exchange
  bool summary = false;      // du -s
  bool preserve = false;     // cp -p
  bool repair = false;       // check
  bool zero_ends = false;    // find -0
  bool undo = false;         // data drain
  bool wait = false;         // likewise
  uint32_t patience_s = 60;  // likewise: so long --wait goes on without any progress
  std::string data_uri;      // data add
  uint16_t data_server = 0;  // data drain: its index
  std::string mode;          // mkdir; empty: all that the umask leaves
  std::string name;          // find: a pattern of the shell
  std::string type;          // find: f, d, l and so on; empty: all
};

using fs::FileSystem;
using fs::PosixError;

// Who runs this program.
fs::Caller caller_of_process();
fs::FileSystemOptions file_system_options(const SessionOptions& session);

// What the umask of this process leaves of `mode`.
uint16_t masked(uint16_t mode);

// "a/b//c/" becomes "/a/b/c"; nothing becomes "/".
std::string absolute(std::string_view path);
std::string joined(const std::string& folder, std::string_view name);
// The last name of an absolute path; "" of "/".
std::string last_name(const std::string& path);

// The message, or what the errno means.
std::string posix_text(const PosixError& error);

// What failed in a command that goes on: a line for each, until there are too many.
class Failures {
 public:
  explicit Failures(std::string what) : what_(std::move(what)) {}
  void add(std::string_view path, const PosixError& why);
  void add(std::string_view path, std::string_view why);
  uint64_t count() const { return count_; }
  // The exit status; says how many there were if not all of them were said.
  int status() const;

 private:
  static constexpr uint64_t kMostLines = 20;
  std::string what_;
  uint64_t count_ = 0;
};

// "regular", "directory" and so on; "f", "d" and so on, as find(1) and ls(1) have them.
std::string_view type_name(fs::FileType type);
char type_letter(fs::FileType type);
// "drwxr-xr-x"
std::string mode_text(const fs::Attributes& attributes);
// Local time, to the minute.
std::string time_text(uint64_t time_ns);
nlohmann::ordered_json attributes_json(std::string_view path, const fs::Attributes& attributes);

// Connects and runs `body(FileSystem&, const FsOptions&) -> Task<int>`, whose int is the exit
// status.
template <typename Body>
int with_file_system(const FsOptions& options, std::string_view what, Body body) {
  base::RealClock clock;
  base::Executor executor(clock);
  auto files = executor.run(FileSystem::connect(executor, options.session.parsed_uri(),
                                                file_system_options(options.session)));
  if (!files) return fail(kProgram, what, files.error());
  const int status = executor.run(body(**files, options));
  executor.run((*files)->close());
  return status;
}

// The bodies of the subcommands.
base::Task<int> list_files(FileSystem& files, const FsOptions& options);  // fs_show.cc
base::Task<int> show_status(FileSystem& files, const FsOptions& options);
base::Task<int> show_usage(FileSystem& files, const FsOptions& options);
base::Task<int> find_files(FileSystem& files, const FsOptions& options);  // fs_find.cc
base::Task<int> sum_usage(FileSystem& files, const FsOptions& options);
base::Task<int> make_directories(FileSystem& files, const FsOptions& options);  // fs_change.cc
base::Task<int> move_files(FileSystem& files, const FsOptions& options);
base::Task<int> link_files(FileSystem& files, const FsOptions& options);
base::Task<int> remove_files(FileSystem& files, const FsOptions& options);
base::Task<int> put_files(FileSystem& files, const FsOptions& options);  // fs_copy_commands.cc
base::Task<int> get_files(FileSystem& files, const FsOptions& options);
base::Task<int> copy_files(FileSystem& files, const FsOptions& options);
base::Task<int> print_files(FileSystem& files, const FsOptions& options);
base::Task<int> list_data_servers(FileSystem& files, const FsOptions& options);  // fs_data.cc
base::Task<int> add_data_server(FileSystem& files, const FsOptions& options);
base::Task<int> drain_data_server(FileSystem& files, const FsOptions& options);
int check_files(const FsOptions& options);  // fs_check.cc

}  // namespace pmstore::tools
