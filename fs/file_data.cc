// Of FileData: its session, and registered memory. Accesses are in file_data_datapath.cc.
#include "fs/file_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "fs/internal/file_data_state.h"

namespace pmstore::fs {
namespace {

Error bad_data_answer(std::string_view what) {
  return make_error(ErrorCode::kProtocol,
                    fmt::format("the data server's handshake {}; is it a pmstore server of this "
                                "version?",
                                what));
}

}  // namespace

FileData::State::State(fabric::Device& data_device, fabric::Uri server, FileDataOptions with)
    : device(data_device),
      executor(data_device.executor()),
      uri(std::move(server)),
      options(with),
      instance(base::random_identity()),
      area(options.area),
      access_ended(executor),
      reconnector(executor, *this, {options.reconnect_timeout_ns, options.connect_timeout_ns}) {}

// Workers go first, then the connection, then the memory that its peer or its queue can reach.
FileData::State::~State() {
  workers = {};
  drop_session();
}

FileData::FileData(std::unique_ptr<State> state) : state_(std::move(state)) {}
FileData::~FileData() = default;

base::Task<Result<std::unique_ptr<FileData>>> FileData::open(fabric::Device& device,
                                                             fabric::Uri uri,
                                                             FileDataOptions options) {
  auto state = std::make_unique<State>(device, std::move(uri), options);
  PMSTORE_CO_TRY(state->buffers,
                 internal::TransferBuffers::create(device, options.small_buffers,
                                                   options.large_buffers, kMaxMessageData));
  // Not touched before it is used, so it costs nothing where no write is a message.
  state->message.reset(new std::byte[kMaxDataWriteHead + kMaxMessageData]);
  PMSTORE_CO_TRY_STATUS(co_await state->connect_once());
  co_return std::unique_ptr<FileData>(new FileData(std::move(state)));
}

// ---- the session ----

// What was under way has failed with its session, or ends on it.
base::Task<void> FileData::State::let_go() { co_return; }

void FileData::State::drop_session() {
  if (session != nullptr) ended_counters += session->link->connection().counters();
  session.reset();
}

base::Task<Status> FileData::State::connect_once() {
  drop_session();
  service::LinkOptions with;
  with.service = service::ServiceId::kFileData;
  with.secret = options.secret;
  with.connect_timeout_ns = options.connect_timeout_ns;
  with.rpc.call_timeout_ns = options.call_timeout_ns;
  const FileDataHello hello{area, instance};
  PMSTORE_CO_TRY(auto link,
                 co_await service::Link::open(device, uri, with, service::bytes_of(hello)));
  PMSTORE_CO_TRY(SessionRef made, check_answer(std::move(link)));
  PMSTORE_CHECK(session == nullptr, "one session at a time");
  session = std::move(made);
  area = session->area;
  session->number = ++generation;
  const uint64_t start = session->link->welcome().epoch;
  if (starts.empty() || starts.rbegin()->second != start) starts.emplace(generation, start);
  may_land = false;  // the server has ended the session before
  session->link->keep_lease();
  co_return Status{};
}

Result<FileData::State::SessionRef> FileData::State::check_answer(
    std::unique_ptr<service::Link> link) {
  auto made = std::make_shared<Session>();
  FileDataAnswer answer;
  const std::span<const std::byte> given = link->body();
  if (given.size() != sizeof answer) return bad_data_answer("has the wrong length");
  std::memcpy(&answer, given.data(), sizeof answer);
  if (answer.area == 0) return bad_data_answer("grants units of no area");
  const fabric::Capabilities& fabric = link->connection().capabilities();
  if (!fabric.read_after_read) {
    return make_error(ErrorCode::kUnsupported,
                      "this fabric does not keep READs in order, so a map that has changed would "
                      "not be noticed: connect by verbs, tcp or shm");
  }
  const persist::PersistCapability server = link->welcome().persist_capability();
  PMSTORE_TRY(made->strategy, persist::negotiate(options.write_strategy, server, fabric));
  made->area = answer.area;
  made->part_bytes = kMaxMessageData;
  made->by_message = made->strategy == persist::WriteStrategy::kTwoSided;
  if (made->by_message) {
    const uint32_t most = link->rpc().max_request_bytes();
    if (most <= kMaxDataWriteHead) return bad_data_answer("has no room for a write");
    made->part_bytes = std::min<size_t>(kMaxMessageData, most - kMaxDataWriteHead);
    // Persistent memory is written past the caches of the server's CPU (rule H7), a file is not.
    const bool is_file = server.domain == persist::Domain::kNone;
    const bool keeps_order = fabric.read_after_write && fabric.write_after_write;
    // Over tcp a reader could see half of a word in the middle of a large WRITE.
    const bool keeps_words = uri.scheme != fabric::Scheme::kTcp;
    if (is_file && fabric.cpu_moves_data && keeps_order && keeps_words &&
        options.write_strategy == persist::WriteStrategy::kAuto) {
      made->one_sided_bytes = State::kOneSidedBytes;
    }
  }
  made->link = std::move(link);
  PMSTORE_TRY_STATUS(add_section(*made, {0, answer.units, answer.words}));
  made->end = made->sections.front()->end;
  return made;
}

Status FileData::State::add_section(Session& to, const DataSection& given) const {
  const uint64_t units = given.units.bytes / kUnitBytes;
  if (given.units.bytes % kUnitBytes != 0 || units == 0 ||
      given.words.bytes != units * sizeof(uint64_t) || given.offset % kUnitBytes != 0 ||
      given.offset > UINT64_MAX - given.units.bytes) {
    return bad_data_answer("grants units without their words");
  }
  auto made = std::make_shared<Section>();
  made->begin = given.offset;
  made->end = given.offset + given.units.bytes;
  made->units = {given.units.address - given.offset, made->end, given.units.key};
  const uint64_t words_offset = given.offset / kUnitBytes * sizeof(uint64_t);
  made->words = {given.words.address - words_offset, words_offset + given.words.bytes,
                 given.words.key};
  service::Link& link = *to.link;
  const service::RequestPrefix prefix = link.prefix();
  persist::RemoteWriterOptions writing{.strategy = to.strategy};
  writing.persist_method = kDataPersistMethod;
  writing.persist_prefix = service::bytes_of(prefix);
  PMSTORE_TRY(made->writer,
              persist::RemoteWriter::create(device, link.connection(), &link.rpc(), made->units,
                                            link.welcome().persist_capability(), writing));
  to.knew_later_section |= made->begin != 0;
  to.sections.push_back(std::move(made));
  return {};
}

base::Task<Status> FileData::connected() {
  State& state = *state_;
  if (state.ready()) co_return Status{};
  co_return co_await state.reconnector.connected();
}

base::Task<void> FileData::settled() { return state_->settled(); }

base::Task<void> FileData::State::settled() {
  const uint64_t through = last_access;
  while (!under_way.empty() && *under_way.begin() <= through) co_await access_ended.wait();
}

base::Task<Status> FileData::landed() { return state_->landed(); }
base::Task<Status> FileData::landed_by(uint64_t until_ns) { return state_->landed_by(until_ns); }

base::Task<Status> FileData::State::landed() {
  co_await settled();
  co_return nothing_may_land();
}

base::Task<Status> FileData::State::landed_by(uint64_t until_ns) {
  constexpr uint64_t kFirstPauseNs = 20'000;
  constexpr uint64_t kLongestPauseNs = 5'000'000;
  const uint64_t through = last_access;
  uint64_t pause_ns = kFirstPauseNs;
  while (!under_way.empty() && *under_way.begin() <= through) {
    if (executor.now_ns() >= until_ns) {
      co_return make_error(ErrorCode::kDisconnected, "the data server has not answered yet");
    }
    co_await executor.sleep_until(std::min(executor.now_ns() + pause_ns, until_ns));
    pause_ns = std::min(2 * pause_ns, kLongestPauseNs);
  }
  co_return nothing_may_land();
}

// Without a session, or with one whose writes may have failed, one is being made.
Status FileData::State::nothing_may_land() {
  if (!may_land) return {};
  if (session != nullptr) session->link->drop();
  if (!reconnector.closed() && !reconnector.connecting()) workers.run(connect_again());
  return make_error(ErrorCode::kDisconnected,
                    "what was written in a lost session may still arrive");
}

base::Task<void> FileData::State::connect_again() {
  const base::RunningTasks::Position here = workers.started_last();
  // Without success the next who asks tries again.
  [[maybe_unused]] const Status again = co_await reconnector.connected();
  workers.ended(here);
}

base::Task<void> FileData::close() {
  State& state = *state_;
  co_await state.reconnector.close();
  co_await settled();
  if (state.usable()) state.workers.run(state.say_goodbye(state.session));
  while (state.usable()) co_await state.access_ended.wait();
}

// Whether it arrives does not matter: the server sees the end of the connection.
base::Task<void> FileData::State::say_goodbye(SessionRef last) {
  const base::RunningTasks::Position here = workers.started_last();
  (void)co_await last->link->call(service::kGoodbyeMethod, {}, 0);
  last->link->drop();
  access_ended.notify_all();
  workers.ended(here);
}

// ---- registered memory ----

Status FileData::register_buffer(std::span<std::byte> memory) {
  auto& registered = state_->registered;
  const auto behind = registered.lower_bound(memory.data());
  bool touches = behind != registered.end() && behind->first < memory.data() + memory.size();
  if (behind != registered.begin()) {
    const auto before = std::prev(behind)->second->bytes();
    touches |= before.data() + before.size() > memory.data();
  }
  PMSTORE_CHECK(!memory.empty() && !touches, "memory is registered once");
  PMSTORE_TRY(auto region, state_->device.register_memory(memory, fabric::Access::kLocal));
  registered.emplace(memory.data(), std::move(region));
  return {};
}

base::Task<void> FileData::forget_buffer(std::span<std::byte> memory) {
  State& state = *state_;
  const auto found = state.registered.find(memory.data());
  PMSTORE_CHECK(found != state.registered.end() && found->second->bytes().size() == memory.size(),
                "memory is forgotten as it was registered");
  // What begins meanwhile copies.
  std::unique_ptr<fabric::MemoryRegion> region = std::move(found->second);
  state.registered.erase(found);
  state.workers.run(state.retire(std::move(region)));
  co_await state.settled();
}

// What is under way may still reach the region, whatever becomes of who has waited for that.
base::Task<void> FileData::State::retire(std::unique_ptr<fabric::MemoryRegion> region) {
  const base::RunningTasks::Position here = workers.started_last();
  co_await settled();
  region.reset();
  workers.ended(here);
}

// ---- what is known ----

uint64_t FileData::session() const { return state_->generation; }
uint64_t FileData::start_of(uint64_t session) const {
  const auto behind = state_->starts.upper_bound(session);
  PMSTORE_CHECK(session != 0 && behind != state_->starts.begin(), "a session that was made");
  return std::prev(behind)->second;
}
uint64_t FileData::area() const { return state_->area; }
uint64_t FileData::bytes() const {
  if (state_->session == nullptr) return 0;
  uint64_t all = 0;
  for (const auto& section : state_->session->sections) all += section->end - section->begin;
  return all;
}
persist::WriteStrategy FileData::strategy() const {
  if (state_->session == nullptr) return persist::WriteStrategy::kTwoSided;
  return state_->session->strategy;
}
fabric::Counters FileData::counters() const {
  fabric::Counters all = state_->ended_counters;
  if (state_->session != nullptr) all += state_->session->link->connection().counters();
  return all;
}

}  // namespace pmstore::fs
