#include "tests/unit/cancellation/persist_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "fabric/internal/rpc_client_state.h"
#include "log/ring_layout.h"

namespace pmstore::cancellation {

using base::Task;
using persist::RemotePiece;

namespace {

constexpr uint64_t kRegionBytes = 64 << 10;
constexpr uint64_t kRingBytes = 16 << 10;
constexpr uint32_t kSalt = 7;
constexpr uint16_t kRingMethod = persist::kPersistWriteMethod + 1;
constexpr uint16_t kPersistMethod = persist::kPersistWriteMethod + 2;
constexpr uint64_t kBreaks = 4;
// A write of some pages takes more than one request, and a few fill the ring.
constexpr fabric::RpcOptions kRpc{
    .request_ring_bytes = 8 << 10, .reply_arena_bytes = 8 << 10, .max_calls = 16};
constexpr persist::PersistCapability kCapability{persist::Domain::kCpuCache,
                                                 persist::WriteLanding::kCpu, false};

struct RpcState {
  friend auto inside(RpcState, fabric::RpcClient& of);
};
template <typename Tag, typename Of, auto kMember>
struct Inside {
  friend auto inside(Tag, Of& of) { return (of.*kMember).get(); }
};
template struct Inside<RpcState, fabric::RpcClient, &fabric::RpcClient::state_>;

Task<void> write_beside(PersistWorld& world) {
  const RemotePiece piece = world.piece(40 << 10, 100);
  const std::span<const RemotePiece> all(&piece, 1);
  world.wrote(piece, co_await world.writer->write(all));
}

}  // namespace

PersistWorld::PersistWorld(persist::WriteStrategy strategy)
    : strategy_(strategy),
      region_(kRegionBytes + kRingBytes),
      memory_(region_.bytes(), {.domain = kCapability.domain}),
      source_(4 << 20),
      before_(kRegionBytes) {
  server_ = std::move(*fabric::open_device(fabric::Scheme::kLocal, executor_));
  granted_ = std::move(*server_->register_memory(
      region_.bytes(), fabric::Access::kRemoteRead | fabric::Access::kRemoteWrite));
  listener_ = std::move(*server_->listen({fabric::Scheme::kLocal, "writes", 0}, *this));
  uri_ = listener_->uri();
  device = std::move(*fabric::open_device(fabric::Scheme::kLocal, executor_));
  source_region_ = std::move(*device->register_memory(source_, fabric::Access::kLocal));
}

PersistWorld::~PersistWorld() {
  drop_client();
  listener_.reset();
  disconnect_all();
  source_region_.reset();
  device.reset();  // before the executor
}

// ---- the server ----

Result<std::vector<std::byte>> PersistWorld::on_hello(uint64_t token,
                                                      std::span<const std::byte> hello) {
  fabric::RemoteRegion replies;
  std::memcpy(&replies, hello.data(), sizeof replies);
  PMSTORE_TRY(const fabric::RemoteRegion requests, expect_client(token, *server_, replies, kRpc));
  return harness::message_of(requests);
}

void PersistWorld::on_call(fabric::RpcPeer&, fabric::RpcCall call) {
  if (call.method() == kRingMethod) {
    return service_.on_call(std::move(call), ring_->data_offset(), ring_->position().data_bytes);
  }
  if (call.method() == kPersistMethod) {
    persist::PersistRanges decoded;
    const Status good = persist::decode_persist_ranges(call.request(), kRegionBytes, decoded);
    if (!good) return call.reply_error(good.error());
    for (const auto& range : decoded.ranges()) memory_.flush(memory_.at(range.offset), range.bytes);
    const auto durable = memory_.drain();
    return durable ? call.reply({}) : call.reply_error(durable.error());
  }
  service_.on_call(std::move(call), 0, kRegionBytes);
}

// ---- the client ----

Task<Status> PersistWorld::connect() {
  PMSTORE_CO_TRY(rpc, fabric::RpcClient::create(*device, kRpc));
  fabric::ConnectOptions options;
  options.hello = std::as_bytes(std::span(&rpc->reply_region(), 1));
  PMSTORE_CO_TRY(connection, co_await device->connect(uri_, options));
  fabric::RemoteRegion requests;
  std::memcpy(&requests, connection->peer_hello().data(), sizeof requests);
  PMSTORE_CO_TRY_STATUS(rpc->attach(*connection, requests));
  fabric::RemoteRegion region = granted_->remote();
  fabric::RemoteRegion ring = region;
  region.bytes = kRegionBytes;
  ring.address += ring_->data_offset();
  ring.bytes = ring_->position().data_bytes;
  persist::RemoteWriterOptions how;
  how.strategy = strategy_;
  how.persist_method = kPersistMethod;
  PMSTORE_CO_TRY(writer, persist::RemoteWriter::create(*device, *connection, rpc.get(), region,
                                                       kCapability, how));
  how.rpc_method = kRingMethod;
  PMSTORE_CO_TRY(ring_writer, persist::RemoteWriter::create(*device, *connection, rpc.get(), ring,
                                                            kCapability, how));
  PMSTORE_CO_TRY(appender, log::RemoteAppender::create(*device, *ring_writer, ring_->position(),
                                                       log::RemoteAppender::kMinStagingBytes));
  co_return Status{};
}

void PersistWorld::drop_client() {
  beside_.reset();
  behind_.reset();
  if (connection != nullptr) connection->set_receiver(nullptr);
  connection.reset();
  appender.reset();
  ring_writer.reset();
  writer.reset();
  rpc.reset();
}

RemotePiece PersistWorld::piece(uint64_t at, uint32_t bytes) {
  const std::span<std::byte> from = std::span(source_).subspan(source_used_, bytes);
  source_used_ += bytes;
  ++payloads_;
  for (size_t i = 0; i < bytes; ++i) from[i] = static_cast<std::byte>(payloads_ * 37 + i);
  uncertain_.push_back({at, {from.begin(), from.end()}});
  return {{from.data(), bytes, source_region_.get()}, at};
}

void PersistWorld::wrote(const RemotePiece& piece, const Result<persist::Persisted>& result) {
  expect(result);
  if (result) std::copy_n(piece.from.data, piece.from.bytes, before_.data() + piece.offset);
  if (result) {
    std::erase_if(uncertain_, [&](const Written& each) { return each.at == piece.offset; });
  }
}

Attempt& PersistWorld::attempt(size_t entries, size_t bytes) {
  std::vector<std::string> payloads(entries);
  for (std::string& payload : payloads) {
    payload = std::to_string(++payloads_);
    payload.resize(std::max(bytes, payload.size()), 'p');
  }
  return attempts_.add(std::move(payloads), false);
}

Task<void> PersistWorld::append(Attempt& one) {
  const uint64_t sequence = next_sequence++;
  const auto result = co_await appender->append(sequence, bytes_of(one.payloads[0]));
  expect(result);
  if (result) one.last_index = sequence;
}

Task<void> PersistWorld::append_all(Attempt& several, log::RemoteAppender::RoomMaker* room) {
  const auto payloads = bytes_of(several.payloads);
  log::RemoteAppender::Entries entries;
  entries.payloads = payloads;
  entries.next_sequence = &next_sequence;
  entries.room = room;
  const auto result = co_await appender->append_all(entries);
  expect(result);
  if (result) several.last_index = entries.last_sequence;
}

// ---- a run ----

void PersistWorld::prepare() {
  attempts_.clear();
  uncertain_.clear();
  source_used_ = 0;
  next_sequence = 1;
  failed_ = false;
  ring_ = std::move(*log::Ring::format(memory_, kRegionBytes, kRingBytes, kSalt));
  EXPECT_TRUE(ring_->take_over(1));
  const Status connected = executor_.run(connect());
  EXPECT_TRUE(connected) << connected.error().to_string();
}

void PersistWorld::destroy_everywhere(const Case& tested, Weather weather, Aftermath aftermath) {
  case_ = &tested;
  weather_ = weather;
  aftermath_ = aftermath;
  cancellation::destroy_everywhere(weather, kBreaks, [this](uint64_t point, uint64_t breaks_at) {
    return destroy_at(point, breaks_at);
  });
}

bool PersistWorld::destroy_at(uint64_t point, uint64_t breaks_at) {
  settle(executor_);
  prepare();
  Cutter::End end;
  {
    const WeatherFaults faults(weather_, breaks_at);
    if (weather_ == Weather::kServerGone) disconnect_all();
    const auto begin_others = [this] {
      beside_ = write_beside(*this);
      beside_->start();
    };
    end = cutter_.run(case_->operation(*this), point, begin_others);
    if (aftermath_ == Aftermath::kDestroy && end == Cutter::End::kDestroyed) drop_client();
    if (beside_) {
      EXPECT_TRUE(run_until(executor_, kBoundNs, [this] { return beside_->done(); }))
          << "another write waits for ever";
    }
  }
  audit(end == Cutter::End::kDone);
  return end == Cutter::End::kDestroyed;
}

void PersistWorld::audit(bool done) {
  if (connection != nullptr) {
    use(!done);
    expect_nothing_leaked();
  }
  let_pass(executor_, kMillisecond);  // what is under way lands
  expect_bytes();
  expect_entries();
  drop_client();
  EXPECT_TRUE(run_until(executor_, 100 * kMillisecond, [this] { return clients() == 0; }))
      << "the server keeps a connection";
  EXPECT_EQ(handshakes(), 0u);
  std::copy_n(region_.data(), kRegionBytes, before_.data());
}

// A write to each place of the region, which is then what is there, and an append.
void PersistWorld::use(bool destroyed) {
  const auto write = [](PersistWorld& world) -> Task<bool> {
    for (const Written& each : std::vector<Written>(world.uncertain_)) {
      const RemotePiece piece = world.piece(each.at, static_cast<uint32_t>(each.bytes.size()));
      const std::span<const RemotePiece> all(&piece, 1);
      world.wrote(piece, co_await world.writer->write(all));
    }
    co_return true;
  };
  EXPECT_TRUE(within(executor_, kBoundNs, write(*this))) << "another write waits for ever";
  const auto append_more = [](PersistWorld& world, Attempt& more) -> Task<bool> {
    const uint64_t sequence = world.next_sequence;
    const auto result = co_await world.appender->append(sequence, bytes_of(more.payloads[0]));
    if (result) more.last_index = sequence;
    // The operation may have left the ring full.
    co_return result || result.code() == ErrorCode::kBackPressure;
  };
  const auto appended = within(executor_, kBoundNs, append_more(*this, attempt(1, 10)));
  ASSERT_TRUE(appended) << "another append waits for ever";
  EXPECT_TRUE(*appended || destroyed || breaks_sessions(weather_));
}

void PersistWorld::expect_nothing_leaked() {
  if (breaks_sessions(weather_)) return;
  let_pass(executor_, kMillisecond);  // completions and replies that nobody waits for
  EXPECT_EQ(connection->completions().leased_or_abandoned(), 0u);
  const auto& state = *inside(RpcState{}, *rpc);
  EXPECT_EQ(state.free_slots.size(), state.slots.size());
  EXPECT_EQ(state.first_waiting, nullptr);
  EXPECT_TRUE(appender->idle());
}

void PersistWorld::expect_bytes() {
  for (size_t i = 0; i < kRegionBytes; ++i) {
    const std::byte is = region_.bytes()[i];
    const bool may_be = is == before_[i] ||
                        std::any_of(uncertain_.begin(), uncertain_.end(), [&](const Written& one) {
                          return i - one.at < one.bytes.size() && one.bytes[i - one.at] == is;
                        });
    ASSERT_TRUE(may_be) << "byte " << i << " is neither what was acknowledged nor what was written";
  }
}

void PersistWorld::expect_entries() {
  std::vector<FoundEntry> found;
  ring_->for_each_landed([&](const log::EntryView& entry) {
    found.push_back(
        {entry.sequence,
         std::string(reinterpret_cast<const char*>(entry.payload.data()), entry.payload.size())});
  });
  attempts_.expect(found, true, ring_->position().start_lsn > 0);
}

}  // namespace pmstore::cancellation
