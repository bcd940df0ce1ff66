#include "fabric/tcp/internal/multiplexer_set.h"

#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <mutex>

namespace pmstore::fabric::tcp {

using internal::DestructionWatch;

namespace {

std::mutex sets_mutex;  // executors have threads of their own
std::map<const base::Executor*, std::weak_ptr<MultiplexerSet>>& sets() {
  static auto* const all = new std::map<const base::Executor*, std::weak_ptr<MultiplexerSet>>;
  return *all;
}

size_t open_file_limit() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

// Of `files` descriptors.
size_t most_silent(size_t files) {
  return std::clamp<size_t>(files / 8, 1, internal::Newcomers::kMost);
}

}  // namespace

MultiplexerSet::MultiplexerSet(base::Executor& executor) : executor_(executor) {
  executor_.add_poller(this);
}

std::shared_ptr<MultiplexerSet> MultiplexerSet::of(base::Executor& executor) {
  const std::lock_guard lock(sets_mutex);
  std::erase_if(sets(), [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = sets().find(&executor); found != sets().end()) {
    if (std::shared_ptr<MultiplexerSet> set = found->second.lock()) return set;
  }
  std::shared_ptr<MultiplexerSet> set(new MultiplexerSet(executor));
  sets()[&executor] = set;
  return set;
}

MultiplexerSet::~MultiplexerSet() {
  executor_.remove_poller(this);
  multiplexers_.clear();
}

size_t MultiplexerSet::poll() {
  DestructionWatch watch(lifetime_);
  std::erase_if(multiplexers_, [](const auto& multiplexer) { return multiplexer->over(); });
  if (!batch_is_of_use_) batch_.reset();
  flush_dirty();
  size_t handled = 0;
  if (executor_.spinning() && watched_.size() <= kReadAll) {
    handled = read_all();
  } else {
    if (!executor_.about_to_look()) executor_.look();
    handled = read_readable();
  }
  if (!watch.destroyed()) flush_dirty();
  return handled;
}

bool MultiplexerSet::arm() {
  if (!readable_.empty()) return false;
  for (Multiplexer* multiplexer : dirty_) {
    PMSTORE_CHECK(multiplexer->dirty && !multiplexer->over(), "what has to be sent can be sent");
    if (!multiplexer->connected()) continue;  // a tick asks whether it is
    if (!multiplexer->blocked()) return false;
    multiplexer->watch_room();
  }
  return true;
}

Multiplexer* MultiplexerSet::find(const std::string& where) const {
  const auto found =
      std::find_if(multiplexers_.begin(), multiplexers_.end(), [&](const auto& multiplexer) {
        return multiplexer->dialed() && !multiplexer->over() && !multiplexer->retired() &&
               multiplexer->where() == where;
      });
  return found == multiplexers_.end() ? nullptr : found->get();
}

Result<Multiplexer*> MultiplexerSet::dial(std::vector<SocketAddress> addresses,
                                          const std::string& where) {
  auto multiplexer = std::make_unique<Multiplexer>(*this, std::move(addresses), where);
  PMSTORE_TRY_STATUS(multiplexer->connect_next());
  multiplexers_.push_back(std::move(multiplexer));
  return multiplexers_.back().get();
}

void MultiplexerSet::withdraw(const MemoryRegion& region) {
  for (const auto& multiplexer : multiplexers_) multiplexer->withdraw(region);
}

Status MultiplexerSet::watch(int fd, Multiplexer& multiplexer) {
  PMSTORE_TRY_STATUS(executor_.watch(fd, EPOLLIN, multiplexer));
  watched_.push_back(&multiplexer);
  open_batch();
  return {};
}

void MultiplexerSet::forget(Multiplexer& multiplexer) {
  std::erase(dirty_, &multiplexer);
  std::erase(readable_, &multiplexer);
  std::erase(watched_, &multiplexer);
  multiplexer.dirty = multiplexer.readable = false;
}

void MultiplexerSet::adopt(Socket::Client client, TcpListener& listener) {
  const uint64_t now_ns = executor_.now_ns();
  if (internal::Newcomer* const surplus = silent_.surplus(client.origin, now_ns)) {
    static_cast<Multiplexer*>(surplus)->close_silent();
  }
  ++accepted_;
  multiplexers_.push_back(std::make_unique<Multiplexer>(*this, std::move(client), listener));
}

void MultiplexerSet::forget_listener(const TcpListener& listener) {
  for (const auto& multiplexer : multiplexers_) multiplexer->forget_listener(listener);
}

void MultiplexerSet::close_silent(uint64_t now_ns) {
  for (internal::Newcomer* oldest = silent_.oldest(); oldest != nullptr;) {
    if (now_ns < oldest->since_ns + kPatienceNs) break;
    static_cast<Multiplexer*>(oldest)->close_silent();
    oldest = silent_.oldest();
  }
  for (Multiplexer* multiplexer = leftovers_.front(); multiplexer != nullptr;) {
    Multiplexer* const next = leftovers_.next(*multiplexer);
    multiplexer->hang_up_when_stuck(now_ns, kPatienceNs);
    multiplexer = next;
  }
}

bool MultiplexerSet::close_one_silent(uint64_t now_ns) {
  internal::Newcomer* const oldest = silent_.oldest_of_most();
  if (oldest == nullptr || now_ns < oldest->since_ns + kHelloNs) return false;
  static_cast<Multiplexer*>(oldest)->close_silent();
  return true;
}

uint64_t MultiplexerSet::next_close_ns(uint64_t now_ns) const {
  uint64_t next_ns = leftovers_.empty() ? base::Poller::kNoEvent : now_ns + kLookNs;
  if (const internal::Newcomer* const oldest = silent_.oldest()) {
    next_ns = std::min(next_ns, oldest->since_ns + kPatienceNs);
  }
  return next_ns;
}

void MultiplexerSet::set_silent(Multiplexer& multiplexer, bool silent) {
  if (silent) {
    const internal::Origin origin = multiplexer.origin;
    silent_.add(multiplexer, origin, executor_.now_ns());
  } else {
    silent_.remove(multiplexer);
  }
}

void MultiplexerSet::set_leftover(Multiplexer& multiplexer, bool leftover) {
  if (leftover) {
    leftovers_.push_back(multiplexer);
  } else {
    leftovers_.remove(multiplexer);
  }
}

size_t MultiplexerSet::most_served() {
  const size_t files = open_file_limit();
  const size_t others = most_silent(files) + kOtherDescriptors;
  return std::clamp<size_t>(files - std::min(files, others), 1, kMostServed);
}

void MultiplexerSet::fit_descriptors() {
  silent_.set_most(most_silent(open_file_limit()));
  most_served_ = most_served();
}

Status MultiplexerSet::may_serve() const {
  PMSTORE_CHECK(accepted_ >= silent_.size(), "each silent socket was accepted");
  if (served() < most_served_) return {};
  const std::string remedy = most_served_ == kMostServed ? "end clients that are not needed"
                                                         : "raise the server's limit of open files";
  return make_error(ErrorCode::kBackPressure, "the server has " + std::to_string(most_served_) +
                                                  " clients over tcp, as many as it takes; " +
                                                  remedy + ", or try later");
}

void MultiplexerSet::open_batch() {
  if (batch_ != nullptr || watched_.size() < 2 || !executor_.options().io_uring) return;
  batch_ = SocketBatch::open();
  batch_is_of_use_ = true;
  together_.reserve(SocketBatch::kMaxCalls);
}

void MultiplexerSet::flush_dirty() {
  if (SocketBatch* const many = batch(dirty_.size())) {
    return flush_dirty_together(*many);
  }
  std::erase_if(dirty_, [](Multiplexer* multiplexer) {
    multiplexer->dirty = !multiplexer->flush_once();
    return !multiplexer->dirty;
  });
}

void MultiplexerSet::flush_dirty_together(SocketBatch& batch) {
  msghdr message;
  for (size_t next = 0; next < dirty_.size();) {
    together_.clear();
    for (; next < dirty_.size() && !batch.full(); ++next) {
      if (dirty_[next]->prepare_send(message)) {
        batch.add_send(dirty_[next]->fd(), message);
        together_.push_back(dirty_[next]);
      } else {
        dirty_[next]->flush_once();  // makes no system call
      }
    }
    batch_is_of_use_ &= batch.run();
    for (size_t i = 0; i < together_.size(); ++i) {
      together_[i]->finish_send(batch.result(static_cast<unsigned>(i)));
    }
  }
  std::erase_if(dirty_, [](Multiplexer* multiplexer) {
    multiplexer->dirty = multiplexer->has_more();
    return !multiplexer->dirty;
  });
}

size_t MultiplexerSet::read_all() {
  DestructionWatch watch(lifetime_);
  size_t handled = 0;
  readable_.clear();
  for (Multiplexer* multiplexer : watched_) multiplexer->readable = false;
  // One that is erased meanwhile lets another wait for the next turn.
  for (size_t i = 0; i < watched_.size(); ++i) {
    handled += watched_[i]->receive();
    if (watch.destroyed()) break;
  }
  return handled;
}

size_t MultiplexerSet::read_readable() {
  if (SocketBatch* const many = batch(readable_.size())) {
    return read_readable_together(*many);
  }
  size_t handled = 0;
  DestructionWatch watch(lifetime_);
  // Only those that are readable now. A callback may take some off the list.
  for (size_t left = readable_.size(); left > 0 && !readable_.empty(); --left) {
    Multiplexer& multiplexer = *readable_.front();
    readable_.erase(readable_.begin());
    PMSTORE_CHECK(std::exchange(multiplexer.readable, false), "it is in the list once");
    handled += multiplexer.receive();
    if (watch.destroyed()) break;
  }
  return handled;
}

size_t MultiplexerSet::read_readable_together(SocketBatch& batch) {
  msghdr message;
  // Those behind a full batch stay in the list for the next turn.
  together_.assign(readable_.begin(),
                   readable_.begin() + static_cast<ptrdiff_t>(std::min<size_t>(
                                           readable_.size(), SocketBatch::kMaxCalls)));
  readable_.erase(readable_.begin(), readable_.begin() + static_cast<ptrdiff_t>(together_.size()));
  for (Multiplexer* multiplexer : together_) {
    PMSTORE_CHECK(std::exchange(multiplexer->readable, false), "it is in the list once");
    multiplexer->prepare_receive(message);
    batch.add_receive(multiplexer->fd(), message);
  }
  batch_is_of_use_ &= batch.run();
  size_t handled = 0;
  DestructionWatch watch(lifetime_);
  for (size_t i = 0; i < together_.size(); ++i) {
    // A callback may have closed one; only the next poll deletes it.
    if (together_[i]->over()) continue;
    handled += together_[i]->finish_receive(batch.result(static_cast<unsigned>(i)));
    if (watch.destroyed()) break;
  }
  return handled;
}

}  // namespace pmstore::fabric::tcp
