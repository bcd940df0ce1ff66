#include "fs/internal/remote_area.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "fabric/message.h"

namespace pmstore::fs::internal {
namespace {

// Until a data server that is away is tried again in the background.
constexpr uint64_t kLookNs = 250'000'000;
constexpr unsigned kTries = 8;

bool is_away(const Error& why) {
  return why.code == ErrorCode::kDisconnected || why.code == ErrorCode::kTimeout;
}

template <typename T>
std::vector<std::byte> body_of(const T& value) {
  return service::message_of(value);
}

}  // namespace

Result<std::unique_ptr<RemoteArea>> RemoteArea::create(base::Executor& executor, fabric::Uri uri,
                                                       RemoteAreaOptions options) {
  PMSTORE_CHECK(options.file_system != 0 && options.server != 0,
                "only a file system's further data servers are elsewhere");
  PMSTORE_CHECK(!options.secret.empty(), "the owner of an area has a secret");
  PMSTORE_TRY(auto device, fabric::open_device(uri.scheme, executor, options.devices));
  return std::unique_ptr<RemoteArea>(
      new RemoteArea(executor, std::move(uri), options, std::move(device)));
}

RemoteArea::RemoteArea(base::Executor& executor, fabric::Uri uri, RemoteAreaOptions options,
                       std::unique_ptr<fabric::Device> device)
    : executor_(executor),
      uri_(std::move(uri)),
      options_(options),
      instance_(base::random_identity()),
      device_(std::move(device)),
      end_sent_(executor),
      reconnector_(executor, *this, {options.patience_ns, options.patience_ns}) {
  if (options_.bytes == 0) return;
  allocator_.emplace(options_.bytes / kUnitBytes);
  words_.assign(options_.bytes / kUnitBytes, 0);
}

RemoteArea::~RemoteArea() {
  sending_ = {};
  staying_connected_ = {};
}

// ---- sessions ----

base::Task<Status> RemoteArea::connected() {
  if (!usable()) {
    PMSTORE_CO_TRY_STATUS(co_await reconnector_.connected());
  }
  co_return co_await data_->connected();
}

base::Task<Status> RemoteArea::connect_once() {
  if (link_ != nullptr) link_->drop();
  link_.reset();
  service::LinkOptions with;
  with.service = service::ServiceId::kFileData;
  with.secret = options_.secret;
  with.connect_timeout_ns = options_.connect_timeout_ns;
  with.rpc.call_timeout_ns = options_.call_timeout_ns;
  // The data server may have taken a hello whose answer did not come, and have renewed its words
  // then: the next one comes from somebody else, so they are renewed again.
  if (std::exchange(hello_unanswered_, true)) instance_ = base::random_identity();
  AreaOwnerHello hello;
  hello.area = options_.area;
  hello.instance = instance_;
  hello.file_system = options_.file_system;
  hello.epoch = options_.epoch;
  hello.server = options_.server;
  for (unsigned i = 0; i < 3; ++i) {
    hello.start[i] = static_cast<uint16_t>(options_.start >> (16 * i));
  }
  auto opened = co_await service::Link::open(*device_, uri_, with, service::bytes_of(hello));
  if (!opened) {
    if (opened.code() == ErrorCode::kFenced && on_fenced) on_fenced(opened.error());
    co_return std::move(opened.error());
  }
  LinkRef made = std::move(*opened);
  PMSTORE_CO_TRY_STATUS(take_answer(*made));
  hello_unanswered_ = false;
  made->keep_lease();
  if (data_ == nullptr) {
    PMSTORE_CO_TRY_STATUS(co_await open_data());
  }
  link_ = std::move(made);
  co_return Status{};
}

Status RemoteArea::take_answer(const service::Link& made) {
  fabric::MessageReader reader(made.body());
  const auto answer = reader.get<AreaOwnerAnswer>();
  if (!reader.complete() || answer.area == 0 || answer.bytes == 0 ||
      answer.bytes % kUnitBytes != 0 || answer.bytes > kMaxAreaBytes) {
    return make_error(ErrorCode::kProtocol,
                      "the data server's answer makes no sense; is it of this version?");
  }
  if (options_.area != 0 && answer.area != options_.area) {
    return make_error(ErrorCode::kProtocol,
                      fmt::format("the data server has another area than that of data server {}",
                                  options_.server));
  }
  if (options_.bytes != 0 && answer.bytes != options_.bytes) {
    return make_error(ErrorCode::kDamaged,
                      fmt::format("the area of data server {} had {} bytes, and has {} now",
                                  options_.server, options_.bytes, answer.bytes));
  }
  options_.area = answer.area;
  options_.bytes = answer.bytes;
  if (!allocator_) allocator_.emplace(answer.bytes / kUnitBytes);
  if (answer.word == 0) {
    if (!words_.empty()) return {};
    return make_error(ErrorCode::kProtocol, "the data server takes this program for another one");
  }
  const bool is_again = !words_.empty();
  words_.assign(answer.bytes / kUnitBytes, answer.word);
  if (is_again && on_restarted) on_restarted();
  return {};
}

base::Task<Status> RemoteArea::open_data() {
  FileDataOptions with;
  with.secret = options_.secret;
  with.area = options_.area;
  with.call_timeout_ns = options_.call_timeout_ns;
  with.connect_timeout_ns = options_.connect_timeout_ns;
  with.reconnect_timeout_ns = options_.patience_ns;
  with.small_buffers = 16;
  with.large_buffers = 4;
  PMSTORE_CO_TRY(data_, co_await FileData::open(*device_, uri_, with));
  co_return Status{};
}

void RemoteArea::keep_connected() {
  staying_connected_ = stay_connected();
  staying_connected_.start();
}

base::Task<void> RemoteArea::stay_connected() {
  while (true) {
    co_await executor_.sleep_for(kLookNs);
    // One that is away is tried again; who needs it meanwhile is told why it cannot be had.
    if (!usable()) (void)co_await reconnector_.connected();
  }
}

base::Task<void> RemoteArea::close() {
  staying_connected_ = {};
  co_await reconnector_.close();
  if (data_ != nullptr) co_await data_->close();
  if (!usable()) co_return;
  const LinkRef link = link_;
  // Whether it arrives does not matter: the server sees the end of the connection.
  (void)co_await link->call(service::kGoodbyeMethod, {}, 0);
  link->drop();
}

base::Task<Status> RemoteArea::call(uint16_t method, std::vector<std::byte> body) {
  for (unsigned tries = 1;; ++tries) {
    if (!usable()) {
      PMSTORE_CO_TRY_STATUS(co_await reconnector_.connected());
    }
    const LinkRef link = link_;
    const auto answered = co_await link->call(method, body, 0);
    if (answered) co_return Status{};
    if (!is_away(answered.error())) co_return answered.error();
    // What may still be under way ends with its session.
    link->drop();
    if (tries == kTries) co_return answered.error();
  }
}

base::Task<void> RemoteArea::look_again() {
  if (!usable()) co_return;
  const LinkRef link = link_;
  const auto pong = co_await link->call(service::kPingMethod, {}, 0);
  if (!pong) link->drop();
}

// ---- units and words ----

bool RemoteArea::is_inside(uint64_t offset, uint64_t bytes) const {
  return bytes > 0 && offset < options_.bytes && bytes <= options_.bytes - offset;
}

bool RemoteArea::claim(uint64_t offset, uint64_t bytes) {
  return is_inside(offset, bytes) && allocator_->claim({offset / kUnitBytes, bytes / kUnitBytes});
}

std::optional<UnitAllocator::Run> RemoteArea::allocate(uint64_t least_units, uint64_t most_units) {
  return allocator_->allocate(least_units, most_units);
}

void RemoteArea::release(uint64_t offset, uint64_t bytes) {
  allocator_->release({offset / kUnitBytes, bytes / kUnitBytes});
}

uint64_t RemoteArea::word(uint64_t offset) const {
  PMSTORE_CHECK(offset < options_.bytes, "each unit has a word");
  return words_[offset / kUnitBytes];
}

base::Task<Status> RemoteArea::change_words(std::vector<uint64_t> offsets) {
  for (size_t from = 0; from < offsets.size(); from += kMaxAreaWords) {
    const size_t count = std::min(kMaxAreaWords, offsets.size() - from);
    for (unsigned tries = 1;; ++tries) {
      if (!usable()) {
        PMSTORE_CO_TRY_STATUS(co_await reconnector_.connected());
      }
      // Of now: a data server that was started again has others than the last try has seen.
      std::vector<std::byte> body(sizeof(AreaSetWords) + count * sizeof(AreaWord));
      fabric::MessageWriter writer(body);
      writer.put(AreaSetWords{static_cast<uint32_t>(count), 0});
      for (size_t i = from; i < from + count; ++i) {
        uint64_t& word = words_[offsets[i] / kUnitBytes];
        writer.put(AreaWord{offsets[i], ++word});
      }
      PMSTORE_CHECK(!writer.overflowed(), "the message was measured");
      const LinkRef link = link_;
      const auto answered = co_await link->call(kAreaSetWordsMethod, body, 0);
      if (answered) break;
      if (!is_away(answered.error())) co_return answered.error();
      link->drop();
      if (tries == kTries) co_return answered.error();
    }
  }
  co_return Status{};
}

// ---- bytes ----

MapExtent RemoteArea::extent_at(uint64_t offset, uint64_t bytes) const {
  const uint64_t first = offset / kUnitBytes * kUnitBytes;
  const uint64_t end = (offset + bytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
  MapExtent extent;
  extent.place = {options_.server, first, end - first};
  extent.generation = word(first);
  return extent;
}

namespace {

Error words_go_on_changing(uint16_t server) {
  return make_error(ErrorCode::kDisconnected,
                    fmt::format("data server {} was started again, or does not answer", server));
}

}  // namespace

base::Task<Status> RemoteArea::write(uint64_t offset, std::span<const std::byte> bytes) {
  for (unsigned tries = 0; tries < kTries; ++tries) {
    PMSTORE_CO_TRY_STATUS(co_await connected());
    const MapExtent extent = extent_at(offset, bytes.size());
    std::vector<WritePiece> pieces{{extent, offset - extent.place.offset, bytes}};
    PMSTORE_CO_TRY(const DataOutcome outcome,
                   co_await data_->write(data_->session(), std::move(pieces)));
    if (outcome == DataOutcome::kDone) co_return Status{};
    co_await look_again();
  }
  co_return words_go_on_changing(options_.server);
}

base::Task<Status> RemoteArea::read(uint64_t offset, std::span<std::byte> into) {
  for (unsigned tries = 0; tries < kTries; ++tries) {
    PMSTORE_CO_TRY_STATUS(co_await connected());
    const MapExtent extent = extent_at(offset, into.size());
    std::vector<ReadPiece> pieces{{extent, offset - extent.place.offset, into}};
    PMSTORE_CO_TRY(const DataOutcome outcome,
                   co_await data_->read(data_->session(), std::move(pieces)));
    if (outcome == DataOutcome::kDone) co_return Status{};
    co_await look_again();
  }
  co_return words_go_on_changing(options_.server);
}

base::Task<Status> RemoteArea::landed() {
  if (data_ == nullptr) co_return Status{};
  co_return co_await data_->landed();
}

base::Task<Status> RemoteArea::zero(uint64_t offset, uint64_t bytes) {
  for (uint64_t done = 0; done < bytes;) {
    const AreaZero part{offset + done, std::min(kMaxAreaZeroBytes, bytes - done)};
    PMSTORE_CO_TRY_STATUS(co_await call(kAreaZeroMethod, body_of(part)));
    done += part.bytes;
  }
  co_return Status{};
}

// ---- clients that go ----

void RemoteArea::end_client(const ClientId& client) {
  if (ends_.size() < kMostEnds) {
    ends_.insert(client);
  } else {
    end_all_ = true;
  }
  if (!std::exchange(sending_ends_, true)) sending_.run(send_ends());
}

base::Task<void> RemoteArea::send_ends() {
  const base::RunningTasks::Position here = sending_.started_last();
  while (has_ends()) {
    // One that is to be ended once more meanwhile is in the set again.
    is_ending_ = true;
    const bool all = std::exchange(end_all_, false);
    const AreaEndClient what{all ? ClientId{} : *ends_.begin()};
    if (!all) ends_.erase(ends_.begin());
    const Status ended = co_await call(kAreaEndClientMethod, body_of(what));
    is_ending_ = false;
    if (!ended && all) end_all_ = true;
    if (!ended && !all) ends_.insert(what.client);
    end_sent_.notify_all();
    if (!ended) co_await executor_.sleep_for(kLookNs);
  }
  sending_ends_ = false;
  sending_.ended(here);
}

base::Task<Status> RemoteArea::clients_ended() {
  while (has_ends()) {
    co_await end_sent_.wait();
    if (!has_ends() || usable()) continue;
    co_return make_error(ErrorCode::kDisconnected,
                         fmt::format("data server {} is away, so a client that is gone may still "
                                     "write there",
                                     options_.server));
  }
  co_return Status{};
}

base::Task<Status> RemoteArea::give_up() {
  PMSTORE_CHECK(allocator_->free_units() == allocator_->units(),
                "an area that is given up holds nothing");
  co_return co_await call(kAreaReleaseMethod, {});
}

}  // namespace pmstore::fs::internal
