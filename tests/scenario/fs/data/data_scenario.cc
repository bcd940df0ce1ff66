#include "tests/scenario/fs/data/data_scenario.h"

#include <cstring>

#include "fabric/message.h"

namespace pmstore::scenario {
namespace {

const ClientSecret kClient = ClientSecret::of_number(3);

struct AllEnded {
  explicit AllEnded(base::Executor& executor) : changed(executor) {}
  size_t count = 0;
  base::WaitList changed;
};

base::Task<void> counted(base::Task<void> task, AllEnded& ended) {
  co_await std::move(task);
  ++ended.count;
  ended.changed.notify_all();
}

base::Task<void> wait_for(AllEnded& ended, size_t all) {
  while (ended.count < all) co_await ended.changed.wait();
}

}  // namespace

std::vector<DataDurability> data_durabilities() {
  using persist::Domain;
  using persist::WriteLanding;
  std::vector<DataDurability> all = {
      {"eadr", Domain::kCpuCache, WriteLanding::kMemory, true},
      {"adr_ddio", Domain::kMemoryController, WriteLanding::kLastLevelCache, false},
      {"file", Domain::kNone, WriteLanding::kMemory, false}};
  if (modelled()) {
    all.push_back({"adr_memory", Domain::kMemoryController, WriteLanding::kMemory, true});
  }
  return all;
}

void DataScenario::SetUp() {
  setup_.domain = GetParam().domain;
  setup_.landing = GetParam().landing;
  auto target = Target::start(executor_, "file_data", setup_.to_args());
  ASSERT_TRUE(target) << target.error().to_string();
  target_ = std::move(*target);
  auto device = fabric::open_device(target_->uri().scheme, executor_, TestMachine::test_host());
  ASSERT_TRUE(device) << device.error().to_string();
  device_ = std::move(*device);
  service::LinkOptions options;
  options.service = kControlService;
  options.secret = kClient;
  options.connect_timeout_ns = kPatientTimeoutNs;
  options.rpc.call_timeout_ns = kPatientTimeoutNs;
  auto link = run(service::Link::open(*device_, target_->uri(), options, {}));
  ASSERT_TRUE(link) << link.error().to_string();
  control_ = std::move(*link);
  control_->keep_lease();
  data_ = open(data_options());
  ASSERT_NE(data_, nullptr);
}

void DataScenario::TearDown() {
  data_.reset();
  control_.reset();
  device_.reset();
  if (target_ != nullptr) {
    EXPECT_TRUE(target_->stop()) << "the target did not end in order";
  }
}

fs::FileDataOptions DataScenario::data_options() const {
  fs::FileDataOptions options;
  options.secret = kClient;
  options.connect_timeout_ns = kPatientTimeoutNs;
  options.call_timeout_ns = kPatientTimeoutNs;
  return options;
}

std::unique_ptr<fs::FileData> DataScenario::open(fs::FileDataOptions options) {
  auto opened = run(fs::FileData::open(*device_, target_->uri(), options));
  EXPECT_TRUE(opened) << opened.error().to_string();
  return opened ? std::move(*opened) : nullptr;
}

void DataScenario::run_together(std::vector<base::Task<void>> tasks) {
  AllEnded ended(executor_);
  const size_t all = tasks.size();
  for (auto& task : tasks) executor_.spawn(counted(std::move(task), ended));
  run(wait_for(ended, all));
}

base::Task<Result<std::vector<std::byte>>> DataScenario::control(uint16_t method,
                                                                 ControlRequest request) {
  const auto body = service::message_of(request);
  PMSTORE_CO_TRY(const auto reply, co_await control_->call(method, body, 2 * kSeenBytes));
  co_return std::vector<std::byte>(reply.bytes().begin(), reply.bytes().end());
}

fs::MapExtent DataScenario::allocate(uint64_t units) {
  const auto reply = run(control(kAllocate, {0, units * fs::kUnitBytes}));
  EXPECT_TRUE(reply) << reply.error().to_string();
  fabric::MessageReader reader(*reply);
  return reader.get<fs::MapExtent>();
}

base::Task<DataScenario::Invalidated> DataScenario::invalidate(fs::MapExtent extent) {
  const auto reply =
      co_await control(kInvalidate, ControlRequest{extent.place.offset, extent.place.bytes});
  EXPECT_TRUE(reply) << reply.error().to_string();
  Invalidated result;
  fabric::MessageReader reader(*reply);
  result.fresh = reader.get<fs::MapExtent>();
  const auto bytes = std::as_bytes(std::span(reader.get_bytes(kSeenBytes)));
  result.seen.assign(bytes.begin(), bytes.end());
  EXPECT_TRUE(reader.complete());
  co_return result;
}

std::vector<std::byte> DataScenario::see(const fs::MapExtent& extent, uint64_t offset) {
  auto reply = run(control(kSee, {extent.place.offset + offset, kSeenBytes}));
  EXPECT_TRUE(reply) << reply.error().to_string();
  return std::move(*reply);
}

DataScenario::Outcome DataScenario::write(const fs::MapExtent& extent, uint64_t offset,
                                          std::span<const std::byte> bytes) {
  std::vector<fs::WritePiece> pieces{{extent, offset, bytes}};
  return run(data_->write(data_->session(), std::move(pieces)));
}

DataScenario::Outcome DataScenario::read(const fs::MapExtent& extent, uint64_t offset,
                                         std::span<std::byte> into) {
  std::vector<fs::ReadPiece> pieces{{extent, offset, into}};
  return run(data_->read(data_->session(), std::move(pieces)));
}

}  // namespace pmstore::scenario
