// Socket: what the kernel is told about connections on which nothing is sent.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "fabric/device.h"
#include "fabric/tcp/internal/socket.h"

namespace pmstore::fabric::tcp {
namespace {

int option(const Socket& socket, int level, int name) {
  int value = -1;
  socklen_t bytes = sizeof value;
  EXPECT_EQ(getsockopt(socket.fd(), level, name, &value, &bytes), 0);
  return value;
}

void expect_watched(const Socket& socket) {
  EXPECT_EQ(option(socket, SOL_SOCKET, SO_KEEPALIVE), 1);
  const int silent = option(socket, IPPROTO_TCP, TCP_KEEPIDLE);
  const int probing =
      option(socket, IPPROTO_TCP, TCP_KEEPINTVL) * option(socket, IPPROTO_TCP, TCP_KEEPCNT);
  EXPECT_EQ(silent, 30);
  EXPECT_EQ(uint64_t(silent + probing) * 1'000'000'000, Device::kPeerGoneNs);
  // Else the kernel would not wait for the last probe, or longer for bytes than for probes.
  EXPECT_EQ(option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT), 1000 * (silent + probing));
}

TEST(TcpSocket, KernelWatchesBothEndsOfAConnection) {
  const auto any = resolve("127.0.0.1", 0, true);
  ASSERT_TRUE(any);
  auto listening = Socket::listen(any->front());
  ASSERT_TRUE(listening);
  const auto there = resolve("127.0.0.1", listening->port().value(), false);
  ASSERT_TRUE(there);
  auto client = Socket::connect(there->front());
  ASSERT_TRUE(client);
  std::optional<Socket::Client> server;
  while (!server) server = listening->accept().value();
  expect_watched(*client);
  expect_watched(server->socket);
}

}  // namespace
}  // namespace pmstore::fabric::tcp
