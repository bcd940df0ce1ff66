// Every awaitable of FileSystem and File is destroyed at each of its points: the client goes on
// working, what was destroyed has happened as a whole or not at all, and no file stays open.
#include <gtest/gtest.h>

#include "tests/unit/cancellation/cutter.h"
#include "tests/unit/fs/service/counting_devices.h"
#include "tests/unit/fs/service/data_server_pool.h"
#include "tests/unit/fs/service/files_world.h"

namespace pmstore::cancellation {
namespace {

using base::Task;
using fs::bytes_of;
using fs::File;
using fs::FilesWorld;
using fs::FileSystem;
using fs::kRootIno;

// A server, a client, and files that are there before each operation.
class World {
 public:
  World() {
    fs::FileSystemOptions with = files_.options();
    with.devices = &devices_;
    client_ = files_.connect(with);
  }
  ~World() {
    if (client_ != nullptr) files_.run(client_->close());
  }

  void prepare() {
    small = files_.open(*client_, "/small");
    files_.write(*small, 0, "before");
    large = files_.open(*client_, "/large");
    files_.write(*large, 0, fs::kMany);
    EXPECT_EQ(files_.read(*large, 0, 10), "LLLLLLLLLL");  // its map is known
    EXPECT_TRUE(files_.run(client_->make_directory("/dir")));
    EXPECT_TRUE(files_.run(client_->make_symlink("dir", "/link")));
    settle(executor());
  }
  // Data of new files lies at two servers, and the client has a session with both.
  void add_server() {
    if (added_ != nullptr) return;
    added_ = std::make_unique<fs::DataServerPool>(files_, "added");
    expect_done(files_.run(client_->add_data_server(added_->uri())));
    const auto file = files_.open(*client_, "/at both");
    files_.write(*file, 0, std::string(2 << 20, 'b'));
    EXPECT_EQ(files_.read(*file, 0, 2 << 20).size(), 2u << 20);
    EXPECT_TRUE(files_.run(file->close()));
    settle(executor());
  }
  // Everything works, and everything goes.
  void audit() {
    const auto again = files_.open(*client_, "/again");
    ASSERT_NE(again, nullptr);
    files_.write(*again, 0, fs::kSome);
    EXPECT_EQ(files_.read(*again, 0, 200'000), fs::kSome);
    EXPECT_TRUE(files_.run(again->close()));
    small.reset();
    large.reset();
    remove_all("/dir");
    remove_all("/");
    for (int i = 0; i < 100 && !is_empty(); ++i) files_.let_time_pass(FilesWorld::kLeaseNs / 10);
    EXPECT_TRUE(is_empty()) << "a file stays open, or space is lost";
  }
  void expect_whole(File& file, const std::string& before, const std::string& after) {
    const std::string now = files_.read(file, 0, 3'000'000);
    EXPECT_TRUE(now == before || now == after) << now.substr(0, 100);
  }

  FilesWorld& files() { return files_; }
  FileSystem& client() { return *client_; }
  base::Executor& executor() { return files_.executor(); }
  std::unique_ptr<File> small;
  std::unique_ptr<File> large;
  std::vector<std::byte> memory = std::vector<std::byte>(500'000);
  std::vector<std::byte> more_memory = std::vector<std::byte>(4096);
  bool registered = false;  // the memory
  fs::Registrations registrations;

 private:
  bool is_empty() {
    const fs::FileSystemUsage usage = files_.usage(*client_);
    return usage.inodes == 1 && usage.free_bytes == usage.data_bytes;
  }
  void remove_all(const std::string& directory) {
    const auto listed = files_.run(client_->list(directory));
    if (!listed) return;
    for (const auto& each : *listed) {
      EXPECT_TRUE(files_.run(client_->remove(directory + "/" + each.entry.name)));
    }
  }

  template <typename T>
  static void expect_done(const T& result) {
    EXPECT_TRUE(result) << result.error().to_string();
  }

  fs::CountingDevices devices_{registrations};
  FilesWorld files_;
  std::unique_ptr<fs::DataServerPool> added_;
  std::unique_ptr<FileSystem> client_;
};

struct Case {
  const char* name;
  Task<void> (*run)(World& world);
  void (*check)(World& world) = nullptr;    // right after the destruction
  void (*prepare)(World& world) = nullptr;  // after World::prepare()
};

// What an operation is to give, unless it is destroyed.
template <typename T>
void expect(const T& result) {
  EXPECT_TRUE(result) << result.error().to_string();
}

const Case kCases[] = {
    {"FileSystem::connect",
     [](World& world) -> Task<void> {
       fs::FileSystemOptions options = world.files().options();
       auto connected =
           co_await FileSystem::connect(world.executor(), world.files().uri(), options);
       expect(connected);
     }},
    {"FileSystem::stat",
     [](World& world) -> Task<void> { expect(co_await world.client().stat("/link/../small")); }},
    {"FileSystem::walk",
     [](World& world) -> Task<void> {
       const fs::Caller root;
       expect(co_await world.client().walk(root, kRootIno, "dir/../small"));
     }},
    {"FileSystem::walk_two",
     [](World& world) -> Task<void> {
       const fs::Caller root;
       expect(co_await world.client().walk_two(root, kRootIno, "dir", "dir/../small"));
     }},
    {"FileSystem::open",
     [](World& world) -> Task<void> { expect(co_await world.client().open("/small", O_RDWR)); }},
    {"FileSystem::open, a new file",
     [](World& world) -> Task<void> {
       expect(co_await world.client().open("/link/new", O_RDWR | O_CREAT | O_EXCL));
     }},
    {"FileSystem::make_directory",
     [](World& world) -> Task<void> { expect(co_await world.client().make_directory("/new")); }},
    {"FileSystem::rename",
     [](World& world) -> Task<void> {
       expect(co_await world.client().rename("/large", "/dir/moved"));
     }},
    {"FileSystem::remove",
     [](World& world) -> Task<void> { expect(co_await world.client().remove("/large")); }},
    {"FileSystem::list",
     [](World& world) -> Task<void> { expect(co_await world.client().list("/")); }},
    {"FileSystem::set_attributes",
     [](World& world) -> Task<void> {
       fs::AttributeChange change;
       change.set = fs::AttributeChange::kMtime;
       expect(co_await world.client().set_attributes({}, world.large->ino(), change));
     }},
    {"FileSystem::set_xattr",
     [](World& world) -> Task<void> {
       const auto mode = fs::XattrMode::kSet;
       const fs::Caller root;
       const auto value = bytes_of("value");
       expect(co_await world.client().set_xattr(root, world.small->ino(), "user.a", value, mode));
     }},
    {"File::pread",
     [](World& world) -> Task<void> {
       std::vector<std::byte> into(500'000);
       expect(co_await world.large->pread(into, 1000));
     }},
    {"File::preadv",
     [](World& world) -> Task<void> {
       std::vector<std::byte> into(500'000);
       const std::vector<std::span<std::byte>> pieces{std::span(into).first(70'000),
                                                      std::span(into).subspan(70'000)};
       expect(co_await world.large->preadv(pieces, 1000));
     }},
    {"File::pwritev",
     [](World& world) -> Task<void> {
       const std::string text(4096, 'w');
       const std::vector<std::span<const std::byte>> pieces{bytes_of(text), bytes_of(text)};
       expect(co_await world.large->pwritev(pieces, 8192));
     }},
    {"FileSystem::register_buffer",
     [](World& world) -> Task<void> {
       // The second server refuses it, and the first one is read meanwhile.
       auto reads = world.large->pread(world.memory, 0);
       reads.start();
       world.registrations.refused_after = 1;
       const auto refused = co_await world.client().register_buffer(world.more_memory);
       EXPECT_FALSE(refused);
       EXPECT_EQ(world.registrations.at(world.more_memory.data()), 0u);
       while (!reads.done()) co_await world.executor().yield();
       expect(reads.take());
     },
     [](World& world) {
       world.registrations.refused_after = -1;
       const auto registered = world.files().run(world.client().register_buffer(world.more_memory));
       EXPECT_TRUE(registered) << "it is registered with a server still";
       EXPECT_TRUE(world.files().run(world.client().forget_buffer(world.more_memory)));
     },
     [](World& world) { world.add_server(); }},
    {"FileSystem::forget_buffer, beside a read",
     [](World& world) -> Task<void> {
       // A read that is under way when it is destroyed may still reach it: it is the world's.
       const std::span<std::byte> memory(world.memory);
       if (!world.registered) expect(co_await world.client().register_buffer(memory));
       world.registered = true;
       auto reads = world.large->pread(memory, 0);
       reads.start();
       auto forgets = world.client().forget_buffer(memory);
       world.registered = false;
       expect(co_await std::move(forgets));
       while (!reads.done()) co_await world.executor().yield();
       expect(reads.take());
     }},
    {"File::pwrite, mapped",
     [](World& world) -> Task<void> {
       const std::string text(4096, 'w');
       expect(co_await world.large->pwrite(bytes_of(text), 8192));
     }},
    {"File::pwrite, by a call",
     [](World& world) -> Task<void> {
       const auto text = bytes_of("after, longer");
       expect(co_await world.small->pwrite(text, 0));
     },
     [](World& world) { world.expect_whole(*world.small, "before", "after, longer"); }},
    {"File::pwrite, atomic",
     [](World& world) -> Task<void> {
       const std::string text(100'000, 'w');
       expect(co_await world.large->pwrite(bytes_of(text), 60'000, {.atomic = true}));
     },
     [](World& world) {
       std::string after = fs::kMany;
       after.replace(60'000, 100'000, std::string(100'000, 'w'));
       world.expect_whole(*world.large, fs::kMany, after);
     }},
    {"File::append",
     [](World& world) -> Task<void> {
       const auto text = bytes_of(" and after");
       expect(co_await world.small->append(text));
     },
     [](World& world) { world.expect_whole(*world.small, "before", "before and after"); }},
    {"File::truncate",
     [](World& world) -> Task<void> { expect(co_await world.large->truncate(10)); },
     [](World& world) { world.expect_whole(*world.large, fs::kMany, "LLLLLLLLLL"); }},
    {"File::fsync",
     [](World& world) -> Task<void> {
       const auto text = bytes_of("w");
       expect(co_await world.large->pwrite(text, 8192));
       expect(co_await world.large->fsync());
     }},
    {"File::fsync, of visible writes",
     [](World& world) -> Task<void> {
       const fs::WriteOptions visible{.sync = fs::DataSync::kFsync};
       const std::string text(4096, 'w');
       for (const uint64_t offset : {8192u, 500'000u}) {
         expect(co_await world.large->pwrite(bytes_of(text), offset, visible));
       }
       expect(co_await world.large->fsync());
     }},
    {"File::close", [](World& world) -> Task<void> { expect(co_await world.small->close()); }},
};

class FilesCancellation : public ::testing::TestWithParam<std::tuple<const Case*, Weather>> {};

std::vector<const Case*> all_cases() {
  std::vector<const Case*> all;
  for (const Case& each : kCases) all.push_back(&each);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Files, FilesCancellation,
                         ::testing::Combine(::testing::ValuesIn(all_cases()),
                                            ::testing::Values(Weather::kCalm, Weather::kSlow)),
                         [](const auto& param) {
                           return test_name(
                               std::get<0>(param.param)->name,
                               std::get<1>(param.param) == Weather::kCalm ? "calm" : "slow");
                         });

TEST_P(FilesCancellation, LeavesNothingBehind) {
  const auto& [tested, weather] = GetParam();
  World world;
  Cutter cutter(world.executor());
  at_all_points([&](uint64_t point) {
    world.prepare();
    if (tested->prepare != nullptr) tested->prepare(world);
    Cutter::End end;
    {
      const WeatherFaults faults(weather, 1);
      end = cutter.run(tested->run(world), point);
    }
    if (tested->check != nullptr) tested->check(world);
    world.audit();
    return end == Cutter::End::kDestroyed;
  });
}

}  // namespace
}  // namespace pmstore::cancellation
