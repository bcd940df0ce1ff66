#include "tests/compare/socket_load.h"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "base/random.h"
#include "tests/compare/echo_server.h"

namespace pmstore::compare {
namespace {

// What travels. Makes the request of one operation, and tells where its reply ends.
class Codec {
 public:
  virtual ~Codec() = default;
  // Replaces `request`.
  virtual void encode(Operation operation, uint64_t key, uint64_t number, std::string& request) = 0;
  // Whether `received` is a whole reply. Ends the program when the server refuses.
  virtual bool is_whole(std::string_view received) const = 0;
};

// RESP, binary safe.
class RedisCodec final : public Codec {
 public:
  explicit RedisCodec(const LoadOptions& options) : value_(options.bytes, 'v') {}

  void encode(Operation operation, uint64_t key, uint64_t number, std::string& request) override {
    std::memcpy(value_.data(), &number, std::min(sizeof(number), value_.size()));
    std::array<char, kKeyBytes> name;
    write_key(name.data(), key);
    const std::string_view key_text(name.data(), name.size());
    request.clear();
    if (operation == Operation::kAppend) {
      words(request, {"XADD", "many_programs", "MAXLEN", "~", "100000", "*", "d", value_});
    } else if (operation == Operation::kGet) {
      words(request, {"GET", key_text});
    } else {
      words(request, {"SET", key_text, value_});
    }
  }

  bool is_whole(std::string_view received) const override {
    const size_t line = received.find("\r\n");
    if (line == std::string_view::npos) return false;
    if (received[0] == '+' || received[0] == ':') return true;
    const std::string text(received.substr(0, line));
    if (received[0] != '$') fail("Redis", "it answers '" + text + "'");
    int64_t bytes = 0;
    std::from_chars(received.data() + 1, received.data() + line, bytes);
    if (bytes < 0) fail("Redis", "the key is absent; run --op fill first");
    return received.size() >= line + 2 + static_cast<size_t>(bytes) + 2;
  }

 private:
  static void words(std::string& request, std::initializer_list<std::string_view> all) {
    request += "*" + std::to_string(all.size()) + "\r\n";
    for (const std::string_view word : all) {
      request += "$" + std::to_string(word.size()) + "\r\n";
      request += word;
      request += "\r\n";
    }
  }

  std::string value_;
};

class EchoCodec final : public Codec {
 public:
  explicit EchoCodec(const LoadOptions& options)
      : header_{options.request_bytes, options.reply_bytes} {}

  void encode(Operation, uint64_t, uint64_t, std::string& request) override {
    request.resize(header_.request_bytes);
    std::memcpy(request.data(), &header_, sizeof(header_));
  }
  bool is_whole(std::string_view received) const override {
    return received.size() >= header_.reply_bytes;
  }

 private:
  EchoHeader header_;
};

base::FileDescriptor connect_to_path(std::string_view path) {
  sockaddr_un peer{};
  peer.sun_family = AF_UNIX;
  if (path.size() >= sizeof(peer.sun_path)) fail("the address", "the path of a socket is short");
  std::copy(path.begin(), path.end(), peer.sun_path);
  base::FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)) != 0) {
    fail("cannot connect to " + std::string(path), std::strerror(errno));
  }
  return socket;
}

base::FileDescriptor connect_to(const std::string& address) {
  constexpr std::string_view kUnix = "unix:";
  if (address.starts_with(kUnix))
    return connect_to_path(std::string_view(address).substr(kUnix.size()));
  const size_t colon = address.rfind(':');
  sockaddr_in peer{};
  peer.sin_family = AF_INET;
  uint16_t port = 0;
  if (colon != std::string::npos) {
    std::from_chars(address.data() + colon + 1, address.data() + address.size(), port);
  }
  peer.sin_port = htons(port);
  if (port == 0 || inet_pton(AF_INET, address.substr(0, colon).c_str(), &peer.sin_addr) != 1) {
    fail("the address '" + address + "'", "is neither A.B.C.D:PORT nor unix:PATH");
  }
  base::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)) != 0) {
    fail("cannot connect to " + address, std::strerror(errno));
  }
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return socket;
}

class SocketLoad {
 public:
  SocketLoad(const LoadOptions& options, uint32_t thread, StartGate& gate, Tally& tally)
      : options_(options), gate_(gate), tally_(tally), random_(base::mix64(thread + 1)) {
    if (options.side == "redis") {
      codec_ = std::make_unique<RedisCodec>(options);
    } else {
      codec_ = std::make_unique<EchoCodec>(options);
    }
    links_.resize(options.connections_of(thread));
    for (Link& link : links_) link.socket = connect_to(options.address);
  }

  void run() {
    if (options_.operation == Operation::kIdle) {
      for (Link& link : links_) exchange(link, Operation::kPut, 0);
    }
    gate_.arrive();
    gate_.wait();
    if (options_.operation == Operation::kFill) {
      for (uint64_t key = 0; key < options_.keys; ++key) exchange(links_[0], Operation::kPut, key);
    } else if (options_.operation == Operation::kIdle) {
      sleep_ns(static_cast<uint64_t>(options_.seconds * 1e9));
    } else if (links_.size() == 1) {
      one_connection();
    } else {
      many_connections();
    }
    gate_.finish();
  }

 private:
  struct Link {
    base::FileDescriptor socket;
    std::string request;
    std::string reply;
    uint64_t start_ns = 0;
    uint64_t done = 0;
  };

  static void sleep_ns(uint64_t duration_ns) {
    timespec left{static_cast<time_t>(duration_ns / 1'000'000'000u),
                  static_cast<long>(duration_ns % 1'000'000'000u)};
    while (nanosleep(&left, &left) != 0) {
    }
  }

  void send(Link& link, Operation operation, uint64_t key) {
    codec_->encode(operation, key, link.done, link.request);
    link.reply.clear();
    std::string_view left(link.request);
    while (!left.empty()) {
      const ssize_t sent = ::send(link.socket.get(), left.data(), left.size(), MSG_NOSIGNAL);
      if (sent < 0) fail("cannot send to " + options_.address, std::strerror(errno));
      left.remove_prefix(static_cast<size_t>(sent));
    }
  }

  // Takes what has arrived, or waits for it; true when the reply is whole.
  bool receive(Link& link) {
    const ssize_t got = ::recv(link.socket.get(), buffer_.data(), buffer_.size(), 0);
    if (got <= 0) {
      fail("lost the connection to " + options_.address,
           got == 0 ? "the server closed it" : std::strerror(errno));
    }
    link.reply.append(buffer_.data(), static_cast<size_t>(got));
    return codec_->is_whole(link.reply);
  }

  void exchange(Link& link, Operation operation, uint64_t key) {
    send(link, operation, key);
    while (!receive(link)) {
    }
    ++link.done;
  }

  void one_connection() {
    Link& link = links_[0];
    link.start_ns = gate_.start_ns();
    while (!is_over(options_, gate_, link.done, link.start_ns)) {
      if (options_.silence_ms != 0) {
        sleep_ns(options_.silence_ms * 1'000'000);
        link.start_ns = monotonic_ns();
      }
      exchange(link, options_.operation, random_.below(options_.keys));
      record(link);
    }
  }

  void record(Link& link) {
    const uint64_t end_ns = monotonic_ns();
    tally_.latency_ns.record(end_ns - link.start_ns);
    link.start_ns = end_ns;
  }

  void many_connections() {
    const base::FileDescriptor epoll(epoll_create1(EPOLL_CLOEXEC));
    for (Link& link : links_) {
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.ptr = &link;
      if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, link.socket.get(), &event) != 0) {
        fail("cannot wait for sockets", std::strerror(errno));
      }
      link.start_ns = monotonic_ns();
      send(link, options_.operation, random_.below(options_.keys));
    }
    std::array<epoll_event, 128> events;
    for (size_t outstanding = links_.size(); outstanding > 0;) {
      const int ready = epoll_wait(epoll.get(), events.data(), events.size(), -1);
      for (int i = 0; i < ready; ++i) {
        Link& link = *static_cast<Link*>(events[static_cast<size_t>(i)].data.ptr);
        if (!receive(link)) continue;
        ++link.done;
        record(link);
        if (is_over(options_, gate_, link.done, link.start_ns)) {
          --outstanding;
        } else {
          send(link, options_.operation, random_.below(options_.keys));
        }
      }
    }
  }

  const LoadOptions& options_;
  StartGate& gate_;
  Tally& tally_;
  base::Random random_;
  std::unique_ptr<Codec> codec_;
  std::vector<Link> links_;
  std::array<char, 65536> buffer_;
};

}  // namespace

void run_socket_load(const LoadOptions& options, uint32_t thread, StartGate& gate, Tally& tally) {
  SocketLoad(options, thread, gate, tally).run();
}

SocketBytes tcp_bytes() {
  SocketBytes sum;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    tcp_info info{};
    socklen_t size = sizeof(info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    sum.sent += info.tcpi_bytes_sent;
    sum.received += info.tcpi_bytes_received;
  }
  return sum;
}

}  // namespace pmstore::compare
