// pmstore fs put | get | cp | cat
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "tools/cli/bytes_text.h"
#include "tools/cli/fs_copy.h"

namespace pmstore::tools {
namespace {

constexpr size_t kPipeBytes = 1u << 20;

int end(const Copier& copier, const FsOptions& options, const Failures& failures) {
  const Copier::Counts& counts = copier.counts();
  if (options.session.json) {
    print_json({{"files", counts.files},
                {"directories", counts.directories},
                {"symlinks", counts.symlinks},
                {"bytes", counts.bytes},
                {"failures", failures.count()}});
  }
  return failures.status();
}

// A path of this machine, without slashes at its end.
std::string local_path(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// Where the copies go: into `to` if that is a directory, which it has to be for several.
base::Task<fs::PosixResult<bool>> goes_inside(CopySide& side, const std::string& to, size_t count) {
  const auto there = co_await side.facts(to, true);
  const bool is_directory = there && there->type == fs::FileType::kDirectory;
  if (count > 1 && !is_directory) co_return PosixError(there ? ENOTDIR : there.error().number);
  co_return is_directory;
}

base::Task<int> copy_all(FileSystem& files, const FsOptions& options, CopySide& from, CopySide& to,
                         const std::vector<std::string>& sources, const std::string& target,
                         Failures& failures) {
  Copier copier(files.executor(), from, to, {options.recursive, options.preserve}, failures);
  const auto inside = co_await goes_inside(to, target, sources.size());
  if (!inside) {
    failures.add(target, inside.error());
    co_return end(copier, options, failures);
  }
  for (const std::string& source : sources) {
    const std::string name = last_name(source);
    const bool has_name = !name.empty() && name != "." && name != "..";
    const std::string path = *inside && has_name ? joined(target, name) : target;
    if (&from == &to && options.recursive && (path + "/").starts_with(source + "/") &&
        path != source) {
      failures.add(source, "'" + printable(path) + "' is inside of it");
      continue;
    }
    co_await copier.copy(source, path);
  }
  co_return end(copier, options, failures);
}

// Waits until standard input has something, without stopping the executor: leases are kept.
base::Task<fs::PosixResult<size_t>> read_input(base::Executor& executor,
                                               std::span<std::byte> into) {
  constexpr uint64_t kLookAgainNs = 200'000;
  size_t done = 0;
  while (done < into.size()) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    while (poll(&input, 1, 0) == 0) co_await executor.sleep_for(kLookAgainNs);
    const ssize_t got = ::read(STDIN_FILENO, into.data() + done, into.size() - done);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) {
      const int number = errno;
      co_return PosixError(
          number, std::string("cannot read standard input: ") + posix_text(PosixError(number)));
    }
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  co_return done;
}

base::Task<fs::PosixResult<uint64_t>> write_input(FileSystem& files, fs::File& file) {
  std::vector<std::byte> part(kPipeBytes);
  uint64_t offset = 0;
  while (true) {
    auto got = co_await read_input(files.executor(), part);
    if (!got) co_return std::move(got.error());
    if (*got == 0) co_return offset;
    auto written = co_await file.pwrite(std::span(part).first(*got), offset);
    if (!written) co_return std::move(written.error());
    offset += *got;
  }
}

base::Task<int> put_input(FileSystem& files, const FsOptions& options, std::string path,
                          Failures& failures) {
  auto file = co_await files.open(path, O_WRONLY | O_CREAT | O_TRUNC, masked(0666));
  if (!file) {
    failures.add(path, file.error());
    co_return failures.status();
  }
  const auto written = co_await write_input(files, **file);
  const auto closed = co_await (*file)->close();
  if (!written || !closed) {
    failures.add(path, written ? closed.error() : written.error());
    (void)co_await files.remove(path);  // no half file stays
  }
  if (options.session.json) {
    print_json({{"files", failures.count() == 0 ? 1 : 0},
                {"bytes", written ? *written : 0},
                {"failures", failures.count()}});
  }
  co_return failures.status();
}

// False: standard output takes nothing more, which the program says at its end.
base::Task<fs::PosixResult<bool>> print_file(FileSystem& files, const std::string& path) {
  auto file = co_await files.open(path, O_RDONLY);
  if (!file) co_return std::move(file.error());
  if ((*file)->attributes().type == fs::FileType::kDirectory) co_return PosixError(EISDIR);
  std::vector<std::byte> part(kPipeBytes);
  uint64_t offset = 0;
  fs::PosixResult<bool> result = true;
  while (std::ferror(stdout) == 0) {
    auto got = co_await (*file)->pread(part, offset);
    if (!got) result = std::move(got.error());
    if (!got || *got == 0) break;
    print_text({reinterpret_cast<const char*>(part.data()), static_cast<size_t>(*got)});
    offset += *got;
  }
  (void)co_await (*file)->close();
  if (result && std::ferror(stdout) != 0) result = false;
  co_return result;
}

base::Task<int> print_all(FileSystem& files, const std::vector<std::string>& paths,
                          Failures& failures) {
  for (const std::string& given : paths) {
    const std::string path = absolute(given);
    const auto printed = co_await print_file(files, path);
    if (!printed) failures.add(path, printed.error());
    if (printed && !*printed) break;
  }
  co_return failures.status();
}

std::vector<std::string> sources_of(const FsOptions& options, std::string (*as)(std::string)) {
  std::vector<std::string> sources;
  for (size_t i = 0; i + 1 < options.paths.size(); ++i) sources.push_back(as(options.paths[i]));
  return sources;
}

std::string remote_path(std::string path) { return absolute(path); }

}  // namespace

base::Task<int> put_files(FileSystem& files, const FsOptions& options) {
  Failures failures("fs put");
  const std::string to = absolute(options.paths.back());
  if (options.paths.size() == 2 && options.paths[0] == "-") {
    co_return co_await put_input(files, options, to, failures);
  }
  const auto from_side = local_side();
  const auto to_side = remote_side(files);
  const auto sources = sources_of(options, local_path);
  co_return co_await copy_all(files, options, *from_side, *to_side, sources, to, failures);
}

base::Task<int> get_files(FileSystem& files, const FsOptions& options) {
  Failures failures("fs get");
  const auto sources = sources_of(options, remote_path);
  if (options.paths.back() == "-") co_return co_await print_all(files, sources, failures);
  const auto from_side = remote_side(files);
  const auto to_side = local_side();
  const std::string to = local_path(options.paths.back());
  co_return co_await copy_all(files, options, *from_side, *to_side, sources, to, failures);
}

base::Task<int> copy_files(FileSystem& files, const FsOptions& options) {
  Failures failures("fs cp");
  const auto side = remote_side(files);
  const auto sources = sources_of(options, remote_path);
  const std::string to = absolute(options.paths.back());
  co_return co_await copy_all(files, options, *side, *side, sources, to, failures);
}

base::Task<int> print_files(FileSystem& files, const FsOptions& options) {
  Failures failures("fs cat");
  co_return co_await print_all(files, options.paths, failures);
}

}  // namespace pmstore::tools
