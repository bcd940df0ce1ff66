// usage: file URI PATH TEXT: writes a line to a file, makes it durable, appends it, reads both
// back into registered memory.
#include <fcntl.h>

#include <cstdio>
#include <span>
#include <string>

#include "base/clock.h"
#include "fs/file_system.h"

using namespace pmstore;

int failed(const char* what, const std::string& why) {
  std::fprintf(stderr, "file: %s: %s\n", what, why.c_str());
  return 1;
}

// Each call blocks until it is done: run() runs the executor until then.
int write_and_read(Executor& executor, fs::FileSystem& files, const char* path,
                   const std::string& line) {
  auto file = executor.run(files.open(path, O_RDWR | O_CREAT | O_TRUNC));
  if (!file) return failed("open", file.error().to_string());
  const auto bytes = std::as_bytes(std::span(line));
  const auto written = executor.run((*file)->pwrite(bytes, 0));
  if (!written) return failed("pwrite", written.error().to_string());
  const auto at = executor.run((*file)->append(bytes));
  if (!at) return failed("append", at.error().to_string());
  if (*at != line.size()) return failed("append", "it is at " + std::to_string(*at));
  if (const auto synced = executor.run((*file)->fsync()); !synced) {
    return failed("fsync", synced.error().to_string());
  }
  std::string got(2 * line.size(), '\0');
  const auto into = std::as_writable_bytes(std::span(got));
  const auto registered = executor.run(files.register_buffer(into));
  if (!registered) return failed("register_buffer", registered.error().to_string());
  const auto read =
      executor.run((*file)->preadv({into.first(line.size()), into.subspan(line.size())}, 0));
  if (!read) return failed("preadv", read.error().to_string());
  if (*read != got.size() || got != line + line) return failed("preadv", "it reads " + got);
  const auto forgotten = executor.run(files.forget_buffer(into));
  if (!forgotten) return failed("forget_buffer", forgotten.error().to_string());
  const auto closed = executor.run((*file)->close());
  return closed ? 0 : failed("close", closed.error().to_string());
}

int main(int argc, char** argv) {
  if (argc != 4) return failed("usage", "file URI PATH TEXT");
  base::RealClock clock;
  Executor executor(clock);
  const auto uri = fabric::parse_uri(argv[1]);
  if (!uri) return failed("URI", uri.error().to_string());
  auto files = executor.run(fs::FileSystem::connect(executor, *uri, {}));
  if (!files) return failed("connect", files.error().to_string());
  const int status = write_and_read(executor, **files, argv[2], std::string(argv[3]) + "\n");
  executor.run((*files)->close());
  return status;
}
