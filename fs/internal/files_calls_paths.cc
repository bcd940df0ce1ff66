// FilesCalls: calls with paths, which the server walks before it does what they ask for.
#include <algorithm>
#include <string>
#include <utility>

#include "fs/internal/files_calls.h"
#include "fs/internal/permissions.h"

namespace pmstore::fs::internal {

base::Task<PosixResult<FilesCalls::NamePlace>> FilesCalls::end_of_path(const Caller& caller,
                                                                       Ino start,
                                                                       std::string path) {
  const size_t slash = path.rfind('/');
  NamePlace end{start, slash == std::string::npos ? path : path.substr(slash + 1)};
  if (end.name.empty() || is_dots(end.name)) co_return PosixError(kWalkFirst);
  if (slash == std::string::npos) co_return std::move(end);
  path.resize(slash);
  if (const auto known = names_.known_directory(caller, start, path)) {
    end.parent = *known;
    co_return std::move(end);
  }
  const auto names = 1 + static_cast<size_t>(std::count(path.begin(), path.end(), '/'));
  auto walked = co_await names_.walk(caller, start, path);
  if (!walked) co_return PosixError(walked.error());
  if (walked->error) co_return std::move(*walked->error);
  const bool is_whole = walked->found.size() == names;
  if (!is_whole || walked->found.back().type == FileType::kSymlink) {
    co_return PosixError(kWalkFirst);
  }
  if (walked->found.back().type != FileType::kDirectory) co_return PosixError(ENOTDIR);
  end.parent = walked->found.back().ino;
  co_return std::move(end);
}

base::Task<PosixStatus> FilesCalls::remove_at(const FilesRequest& request) {
  Reader reader(request.body);
  const auto asked = reader.get<NameRequest>();
  std::string path(reader.get_bytes(asked.name_bytes));
  if (!reader.complete()) co_return malformed();
  PMSTORE_CO_TRY(const NamePlace at,
                 co_await end_of_path(request.caller, Ino{asked.parent}, std::move(path)));
  auto done = co_await names_.unlink(request.caller, at.parent, at.name);
  if (done || done.number() != EISDIR) co_return std::move(done);
  co_return co_await names_.remove_directory(request.caller, at.parent, at.name);
}

base::Task<PosixStatus> FilesCalls::rename_at(const FilesRequest& request) {
  Reader reader(request.body);
  const auto asked = reader.get<RenameRequest>();
  std::string path(reader.get_bytes(asked.name_bytes));
  std::string new_path(reader.get_bytes(asked.new_name_bytes));
  if (!reader.complete() || asked.mode > RenameMode::kExchange) co_return malformed();
  PMSTORE_CO_TRY(const NamePlace from,
                 co_await end_of_path(request.caller, Ino{asked.from}, std::move(path)));
  const auto to = co_await end_of_path(request.caller, Ino{asked.to}, std::move(new_path));
  if (!to && to.number() != kWalkFirst) {
    // That there is nothing to rename comes first.
    const auto there = co_await names_.lookup(request.caller, from.parent, from.name);
    if (!there) co_return PosixError(there.error());
  }
  if (!to) co_return PosixError(to.error());
  co_return co_await names_.rename(request.caller, from.parent, from.name, to->parent, to->name,
                                   asked.mode);
}

}  // namespace pmstore::fs::internal
