#include "tools/daemon/service_manager.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "tools/daemon/recovery_progress.h"

namespace pmstore::tools {
namespace {

// A service manager's socket.
class ManagerSocket {
 public:
  explicit ManagerSocket(std::string name) : name_(std::move(name)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    PMSTORE_CHECK(name_.size() < sizeof address.sun_path, "a test's path is short");
    std::memcpy(address.sun_path, name_.data(), name_.size());
    if (name_[0] == '@') address.sun_path[0] = '\0';
    socket_ = base::FileDescriptor(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const size_t bytes = offsetof(sockaddr_un, sun_path) + name_.size();
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address),
                   static_cast<socklen_t>(bytes)),
              0);
  }
  ~ManagerSocket() {
    if (name_[0] != '@') std::filesystem::remove(name_);
  }
  ManagerSocket(const ManagerSocket&) = delete;
  ManagerSocket& operator=(const ManagerSocket&) = delete;

  const char* name() const { return name_.c_str(); }
  // The next message; empty: there is none.
  std::string next() {
    char message[1024];
    const ssize_t bytes = recv(socket_.get(), message, sizeof message, 0);
    return bytes < 0 ? "" : std::string(message, static_cast<size_t>(bytes));
  }

 private:
  std::string name_;
  base::FileDescriptor socket_;
};

std::string path_of_test() { return ::testing::TempDir() + "manager." + std::to_string(getpid()); }

TEST(ServiceManager, IsToldOfTheStartOfTheServiceAndOfItsEnd) {
  for (const std::string& name : {path_of_test(), "@pmstore-manager-" + std::to_string(getpid())}) {
    ManagerSocket socket(name);
    const ServiceManager manager(socket.name());
    ASSERT_TRUE(manager.is_told());
    manager.starting("opens pool /pool");
    EXPECT_EQ(socket.next(), "STATUS=opens pool /pool\nEXTEND_TIMEOUT_USEC=60000000\n");
    manager.ready("serves");
    EXPECT_EQ(socket.next(), "READY=1\nSTATUS=serves\n");
    manager.stopping("stops");
    EXPECT_EQ(socket.next(), "STOPPING=1\nSTATUS=stops\n");
    EXPECT_EQ(socket.next(), "");
  }
}

TEST(ServiceManager, AStatusIsOneLineWhateverThePoolIsCalled) {
  ManagerSocket socket(path_of_test());
  const ServiceManager manager(socket.name());
  manager.starting("opens pool /a\nREADY=1");
  EXPECT_EQ(socket.next(), "STATUS=opens pool /a READY=1\nEXTEND_TIMEOUT_USEC=60000000\n");
}

TEST(ServiceManager, WithoutASocketNothingIsTold) {
  for (const char* const name : {static_cast<const char*>(nullptr), "", "@", "vsock:2:1234"}) {
    const ServiceManager manager(name);
    EXPECT_FALSE(manager.is_told());
    manager.ready("serves");
  }
  EXPECT_FALSE(ServiceManager(std::string(200, '/').c_str()).is_told()) << "too long for a socket";
}

TEST(ServiceManager, ThatIsGoneOrDoesNotReadHoldsNothingUp) {
  const ServiceManager gone(path_of_test().c_str());
  gone.ready("serves");
  ManagerSocket socket(path_of_test());
  const ServiceManager manager(socket.name());
  for (int i = 0; i < 10'000; ++i) manager.starting("more than a socket has room for");
  EXPECT_NE(socket.next(), "");
}

TEST(ServiceManager, ShowsHowFarALongStartIs) {
  ManagerSocket socket(path_of_test());
  const ServiceManager manager(socket.name());
  base::VirtualClock clock;
  DaemonLog log(nullptr);
  RecoveryProgress progress(clock, log, manager, "/pool");
  progress.tell(10, 1000);
  EXPECT_EQ(socket.next(), "") << "the first second";
  clock.advance_to(clock.now_ns() + 1'000'000'000);
  progress.tell(20, 1000);
  progress.tell(21, 1000);
  EXPECT_EQ(socket.next(),
            "STATUS=read 20 of 1000 slots of records (2%)\n"
            "EXTEND_TIMEOUT_USEC=60000000\n");
  EXPECT_EQ(socket.next(), "") << "once per second";
}

}  // namespace
}  // namespace pmstore::tools
