// LocalListener and the handshake: how two ends in one process find each other by name.
//
// Control path only: a mutex per listener and one for the registry.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fabric/device.h"
#include "fabric/local/channel.h"

namespace pmstore::fabric {

class LocalDevice;

// One connect() that the listener has not completed. The connector's end is open already; when it
// closes, the connector has given up.
struct LocalHandshake {
  enum class Answer : uint8_t { kNone, kAccepted, kRefused };
  std::shared_ptr<Channel> channel = std::make_shared<Channel>();
  std::vector<std::byte> hello;
  uint64_t operation_timeout_ns = 0;
  // Written by the listener's thread before `answer`.
  std::vector<std::byte> answer_hello;
  Error refusal{ErrorCode::kDisconnected, {}};
  std::atomic<Answer> answer{Answer::kNone};

  bool answered() const { return answer.load(std::memory_order_acquire) != Answer::kNone; }
  // The connector's executor, which the answer wakes; null when it does not wait any more. The
  // connector's thread.
  void set_waiting(base::Executor* connector) {
    const std::lock_guard lock(mutex_);
    connector_ = connector;
  }
  // The listener's thread; once.
  void accept() { give(Answer::kAccepted); }
  void refuse(Error why) {
    refusal = std::move(why);
    give(Answer::kRefused);
  }

 private:
  void give(Answer which) {
    PMSTORE_CHECK(!answered(), "a handshake is answered once");
    answer.store(which, std::memory_order_release);
    const std::lock_guard lock(mutex_);
    if (connector_ != nullptr) connector_->wake();
  }

  std::mutex mutex_;
  base::Executor* connector_ = nullptr;  // under mutex_
};

// The part of a listener that connectors on other threads use.
struct LocalListening {
  std::atomic<bool> waiting{false};  // there are handshakes
  std::mutex mutex;
  bool closed = false;                                      // under `mutex`
  std::vector<std::shared_ptr<LocalHandshake>> handshakes;  // under `mutex`

  // Listener's thread only.
  LocalDevice* device = nullptr;
  Acceptor* acceptor = nullptr;
  uint64_t next_token = 1;

  // Answers the waiting handshakes; returns their number.
  size_t serve();

 private:
  void answer(LocalHandshake& handshake);
};

// nullptr without a listener at `name`.
std::shared_ptr<LocalListening> find_listening(const std::string& name);

class LocalListener final : public Listener {
 public:
  // Io when the name is taken.
  static Result<std::unique_ptr<Listener>> create(LocalDevice& device, const Uri& uri,
                                                  Acceptor& acceptor);
  ~LocalListener() override;
  const Uri& uri() const override { return uri_; }

 private:
  LocalListener(LocalDevice& device, Uri uri, std::shared_ptr<LocalListening> listening);
  LocalDevice& device_;
  Uri uri_;
  std::shared_ptr<LocalListening> listening_;
};

}  // namespace pmstore::fabric
