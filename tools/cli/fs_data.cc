// pmstore fs data: the servers that have the data of a file system.
#include <fmt/format.h>

#include <algorithm>

#include "base/size_text.h"
#include "tools/cli/bytes_text.h"
#include "tools/cli/fs_session.h"

namespace pmstore::tools {
namespace {

constexpr uint64_t kLookAgainNs = 200'000'000;

std::string_view state_name(fs::DataServerState state) {
  switch (state) {
    case fs::DataServerState::kInUse: return "in use";
    case fs::DataServerState::kDraining: return "draining";
    case fs::DataServerState::kGone: return "gone";
  }
  return "unknown";
}

nlohmann::ordered_json json_of(const fs::DataServerInfo& server, const std::string& uri) {
  return {{"index", server.index},
          {"uri", json_bytes(uri)},
          {"state", state_name(server.state)},
          {"connected", server.is_there},
          {"area", fmt::format("{:016x}", server.area)},
          {"bytes", server.bytes},
          {"used_bytes", server.used_bytes},
          {"problem", json_bytes(server.problem)}};
}

// A server that is drained, as it was last seen.
struct Drained {
  bool done = false;  // it has nothing any more
  uint64_t used_bytes = 0;
  std::string problem;
};
base::Task<fs::PosixResult<Drained>> look_at_drained(FileSystem& files, uint16_t index) {
  const auto servers = co_await files.data_servers();
  if (!servers) co_return fs::PosixError(servers.error());
  const auto found = std::find_if(servers->begin(), servers->end(),
                                  [index](const auto& each) { return each.index == index; });
  if (found == servers->end() || found->state == fs::DataServerState::kGone) {
    co_return Drained{true, 0, {}};
  }
  if (found->state == fs::DataServerState::kInUse) {
    co_return fs::PosixError(ECANCELED, "it is in use again");
  }
  // That of the namespace's own pool stays.
  const bool done = index == 0 && found->used_bytes == 0;
  co_return Drained{done, found->used_bytes, found->problem};
}

// Until it has nothing any more, or for so long nothing was moved or freed there.
base::Task<fs::PosixStatus> wait_until_drained(FileSystem& files, uint16_t index,
                                               uint64_t patience_ns) {
  uint64_t least_bytes = UINT64_MAX;
  uint64_t moved_ns = files.executor().now_ns();
  while (true) {
    const auto now = co_await look_at_drained(files, index);
    if (!now) co_return fs::PosixError(now.error());
    if (now->done) co_return fs::PosixStatus();
    if (now->used_bytes < least_bytes) {
      least_bytes = now->used_bytes;
      moved_ns = files.executor().now_ns();
    }
    if (files.executor().now_ns() - moved_ns >= patience_ns) {
      const std::string why =
          now->problem.empty() ? "clients have not given up their maps" : now->problem;
      co_return fs::PosixError(
          ETIMEDOUT, fmt::format("it still has {}: {}; it is drained further in the background",
                                 base::size_text(now->used_bytes), printable(why)));
    }
    co_await files.executor().sleep_for(kLookAgainNs);
  }
}

}  // namespace

base::Task<int> list_data_servers(FileSystem& files, const FsOptions& options) {
  const auto servers = co_await files.data_servers();
  if (!servers) co_return fail(kProgram, "fs data list", posix_text(servers.error()));
  auto json = nlohmann::ordered_json::array();
  for (const fs::DataServerInfo& server : *servers) {
    const std::string uri =
        server.uri.empty() ? options.session.parsed_uri().to_string() : server.uri;
    if (options.session.json) {
      json.push_back(json_of(server, uri));
      continue;
    }
    const bool is_away = !server.is_there && server.state != fs::DataServerState::kGone;
    print_text(fmt::format("{:>3}  {:<8}  {} of {}  {}{}\n", server.index, state_name(server.state),
                           base::size_text(server.used_bytes), base::size_text(server.bytes),
                           printable(uri), is_away ? "  (away)" : ""));
    if (!server.problem.empty()) print_text(fmt::format("     {}\n", printable(server.problem)));
  }
  if (options.session.json) print_json({{"servers", json}});
  co_return kDone;
}

base::Task<int> add_data_server(FileSystem& files, const FsOptions& options) {
  const auto added = co_await files.add_data_server(options.data_uri);
  if (!added) {
    co_return fail(kProgram, "fs data add " + options.data_uri, posix_text(added.error()));
  }
  if (options.session.json) {
    print_json({{"index", *added}});
  } else {
    print_text(fmt::format("{} is data server {}\n", options.data_uri, *added));
  }
  co_return kDone;
}

base::Task<int> drain_data_server(FileSystem& files, const FsOptions& options) {
  const std::string what = fmt::format("fs data drain {}", options.data_server);
  const auto drained = co_await files.drain_data_server(options.data_server, options.undo);
  if (!drained) co_return fail(kProgram, what, posix_text(drained.error()));
  if (options.wait) {
    constexpr uint64_t kNsPerSecond = 1'000'000'000;
    const auto done =
        co_await wait_until_drained(files, options.data_server, options.patience_s * kNsPerSecond);
    if (!done) co_return fail(kProgram, what, posix_text(done.error()));
  }
  if (options.session.json) print_json({{"index", options.data_server}});
  co_return kDone;
}

}  // namespace pmstore::tools
