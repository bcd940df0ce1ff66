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

[[gnu::hot]] size_t MultiplexerSet::poll() {
  DestructionWatch watch(lifetime_);
  delete_ended();
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

[[gnu::hot]] bool MultiplexerSet::arm() {
  if (!readable_.empty()) return false;
  for (Multiplexer* multiplexer = dirty_.front(); multiplexer != nullptr;
       multiplexer = dirty_.next(*multiplexer)) {
    ++visits_;
    PMSTORE_CHECK(!multiplexer->over(), "what has to be sent can be sent");
    if (!multiplexer->connected()) continue;  // a tick asks whether it is
    if (!multiplexer->blocked()) return false;
    multiplexer->watch_room();
    if (multiplexer->refused()) armed_until_ns_ = executor_.now_ns() + kRefusedNs;
  }
  return true;
}

Multiplexer& MultiplexerSet::own(std::unique_ptr<Multiplexer> multiplexer) {
  multiplexer->owned_at = multiplexers_.size();
  return *multiplexers_.emplace_back(std::move(multiplexer));
}

[[gnu::hot]] void MultiplexerSet::delete_ended() {
  while (!ended_.empty()) {
    const size_t at = ended_.pop_front().owned_at;
    PMSTORE_CHECK(at < multiplexers_.size() && multiplexers_[at]->over(),
                  "what is owned has a place");
    std::swap(multiplexers_[at], multiplexers_.back());
    multiplexers_[at]->owned_at = at;
    multiplexers_.pop_back();
  }
}

Multiplexer* MultiplexerSet::find(const std::string& where) const {
  for (Multiplexer* at = to_servers_.front(); at != nullptr; at = to_servers_.next(*at)) {
    if (!at->retired() && at->where() == where) return at;
  }
  return nullptr;
}

Result<Multiplexer*> MultiplexerSet::dial(std::vector<SocketAddress> addresses,
                                          const std::string& where) {
  auto multiplexer = std::make_unique<Multiplexer>(*this, std::move(addresses), where);
  PMSTORE_TRY_STATUS(multiplexer->connect_next());
  Multiplexer& dialed = own(std::move(multiplexer));
  to_servers_.push_back(dialed);
  return &dialed;
}

Status MultiplexerSet::watch(int fd, Multiplexer& multiplexer) {
  PMSTORE_TRY_STATUS(executor_.watch(fd, EPOLLIN, multiplexer));
  multiplexer.watched_at = watched_.size();
  watched_.push_back(&multiplexer);
  open_batch();
  return {};
}

void MultiplexerSet::forget(Multiplexer& multiplexer) {
  if (multiplexer.dirty.listed) dirty_.remove(multiplexer);
  if (multiplexer.readable.listed) readable_.remove(multiplexer);
  if (multiplexer.to_server.listed) to_servers_.remove(multiplexer);
  ended_.push_back(multiplexer);
}

void MultiplexerSet::unwatch(int fd, Multiplexer& multiplexer) {
  executor_.unwatch(fd);
  const size_t at = multiplexer.watched_at;
  PMSTORE_CHECK(at < watched_.size() && watched_[at] == &multiplexer, "each knows its place");
  watched_[at] = watched_.back();
  watched_[at]->watched_at = at;
  watched_.pop_back();
}

void MultiplexerSet::adopt(Socket::Client client, TcpListener& listener) {
  const uint64_t now_ns = executor_.now_ns();
  if (internal::Newcomer* const surplus = silent_.surplus(client.origin, now_ns)) {
    static_cast<Multiplexer*>(surplus)->close_silent();
  }
  ++accepted_;
  own(std::make_unique<Multiplexer>(*this, std::move(client), listener));
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

[[gnu::hot]] std::unique_ptr<std::byte[]> MultiplexerSet::take_room() {
  if (rooms_.empty()) return std::make_unique_for_overwrite<std::byte[]>(kRoomBytes);
  std::unique_ptr<std::byte[]> room = std::move(rooms_.back());
  rooms_.pop_back();
  return room;
}

[[gnu::hot]] void MultiplexerSet::return_room(std::unique_ptr<std::byte[]> room) {
  if (room != nullptr && rooms_.size() < SocketBatch::kMaxCalls) rooms_.push_back(std::move(room));
}

void MultiplexerSet::open_batch() {
  if (batch_ != nullptr || watched_.size() < 2 || !executor_.options().io_uring) return;
  batch_ = SocketBatch::open();
  batch_is_of_use_ = true;
  together_.reserve(SocketBatch::kMaxCalls);
}

[[gnu::hot]] void MultiplexerSet::flush_dirty() {
  if (SocketBatch* const many = batch(dirty_.size())) {
    return flush_dirty_together(*many);
  }
  for (Multiplexer* multiplexer = dirty_.front(); multiplexer != nullptr;) {
    Multiplexer* const next = dirty_.next(*multiplexer);
    ++visits_;
    if (multiplexer->flush_once()) dirty_.remove(*multiplexer);
    multiplexer = next;
  }
}

void MultiplexerSet::flush_dirty_together(SocketBatch& batch) {
  msghdr message;
  for (Multiplexer* next = dirty_.front(); next != nullptr;) {
    together_.clear();
    for (; next != nullptr && !batch.full(); next = dirty_.next(*next)) {
      ++visits_;
      if (next->prepare_send(message)) {
        batch.add_send(next->fd(), message);
        together_.push_back(next);
      } else {
        next->flush_once();  // makes no system call
      }
    }
    batch_is_of_use_ &= batch.run();
    for (size_t i = 0; i < together_.size(); ++i) {
      together_[i]->finish_send(batch.result(static_cast<unsigned>(i)));
    }
  }
  for (Multiplexer* multiplexer = dirty_.front(); multiplexer != nullptr;) {
    Multiplexer* const next = dirty_.next(*multiplexer);
    if (!multiplexer->has_more()) dirty_.remove(*multiplexer);
    multiplexer = next;
  }
}

[[gnu::hot]] size_t MultiplexerSet::read_all() {
  DestructionWatch watch(lifetime_);
  size_t handled = 0;
  while (!readable_.empty()) readable_.pop_front();
  // One that is erased meanwhile lets another wait for the next turn.
  for (size_t i = 0; i < watched_.size(); ++i) {
    ++visits_;
    handled += watched_[i]->receive();
    if (watch.destroyed()) break;
  }
  return handled;
}

[[gnu::hot]] size_t MultiplexerSet::read_readable() {
  if (SocketBatch* const many = batch(readable_.size())) {
    return read_readable_together(*many);
  }
  size_t handled = 0;
  DestructionWatch watch(lifetime_);
  // Only those that are readable now. A callback may take some off the list.
  for (size_t left = readable_.size(); left > 0 && !readable_.empty(); --left) {
    ++visits_;
    handled += readable_.pop_front().receive();
    if (watch.destroyed()) break;
  }
  return handled;
}

// Of the batch that is handled next.
void MultiplexerSet::tell_of_received(const SocketBatch& batch) {
  const auto got = [&](size_t i) { return batch.result(static_cast<unsigned>(i)); };
  size_t some = 0;
  for (size_t i = 0; i < together_.size(); ++i) some += got(i) > 0;
  size_t left = kToldTogether;
  for (size_t i = 0; some > 1 && i < together_.size() && left > 0; ++i) {
    left -= together_[i]->tell_of_received(got(i), left);
  }
}

size_t MultiplexerSet::read_readable_together(SocketBatch& batch) {
  msghdr message;
  together_.clear();
  // Those behind a full batch stay in the list for the next turn.
  while (!readable_.empty() && !batch.full()) {
    Multiplexer& multiplexer = readable_.pop_front();
    ++visits_;
    together_.push_back(&multiplexer);
    multiplexer.prepare_receive(message);
    batch.add_receive(multiplexer.fd(), message);
  }
  batch_is_of_use_ &= batch.run();
  tell_of_received(batch);
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
