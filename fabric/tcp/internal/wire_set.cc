#include "fabric/tcp/internal/wire_set.h"

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
std::map<const base::Executor*, std::weak_ptr<WireSet>>& sets() {
  static auto* const all = new std::map<const base::Executor*, std::weak_ptr<WireSet>>;
  return *all;
}

}  // namespace

WireSet::WireSet(base::Executor& executor) : executor_(executor) { executor_.add_poller(this); }

Result<std::shared_ptr<WireSet>> WireSet::of(base::Executor& executor) {
  const std::lock_guard lock(sets_mutex);
  std::erase_if(sets(), [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = sets().find(&executor); found != sets().end()) {
    if (std::shared_ptr<WireSet> set = found->second.lock()) return set;
  }
  std::shared_ptr<WireSet> set(new WireSet(executor));
  set->epoll_ = base::FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  if (!set->epoll_) {
    return make_error(ErrorCode::kIo, std::string("cannot create an epoll set: ") +
                                          strerror(errno) + "; check the limit of open files");
  }
  sets()[&executor] = set;
  return set;
}

WireSet::~WireSet() {
  executor_.remove_poller(this);
  wires_.clear();
}

size_t WireSet::poll() {
  DestructionWatch watch(lifetime_);
  std::erase_if(wires_, [](const auto& wire) { return wire->over(); });
  flush_dirty();
  const size_t handled = watched_.size() <= kReadAll || !watches_all_ ? read_all() : read_ready();
  if (!watch.destroyed()) flush_dirty();
  return handled;
}

Wire* WireSet::find(const std::string& where) const {
  const auto found = std::find_if(wires_.begin(), wires_.end(), [&](const auto& wire) {
    return wire->dialed() && !wire->over() && !wire->retired() && wire->where() == where;
  });
  return found == wires_.end() ? nullptr : found->get();
}

Result<Wire*> WireSet::dial(std::vector<SocketAddress> addresses, const std::string& where) {
  auto wire = std::make_unique<Wire>(*this, std::move(addresses), where);
  PMSTORE_TRY_STATUS(wire->connect_next());
  wires_.push_back(std::move(wire));
  return wires_.back().get();
}

void WireSet::withdraw(const MemoryRegion& region) {
  for (const auto& wire : wires_) wire->withdraw(region);
}

void WireSet::watch(int fd, Wire& wire) {
  watched_.push_back(&wire);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &wire;
  // The limits of epoll may be used up (fs.epoll.max_user_watches); then all are read each time.
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) watches_all_ = false;
}

void WireSet::forget(int fd, Wire& wire) {
  std::erase(dirty_, &wire);
  if (std::erase(watched_, &wire) > 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void WireSet::adopt(Socket socket, TcpListener& listener) {
  if (wires_.size() >= kMaxWires) return;
  wires_.push_back(std::make_unique<Wire>(*this, std::move(socket), listener, executor_.now_ns()));
}

void WireSet::forget_listener(const TcpListener& listener) {
  for (const auto& wire : wires_) wire->forget_listener(listener);
}

void WireSet::close_idle(uint64_t now_ns) {
  for (const auto& wire : wires_) wire->look_after(now_ns, kIdleNs);
}

void WireSet::flush_dirty() {
  std::erase_if(dirty_, [](Wire* wire) {
    wire->dirty = !wire->flush();
    return !wire->dirty;
  });
}

size_t WireSet::read_all() {
  DestructionWatch watch(lifetime_);
  size_t handled = 0;
  // One that is erased meanwhile lets another wait for the next turn.
  for (size_t i = 0; i < watched_.size(); ++i) {
    handled += watched_[i]->receive();
    if (watch.destroyed()) break;
  }
  return handled;
}

size_t WireSet::read_ready() {
  epoll_event ready[kMaxReady];
  const int count = epoll_wait(epoll_.get(), ready, kMaxReady, 0);
  size_t handled = 0;
  DestructionWatch watch(lifetime_);
  for (int i = 0; i < count && !watch.destroyed(); ++i) {
    auto* const wire = static_cast<Wire*>(ready[i].data.ptr);
    if (!wire->over()) handled += wire->receive();
  }
  return handled;
}

}  // namespace pmstore::fabric::tcp
