#include "tests/scenario/fs/data/data_role.h"

#include <gtest/gtest.h>

#include <cstring>
#include <new>

#include "base/atomic_copy.h"
#include "base/check.h"
#include "fabric/message.h"

namespace pmstore::scenario {
namespace {

constexpr uint64_t kPageBytes = 4096;
// Of the pool, for what is not the units.
constexpr uint64_t kOtherBytes = 256 * 1024;

}  // namespace

std::vector<std::string> DataSetup::to_args() const {
  return {std::to_string(static_cast<int>(domain)), std::to_string(static_cast<int>(landing)),
          std::to_string(lease_ms)};
}

DataSetup DataSetup::from_args(const std::vector<std::string>& args) {
  DataSetup setup;
  setup.domain = static_cast<persist::Domain>(std::stoi(args.at(0)));
  setup.landing = static_cast<persist::WriteLanding>(std::stoi(args.at(1)));
  setup.lease_ms = static_cast<uint32_t>(std::stoul(args.at(2)));
  return setup;
}

// ---- the namespace's part ----

void ControlService::reply_map(fabric::RpcCall& call, const fs::AreaRange& place, bool with_bytes,
                               std::span<const std::byte> seen) {
  fabric::MessageWriter writer(call.reply_room());
  writer.put(fs::MapExtent{0, place, space_.generation(place)});
  if (with_bytes) {
    writer.put_bytes({reinterpret_cast<const char*>(seen.data()), seen.size()});
  }
  PMSTORE_CHECK(!writer.overflowed(), "a test gives room for the answer");
  call.reply_filled(writer.bytes());
}

void ControlService::on_call(service::Session& session, fabric::RpcCall call,
                             std::span<const std::byte> body) {
  fabric::MessageReader reader(body);
  const auto request = reader.get<ControlRequest>();
  const fs::AreaRange place{0, request.offset, request.bytes};
  std::vector<std::byte> seen(kSeenBytes);
  persist::Memory& memory = space_.area().memory();
  std::byte* const at = space_.bytes_at(request.offset, 1);
  switch (call.method()) {
    case kAllocate: {
      const auto made = space_.allocate(0, request.bytes, request.bytes);
      if (!made) return call.reply_error(made.error());
      return reply_map(call, *made, false, {});
    }
    case kInvalidate: {
      auto changing = space_.change_generations({place});
      changing.start();
      PMSTORE_CHECK(changing.done(), "words of this process change at once");
      base::copy_from_shared(seen.data(), at, seen.size());
      const std::vector<std::byte> poison(request.bytes, kPoison);
      memory.write(at, poison.data(), poison.size());
      return reply_map(call, place, true, seen);
    }
    case kSee: {
      base::copy_from_shared(seen.data(), at, seen.size());
      return call.reply(seen);
    }
    case kGrow: {
      const Status grown = grow(request.bytes);
      return grown ? call.reply({}) : call.reply_error(grown.error());
    }
    case kEndSessions: {
      data_.end_sessions(session.client, SessionEnd::kSilent);
      return call.reply({});
    }
    case kFree: {
      const std::vector<std::byte> zeros(place.bytes);
      memory.write(at, zeros.data(), zeros.size());
      space_.release(place);
      return call.reply({});
    }
    default: return host().drop_malformed(session, call);
  }
}

Status ControlService::grow(uint64_t bytes) {
  PMSTORE_TRY(const fs::AreaSection made, area_.add_section(pool_, bytes));
  space_.add_section(made);
  for (bool more = true; more;) {
    PMSTORE_TRY(more, data_.register_one());
  }
  space_.open_section(made.first_unit);
  return {};
}

// ---- the server ----

void FileDataRole::FreeMemory::operator()(std::byte* memory) const {
  ::operator delete[](memory, std::align_val_t{kPageBytes});
}

FileDataRole::~FileDataRole() {
  if (host_) host_->stop();
}

Result<fabric::Uri> FileDataRole::start(base::Executor& executor, const fabric::Uri& uri,
                                        const std::vector<std::string>& args) {
  const DataSetup setup = DataSetup::from_args(args);
  const uint64_t area_bytes = kDataBytes + 2 * fs::kUnitBytes;
  const uint64_t bytes = area_bytes + kLaterBytes + kOtherBytes;
  memory_.reset(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{kPageBytes})));
  std::memset(memory_.get(), 0, bytes);
  PMSTORE_TRY(pool_, persist::Pool::in_region({memory_.get(), bytes}, setup.domain, true));
  PMSTORE_TRY_STATUS(pool_->allocate_extent(persist::ExtentKind::kFileData, area_bytes));
  PMSTORE_TRY_STATUS(fs::FileArea::format(*pool_));
  PMSTORE_TRY(area_, fs::FileArea::open(*pool_));
  space_.emplace(executor, *area_);
  data_.emplace(*space_);
  control_.emplace(*pool_, *area_, *space_, *data_);
  service::HostOptions options;
  options.lease_ms = setup.lease_ms;
  options.domain = setup.domain;
  options.device_landing = setup.landing;
  options.devices = TestMachine::target_host();
  host_.emplace(executor, options);
  host_->add(*data_);
  host_->add(*control_);
  return executor.run(host_->listen(uri));
}

}  // namespace pmstore::scenario
