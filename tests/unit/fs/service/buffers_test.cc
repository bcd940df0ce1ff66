// Accesses of several buffers, and memory that is registered with the sessions.
#include "fabric/local/fault_injection.h"
#include "tests/unit/fs/service/counting_devices.h"
#include "tests/unit/fs/service/data_servers_fixture.h"

namespace pmstore::fs {
namespace {

// Completions of clients come late, so their accesses are under way for a while.
class LateCompletions final : public fabric::FaultInjector {
 public:
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
    if (!point.connector || point.request.op == fabric::OpCode::kWriteImmediate) return {};
    return {fabric::Fault::kDelay, 20'000};
  }
};

class FilesBuffers : public DataServersTest {
 protected:
  FilesBuffers() {
    FileSystemOptions with = world_.options();
    with.devices = &devices_;
    client_ = world_.connect(with);
  }
  ~FilesBuffers() override {
    run(client_->close());
    client_.reset();  // before its devices
  }

  static std::span<std::byte> bytes(std::string& text) {
    return std::as_writable_bytes(std::span(text));
  }
  // Cut into so many bytes, then one more each time, and an empty one in front.
  static std::vector<std::span<std::byte>> cut(std::string& text, size_t first) {
    std::vector<std::span<std::byte>> pieces{{}};
    std::span<std::byte> rest = bytes(text);
    for (size_t next = first; !rest.empty(); ++next) {
      pieces.push_back(rest.first(std::min(next, rest.size())));
      rest = rest.subspan(pieces.back().size());
    }
    return pieces;
  }
  static std::vector<std::span<const std::byte>> sources(std::string& text, size_t first) {
    const auto pieces = cut(text, first);
    return {pieces.begin(), pieces.end()};
  }
  void expect_content(File& file, uint64_t offset, const std::string& text, size_t first) {
    std::string got(text.size(), '?');
    const auto read = run(file.preadv(cut(got, first), offset));
    ASSERT_TRUE(read) << read.error().to_string();
    EXPECT_EQ(*read, text.size());
    EXPECT_EQ(got, text);
  }

  // Of a task that has been started.
  template <typename T>
  T end_of(base::Task<T>& task) {
    for (int i = 0; i < 100 && !task.done(); ++i) world_.let_time_pass(20'000);
    PMSTORE_CHECK(task.done(), "an access ends");
    return task.take();
  }

  Registrations registrations_;
  CountingDevices devices_{registrations_};
};

TEST_F(FilesBuffers, SeveralBuffersAreReadAndWrittenAsIfTheyWereOne) {
  for (int i = 0; i < 3; ++i) add();
  const auto file = world_.open(client(), "/file");
  std::string small = content(3000);
  EXPECT_EQ(run(file->pwritev(sources(small, 700), 0)).value(), small.size());
  expect_content(*file, 0, small, 900);
  // It grows by a call and one-sided, over four servers.
  std::string large = content(2'500'000, 3);
  EXPECT_EQ(run(file->pwritev(sources(large, 5000), 1000)).value(), large.size());
  std::string all = small.substr(0, 1000) + large;
  EXPECT_EQ(world_.read(*file, 0, all.size() + 10), all);
  expect_content(*file, 0, all, 9000);
  std::string over = content(1'500'000, 7);
  EXPECT_EQ(run(file->pwritev(sources(over, 4000), 300'001)).value(), over.size());
  all.replace(300'001, over.size(), over);
  expect_content(*file, 0, all, 5000);
  // A hole, and the end.
  EXPECT_TRUE(run(file->truncate(4 << 20)));
  all.resize(4 << 20);
  std::string got(all.size() + 5000, '?');
  EXPECT_EQ(run(file->preadv(cut(got, 7000), 0)).value(), all.size());
  EXPECT_EQ(got, all + std::string(5000, '?'));
  EXPECT_EQ(run(file->pwritev({}, 5)).value(), 0u);
  EXPECT_EQ(run(file->preadv({}, 5)).value(), 0u);
}

TEST_F(FilesBuffers, SeveralBuffersOfAnExtentAreOneDoorbellAndNoMessage) {
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, kMany);
  world_.read(*file, 0, 100);
  std::string text = content(4 * 4096);
  const auto cost = [&](auto access) {
    const fabric::Counters before = client().counters();
    EXPECT_TRUE(run(access()));
    const fabric::Counters now = client().counters() - before;
    EXPECT_EQ(now.server_messages, 0u);
    EXPECT_EQ(now.round_trips, 1u);
    return now.doorbells;
  };
  const auto from = sources(text, 4096), pieces = sources(text, 4096);
  ASSERT_EQ(from.size(), 5u);
  EXPECT_EQ(cost([&] { return file->pwritev(from, 8192); }), 1u);
  EXPECT_EQ(cost([&] { return file->preadv(cut(text, 4096), 8192); }), 1u);
}

TEST_F(FilesBuffers, AnAtomicWriteOfSeveralBuffersIsOneMessage) {
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, kMany);
  std::string text = content(300'000);
  const uint64_t before = world_.stat("calls");
  ASSERT_TRUE(run(file->pwritev(sources(text, 1000), 60'000, {.atomic = true})));
  EXPECT_EQ(world_.stat("calls") - before, 1u);
  expect_content(*file, 60'000, text, 1000);
}

TEST_F(FilesBuffers, AnAccessHasABoundedNumberOfBuffers) {
  const auto file = world_.open(client(), "/file");
  std::string text(File::kMaxBuffers + 1, 'x');
  std::vector<std::span<std::byte>> into;
  for (char& each : text) into.push_back(std::as_writable_bytes(std::span(&each, 1)));
  const std::vector<std::span<const std::byte>> from(into.begin(), into.end());
  EXPECT_EQ(number_of(run(file->pwritev(from, 0))), EINVAL);
  EXPECT_EQ(number_of(run(file->preadv(into, 0))), EINVAL);
  const std::vector<std::span<const std::byte>> most(from.begin(), from.end() - 1);
  EXPECT_EQ(run(file->pwritev(most, 0)).value(), File::kMaxBuffers);
}

TEST_F(FilesBuffers, MemoryIsRegisteredWithAllSessionsAlsoWithThoseThatComeLater) {
  for (int i = 0; i < 2; ++i) add();
  std::string memory = content(2 << 20);
  const std::string text = memory;
  const auto file = world_.open(client(), "/file");
  ASSERT_TRUE(run(client().register_buffer(bytes(memory))));
  const std::byte* const at = bytes(memory).data();
  EXPECT_EQ(registrations_.of[at], 0u) << "there is no session yet";
  EXPECT_TRUE(run(file->pwrite(bytes(memory), 0)));
  EXPECT_EQ(world_.read(*file, 0, text.size()), text);
  EXPECT_EQ(registrations_.of[at], 3u);
  std::ranges::fill(memory, '?');
  EXPECT_TRUE(run(file->pread(bytes(memory), 0)));
  EXPECT_EQ(memory, text);
  std::string later(4096, 'l');
  ASSERT_TRUE(run(client().register_buffer(bytes(later))));
  EXPECT_EQ(registrations_.of[bytes(later).data()], 3u);
  ASSERT_TRUE(run(client().forget_buffer(bytes(memory))));
  EXPECT_TRUE(run(file->pwrite(bytes(memory).first(5000), 100))) << "it is copied";
  EXPECT_EQ(world_.read(*file, 100, 5000), text.substr(0, 5000));
}

TEST_F(FilesBuffers, MemoryIsRegisteredOnceAndForgottenAsAWhole) {
  std::string memory(10'000, 'x');
  const auto all = bytes(memory), part = all.subspan(1000, 1000);
  EXPECT_EQ(number_of(run(client().register_buffer({}))), EINVAL);
  ASSERT_TRUE(run(client().register_buffer(part)));
  EXPECT_EQ(number_of(run(client().register_buffer(all))), EINVAL);
  EXPECT_EQ(number_of(run(client().register_buffer(all.subspan(1999, 10)))), EINVAL);
  EXPECT_TRUE(run(client().register_buffer(all.subspan(2000, 10))));
  EXPECT_EQ(number_of(run(client().forget_buffer(all))), EINVAL);
  EXPECT_EQ(number_of(run(client().forget_buffer(part.first(10)))), EINVAL);
  EXPECT_TRUE(run(client().forget_buffer(part)));
  EXPECT_EQ(number_of(run(client().forget_buffer(part))), EINVAL);
  EXPECT_TRUE(run(client().register_buffer(part)));
}

TEST_F(FilesBuffers, MemoryThatOneSessionRefusesIsRegisteredWithNone) {
  for (int i = 0; i < 2; ++i) add();
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, kMany);
  EXPECT_EQ(world_.read(*file, 0, kMany.size()), kMany);
  std::string memory(5000, 'x');
  registrations_.refused_after = 2;
  EXPECT_EQ(number_of(run(client().register_buffer(bytes(memory)))), EIO);
  EXPECT_EQ(registrations_.of[bytes(memory).data()], 2u);
  EXPECT_EQ(number_of(run(client().forget_buffer(bytes(memory)))), EINVAL);
  registrations_.refused_after = -1;
  EXPECT_TRUE(run(client().register_buffer(bytes(memory)))) << "as if it had never been tried";
  EXPECT_EQ(registrations_.of[bytes(memory).data()], 5u);
  EXPECT_TRUE(run(file->pwrite(bytes(memory), 7)));
  EXPECT_EQ(world_.read(*file, 7, 5000), memory);
}

TEST_F(FilesBuffers, NothingReachesMemoryThatWasForgotten) {
  for (int i = 0; i < 2; ++i) add();
  std::string memory = content(2 << 20);
  const std::string text = memory;
  const std::byte* const at = bytes(memory).data();
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, text);
  ASSERT_TRUE(run(client().register_buffer(bytes(memory))));
  EXPECT_EQ(registrations_.at(at), 3u);
  std::ranges::fill(memory, '?');
  LateCompletions late;
  const fabric::ScopedFaultInjector installed(late);
  auto reads = file->pread(bytes(memory), 0);
  reads.start();
  EXPECT_FALSE(reads.done());
  EXPECT_TRUE(run(client().forget_buffer(bytes(memory))));
  EXPECT_EQ(registrations_.at(at), 0u) << "a device can reach it";
  EXPECT_TRUE(memory == text) << "the read was under way";
  EXPECT_EQ(end_of(reads).value(), text.size());
}

TEST_F(FilesBuffers, AccessesCopyWhereALaterSessionRefusesTheMemory) {
  for (int i = 0; i < 2; ++i) add();
  std::string memory = content(2 << 20);
  const std::string text = memory;
  const std::byte* const at = bytes(memory).data();
  const auto file = world_.open(client(), "/file");
  ASSERT_TRUE(run(client().register_buffer(bytes(memory))));
  registrations_.refused = at;
  EXPECT_TRUE(run(file->pwrite(bytes(memory), 0)));
  const unsigned connects = registrations_.connects;
  std::ranges::fill(memory, '?');
  EXPECT_EQ(run(file->pread(bytes(memory), 0)).value(), text.size());
  EXPECT_TRUE(memory == text);
  EXPECT_EQ(registrations_.of[at], 0u);
  EXPECT_EQ(registrations_.connects, connects) << "sessions stay";
  // A copy ends before the memory is forgotten.
  std::ranges::fill(memory, '?');
  LateCompletions late;
  const fabric::ScopedFaultInjector installed(late);
  auto reads = file->pread(bytes(memory), 0);
  reads.start();
  EXPECT_FALSE(reads.done());
  EXPECT_TRUE(run(client().forget_buffer(bytes(memory))));
  EXPECT_TRUE(memory == text);
  EXPECT_EQ(end_of(reads).value(), text.size());
  EXPECT_EQ(number_of(run(client().register_buffer(bytes(memory)))), EIO);
  registrations_.refused = nullptr;
  EXPECT_TRUE(run(client().register_buffer(bytes(memory))));
  EXPECT_EQ(registrations_.at(at), 3u);
}

}  // namespace
}  // namespace pmstore::fs
