#include "fabric/tcp/internal/multiplexer_set.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
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

}  // namespace

MultiplexerSet::MultiplexerSet(base::Executor& executor) : executor_(executor) {
  executor_.add_poller(this);
}

Result<std::shared_ptr<MultiplexerSet>> MultiplexerSet::of(base::Executor& executor) {
  const std::lock_guard lock(sets_mutex);
  std::erase_if(sets(), [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = sets().find(&executor); found != sets().end()) {
    if (std::shared_ptr<MultiplexerSet> set = found->second.lock()) return set;
  }
  std::shared_ptr<MultiplexerSet> set(new MultiplexerSet(executor));
  set->epoll_ = base::FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  if (!set->epoll_) {
    return make_error(ErrorCode::kIo, std::string("cannot create an epoll set: ") +
                                          strerror(errno) + "; check the limit of open files");
  }
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
  flush_dirty();
  const size_t handled = watched_.size() <= kReadAll || !watches_all_ ? read_all() : read_ready();
  if (!watch.destroyed()) flush_dirty();
  return handled;
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

void MultiplexerSet::watch(int fd, Multiplexer& multiplexer) {
  watched_.push_back(&multiplexer);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &multiplexer;
  // The limits of epoll may be used up (fs.epoll.max_user_watches); then all are read each time.
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) watches_all_ = false;
}

void MultiplexerSet::forget(int fd, Multiplexer& multiplexer) {
  std::erase(dirty_, &multiplexer);
  if (std::erase(watched_, &multiplexer) > 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void MultiplexerSet::adopt(Socket socket, TcpListener& listener) {
  if (multiplexers_.size() >= kMaxMultiplexers) return;
  multiplexers_.push_back(
      std::make_unique<Multiplexer>(*this, std::move(socket), listener, executor_.now_ns()));
}

void MultiplexerSet::forget_listener(const TcpListener& listener) {
  for (const auto& multiplexer : multiplexers_) multiplexer->forget_listener(listener);
}

void MultiplexerSet::close_idle(uint64_t now_ns) {
  for (const auto& multiplexer : multiplexers_) multiplexer->close_when_idle(now_ns, kIdleNs);
}

void MultiplexerSet::flush_dirty() {
  std::erase_if(dirty_, [](Multiplexer* multiplexer) {
    multiplexer->dirty = !multiplexer->flush();
    return !multiplexer->dirty;
  });
}

size_t MultiplexerSet::read_all() {
  DestructionWatch watch(lifetime_);
  size_t handled = 0;
  // One that is erased meanwhile lets another wait for the next turn.
  for (size_t i = 0; i < watched_.size(); ++i) {
    handled += watched_[i]->receive();
    if (watch.destroyed()) break;
  }
  return handled;
}

size_t MultiplexerSet::read_ready() {
  epoll_event ready[kMaxReady];
  const int count = epoll_wait(epoll_.get(), ready, kMaxReady, 0);
  size_t handled = 0;
  DestructionWatch watch(lifetime_);
  for (int i = 0; i < count && !watch.destroyed(); ++i) {
    auto* const multiplexer = static_cast<Multiplexer*>(ready[i].data.ptr);
    if (!multiplexer->over()) handled += multiplexer->receive();
  }
  return handled;
}

}  // namespace pmstore::fabric::tcp
