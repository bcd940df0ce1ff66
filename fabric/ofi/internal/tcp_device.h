// TcpDevice: the device for tcp://HOST:PORT, over libfabric's tcp provider. See fabric/device.h.
//
// One epoll set says which completion queues have something, so that idle clients cost nothing and
// the executor hears of one-sided accesses, which libfabric serves without telling anybody. One or
// two connections are not in it, because whoever sends would wake it at each message; they are
// asked by poll(2), and while there is traffic their queues are read without asking first, which
// saves a system call in each direction.
#pragma once

#include "fabric/ofi/internal/handshake_listener.h"
#include "fabric/ofi/internal/ofi_device.h"
#include "fabric/ofi/internal/tcp_connection.h"

namespace pmstore::fabric::ofi {

class TcpListener;

class TcpDevice final : public OfiDevice {
 public:
  static Result<std::unique_ptr<Device>> open(base::Executor& executor);
  ~TcpDevice() override;

  Result<std::unique_ptr<Listener>> listen(const Uri& uri, Acceptor& acceptor) override;

  // ---- for connections and listeners ----
  fid_eq* events() const { return events_.get(); }
  void watch_queue(int queue_fd, TcpConnection& connection);
  void forget_queue(int queue_fd, TcpConnection& connection);
  void add_tcp(TcpListener& listener) { tcp_listeners_.push_back(&listener); }
  void remove_tcp(TcpListener& listener) { std::erase(tcp_listeners_, &listener); }

 protected:
  Result<std::unique_ptr<OfiConnection>> dial(const Uri& uri,
                                              const ConnectionOptions& options) override;
  size_t poll_queues() override;
  void poll_events() override;

 private:
  // Above this many connections one more system call is cheaper than one for each, and all are in
  // the epoll set; up to it none is.
  static constexpr size_t kPollAll = 2;
  // Without traffic for so many polls, epoll is asked first; with traffic, at every kSampleEvery-th
  // poll.
  static constexpr unsigned kQuietPolls = 256;
  static constexpr unsigned kSampleEvery = 16;
  static constexpr int kMaxReady = 64;

  TcpDevice(base::Executor& executor, std::unique_ptr<Provider> provider);
  // A connection and libfabric's descriptor of its queue.
  struct Watched {
    TcpConnection* connection;
    int queue_fd;
  };

  TcpConnection* find(const fid* endpoint) const;
  bool is_watched(const TcpConnection* connection) const;
  void add_to_set(const Watched& watched);
  size_t poll_ready();
  // How much of what is ready there was handled; nothing if the connection has gone.
  size_t serve(TcpConnection* connection);
  void handle_event(uint32_t event, const fi_eq_cm_entry& entry);
  void handle_event_error();

  FidPtr<fid_eq> events_;
  int epoll_fd_ = -1;
  unsigned polls_ = 0;
  unsigned quiet_polls_ = 0;  // since there was traffic
  std::vector<Watched> watched_;
  std::vector<TcpListener*> tcp_listeners_;
};

class TcpListener final : public HandshakeListener {
 public:
  // Io when the address is in use or not ours.
  static Result<std::unique_ptr<Listener>> open(TcpDevice& device, const Uri& uri,
                                                Acceptor& acceptor);
  ~TcpListener() override;

  const fid* endpoint() const { return &endpoint_->fid; }
  // Takes ownership of `info`, which names the request.
  void on_request(fi_info* info);

 protected:
  // Requests come as events.
  void accept_new() override {}

 private:
  TcpListener(TcpDevice& device, Uri uri, Acceptor& acceptor, FidPtr<fid_pep> endpoint);
  TcpDevice& tcp_;
  FidPtr<fid_pep> endpoint_;
};

}  // namespace pmstore::fabric::ofi
