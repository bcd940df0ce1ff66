#include "tests/scenario/fs/fs_scenario.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace pmstore::scenario {

void FilesScenario::SetUp() {}

void FilesScenario::TearDown() {
  if (client_ != nullptr) run(client_->close());
  client_.reset();
  target_.reset();
  if (!folder_.empty()) std::filesystem::remove_all(folder_);
}

void FilesScenario::start_server() {
  auto target = Target::start(executor_, "files", setup_.to_args());
  ASSERT_TRUE(target) << target.error().to_string();
  target_ = std::move(*target);
  client_ = connect();
}

fs::FileSystemOptions FilesScenario::client_options() const {
  fs::FileSystemOptions options;
  options.devices = TestMachine::test_host();
  options.call_timeout_ns = kPatientTimeoutNs;
  options.connect_timeout_ns = kPatientTimeoutNs;
  return options;
}

std::unique_ptr<fs::FileSystem> FilesScenario::connect(fs::FileSystemOptions options) {
  auto connected = run(fs::FileSystem::connect(executor_, target_->uri(), std::move(options)));
  EXPECT_TRUE(connected) << connected.error().to_string();
  return connected ? std::move(*connected) : nullptr;
}

void FilesScenario::let_time_pass(uint64_t ns) {
  run([](base::Executor& executor, uint64_t for_ns) -> base::Task<void> {
    co_await executor.sleep_for(for_ns);
  }(executor_, ns));
}

std::unique_ptr<fs::File> FilesScenario::open(fs::FileSystem& client, std::string_view path,
                                              int flags) {
  auto opened = run(client.open(path, flags, 0644));
  EXPECT_TRUE(opened) << path << ": " << opened.error().to_string();
  return opened ? std::move(*opened) : nullptr;
}

void FilesScenario::write(fs::File& file, uint64_t offset, std::string_view bytes) {
  const auto written = run(file.pwrite(std::as_bytes(std::span(bytes)), offset));
  ASSERT_TRUE(written) << written.error().to_string();
  EXPECT_EQ(*written, bytes.size());
}

std::string FilesScenario::read(fs::File& file, uint64_t offset, size_t bytes) {
  std::string text(bytes, '\0');
  const auto got = run(file.pread(std::as_writable_bytes(std::span(text)), offset));
  if (!got) return "errno " + fs::errno_name(got.number());
  text.resize(*got);
  return text;
}

std::string FilesScenario::read(fs::FileSystem& client, std::string_view path) {
  const auto file = open(client, path, O_RDONLY);
  return file == nullptr ? std::string() : read(*file, 0, 4 << 20);
}

std::vector<std::string> FilesScenario::names(fs::FileSystem& client, std::string_view path) {
  std::vector<std::string> all;
  uint64_t cookie = 0;
  while (true) {
    const auto page = run(client.list(path, cookie));
    EXPECT_TRUE(page) << page.error().to_string();
    if (!page || page->empty()) break;
    for (const auto& each : *page) all.push_back(each.entry.name);
    cookie = page->back().entry.cookie;
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::string text_of(size_t bytes, char seed) {
  std::string text(bytes, seed);
  for (size_t i = 0; i < bytes; i += 16) text[i] = static_cast<char>('a' + (i / 16 + seed) % 26);
  return text;
}

}  // namespace pmstore::scenario
