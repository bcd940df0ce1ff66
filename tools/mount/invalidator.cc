#include "tools/mount/invalidator.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include "base/file_descriptor.h"

namespace pmstore::tools {
namespace {

struct Notice {
  fuse_out_header head;
  fuse_notify_inval_inode_out node;
};

// An inode that the kernel does not know (ENOENT) has nothing to forget; after the unmount (ENODEV)
// none has.
void tell(int device, uint64_t node) {
  Notice notice{};
  notice.head.len = sizeof notice;
  notice.head.error = FUSE_NOTIFY_INVAL_INODE;
  notice.node.ino = node;
  ssize_t told = 0;
  do {
    told = ::write(device, &notice, sizeof notice);
  } while (told < 0 && errno == EINTR);
}

}  // namespace

struct Invalidator::Shared {
  Shared(base::Executor& of, base::FileDescriptor given)
      : executor(&of), device(std::move(given)), done(of) {}

  // ---- of both threads, under the mutex ----
  std::mutex mutex;
  std::condition_variable changed;
  base::Executor* executor;  // nullptr: the Invalidator has ended
  std::deque<uint64_t> wanted;
  bool busy = false;

  const base::FileDescriptor device;
  // ---- of the executor's thread: asked for, and done, in order ----
  uint64_t asked = 0;
  uint64_t told = 0;
  bool over = false;  // nothing is told any more
  base::WaitList done;
};

Result<std::unique_ptr<Invalidator>> Invalidator::start(base::Executor& executor, int device) {
  base::FileDescriptor own(fcntl(device, F_DUPFD_CLOEXEC, 0));
  if (!own) return make_error(ErrorCode::kIo, std::strerror(errno));
  std::unique_ptr<Invalidator> self(
      new Invalidator(std::make_shared<Shared>(executor, std::move(own))));
  try {
    self->thread_ = std::thread([shared = self->shared_] { work(shared); });
  } catch (const std::system_error& error) {
    return make_error(ErrorCode::kIo, std::string("cannot start a thread: ") + error.what());
  }
  return self;
}

Invalidator::~Invalidator() {
  constexpr std::chrono::seconds kPatience(1);
  shared_->over = true;
  shared_->done.notify_all();
  bool idle = false;
  {
    std::unique_lock lock(shared_->mutex);
    shared_->executor = nullptr;
    shared_->wanted.clear();
    shared_->changed.notify_all();
    idle = shared_->changed.wait_for(lock, kPatience, [&] { return !shared_->busy; });
  }
  if (!thread_.joinable()) return;
  if (idle) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void Invalidator::work(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  while (true) {
    shared->changed.wait(lock,
                         [&] { return shared->executor == nullptr || !shared->wanted.empty(); });
    if (shared->executor == nullptr) return;
    const uint64_t node = shared->wanted.front();
    shared->wanted.pop_front();
    shared->busy = true;
    lock.unlock();
    tell(shared->device.get(), node);
    lock.lock();
    shared->busy = false;
    shared->changed.notify_all();
    if (shared->executor == nullptr) return;
    shared->executor->post_remote([shared] {
      ++shared->told;
      shared->done.notify_all();
    });
  }
}

base::Task<void> Invalidator::invalidate(uint64_t node) {
  const std::shared_ptr<Shared> shared = shared_;
  {
    const std::lock_guard lock(shared->mutex);
    shared->wanted.push_back(node);
    shared->changed.notify_all();
  }
  const uint64_t mine = ++shared->asked;
  while (shared->told < mine && !shared->over) co_await shared->done.wait();
}

}  // namespace pmstore::tools
