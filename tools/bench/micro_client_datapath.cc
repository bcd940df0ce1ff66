// The clients of the remote-access benchmark: issuing requests and counting them.
#include <algorithm>
#include <cstring>

#include "tools/bench/micro_link.h"

namespace pmstore::tools {
namespace {

constexpr uint64_t kRoomNs = 1000;
// A fabric that completes inside post() never suspends a coroutine; the others have a right, too.
constexpr uint32_t kTurns = 64;

bool is_full(const Status& status) { return status.code() == ErrorCode::kBackPressure; }

}  // namespace

std::byte* MicroClient::buffer(const Link& link, uint32_t slot) {
  return memory_.data() + buffer_bytes_ * (size_t{link.number} * slots_ + slot);
}

void MicroClient::begin(uint64_t now_ns) {
  phase_ = Phase::kCounting;
  tally_.begin_ns = now_ns;
  counters_at_begin_ = counters();
  if (control_->began_.fetch_add(1) == 0 && control_->on_begin) control_->on_begin();
}

void MicroClient::end(uint64_t now_ns) {
  phase_ = Phase::kOver;
  tally_.end_ns = now_ns;
  tally_.counters = counters() - counters_at_begin_;
  if (control_->ended_.fetch_add(1) + 1 == control_->clients_ && control_->on_end) {
    control_->on_end();
  }
}

// The completion that ends the warm-up is not counted, and the one that ends the measurement is. So
// the counters of both moments differ by exactly the requests of the counted operations.
void MicroClient::count(uint64_t start_ns, uint64_t end_ns, uint32_t requests) {
  const bool by_time = point_.ops == 0;
  if (phase_ == Phase::kCounting) [[likely]] {
    const uint64_t counted = by_time ? requests : std::min<uint64_t>(requests, ops_left_);
    for (uint64_t i = 0; i < counted; ++i) tally_.latency_ns.record(end_ns - start_ns);
    if (!by_time) ops_left_ -= counted;
    if (by_time ? end_ns >= end_ns_ : ops_left_ == 0) end(end_ns);
  } else if (phase_ == Phase::kWarmUp) {
    warm_ops_ -= std::min<uint64_t>(warm_ops_, requests);
    if (by_time ? end_ns >= warm_until_ns_ : warm_ops_ == 0) begin(end_ns);
  }
}

void MicroClient::add_request(Link& link, std::byte* local) {
  const fabric::LocalBuffer from{local, bytes_, region_.get()};
  const fabric::RemoteAddress to = link.routes.front()->answer.granted.at(link.addresses.next());
  switch (point_.op) {
    case MicroOp::kWrite: batch_.write(from, to); return;
    case MicroOp::kAtomic: batch_.fetch_add(from, to, 1); return;
    case MicroOp::kRead:
    case MicroOp::kEcho: batch_.read(from, to); return;
  }
}

base::Task<Status> MicroClient::one_sided(Link& link, uint32_t slot) {
  base::Executor& executor = device_.executor();
  std::byte* const local = buffer(link, slot);
  const size_t step = buffer_bytes_ / point_.batch;
  uint64_t start_ns = executor.now_ns();
  for (uint32_t turn = 1; !over(); ++turn) {
    batch_.clear();
    for (uint32_t i = 0; i < point_.batch; ++i) add_request(link, local + i * step);
    Status done = co_await link.routes.front()->connection->execute(batch_);
    if (!done) [[unlikely]] {
      if (!is_full(done)) co_return done;
      co_await executor.sleep_for(kRoomNs);
      continue;
    }
    const uint64_t end_ns = executor.now_ns();
    count(start_ns, end_ns, point_.batch);
    start_ns = end_ns;
    if (turn % kTurns == 0) co_await executor.yield();
  }
  co_return Status{};
}

// Rule H9 off: every request of a batch has a doorbell of its own; still only the last is signaled.
base::Task<Status> MicroClient::one_by_one(Link& link, uint32_t slot) {
  base::Executor& executor = device_.executor();
  std::byte* const local = buffer(link, slot);
  const size_t step = buffer_bytes_ / point_.batch;
  uint64_t start_ns = executor.now_ns();
  uint32_t posted = 0;
  for (uint32_t turn = 1; !over(); ++turn) {
    Status done;
    while (done && posted + 1 < point_.batch) {
      batch_.clear();
      add_request(link, local + posted * step);
      done = link.routes.front()->connection->post(batch_, nullptr);
      if (done) ++posted;
    }
    if (done) {
      batch_.clear();
      add_request(link, local + posted * step);
      done = co_await link.routes.front()->connection->execute(batch_);
    }
    if (!done) [[unlikely]] {
      if (!is_full(done)) co_return done;
      co_await executor.sleep_for(kRoomNs);
      continue;
    }
    posted = 0;
    const uint64_t end_ns = executor.now_ns();
    count(start_ns, end_ns, point_.batch);
    start_ns = end_ns;
    if (turn % kTurns == 0) co_await executor.yield();
  }
  co_return Status{};
}

base::Task<Status> MicroClient::two_sided(Link& link, uint32_t slot) {
  base::Executor& executor = device_.executor();
  std::byte* const message = buffer(link, slot);
  const bool write = point_.op == MicroOp::kWrite;
  const bool echo = point_.op == MicroOp::kEcho;
  const uint16_t method = echo ? kMicroEchoMethod : write ? kMicroStoreMethod : kMicroLoadMethod;
  const size_t carried = echo ? bytes_ : sizeof(MicroRequest) + (write ? bytes_ : 0);
  const uint32_t wanted = point_.op == MicroOp::kRead ? bytes_ : 0;
  uint64_t start_ns = executor.now_ns();
  for (uint32_t turn = 1; !over(); ++turn) {
    const uint64_t offset = echo ? 0 : link.addresses.next();
    if (!echo) {
      const MicroRequest request{offset, bytes_, 0};
      std::memcpy(message, &request, sizeof request);
    }
    const std::span<const std::byte> bytes(message, carried);
    Result<fabric::RpcReply> reply = co_await link.route(offset).rpc->call(method, bytes, wanted);
    if (!reply) [[unlikely]]
      co_return std::move(reply.error());
    const uint64_t end_ns = executor.now_ns();
    count(start_ns, end_ns, 1);
    start_ns = end_ns;
    if (turn % kTurns == 0) co_await executor.yield();
  }
  co_return Status{};
}

base::Task<Status> MicroClient::persistent(Link& link, uint32_t slot) {
  base::Executor& executor = device_.executor();
  std::byte* const local = buffer(link, slot);
  uint64_t start_ns = executor.now_ns();
  for (uint32_t turn = 1; !over(); ++turn) {
    const uint64_t offset = link.addresses.next();
    const persist::RemotePiece pieces[] = {{{local, bytes_, region_.get()}, offset}};
    const std::span<const persist::RemotePiece> all(pieces);
    Result<persist::Persisted> durable = co_await link.route(offset).writer->write(all);
    if (!durable) [[unlikely]]
      co_return std::move(durable.error());
    const uint64_t end_ns = executor.now_ns();
    count(start_ns, end_ns, 1);
    start_ns = end_ns;
    if (turn % kTurns == 0) co_await executor.yield();
  }
  co_return Status{};
}

base::Task<void> MicroClient::keep_busy(Link& link, uint32_t slot) {
  // The written bytes tell which client wrote them.
  std::memset(buffer(link, slot), static_cast<int>(1 + (index_ + link.number + slot) % 255),
              buffer_bytes_);
  Status done;
  if (point_.persistent) {
    done = co_await persistent(link, slot);
  } else if (!is_one_sided(point_)) {
    done = co_await two_sided(link, slot);
  } else if (point_.batch > 1 && !point_.rules.has(persist::Rule::kH9)) {
    done = co_await one_by_one(link, slot);
  } else {
    done = co_await one_sided(link, slot);
  }
  if (!done) control_->fail(std::move(done.error()));
  if (--working_ == 0) all_ended_.notify_all();
}

base::Task<void> MicroClient::work() {
  base::Executor& executor = device_.executor();
  // With fewer operations than clients, some have none.
  if (point_.ops != 0 && ops_left_ == 0) {
    begin(executor.now_ns());
    end(executor.now_ns());
    co_return;
  }
  if (point_.ops != 0 && warm_ops_ == 0) begin(executor.now_ns());
  working_ = slots_ * point_.connections;
  for (const auto& link : links_) {
    for (uint32_t slot = 0; slot < slots_; ++slot) executor.spawn(keep_busy(*link, slot));
  }
  while (working_ > 0) co_await all_ended_.wait();
}

}  // namespace pmstore::tools
