#include "log/internal/read_buffer.h"

#include "fabric/local/fault_injection.h"
#include "tests/unit/fabric/local_pair.h"

namespace pmstore::log::internal {
namespace {

using ReadBufferTest = fabric::LocalPair;

class LateReads final : public fabric::FaultInjector {
 public:
  fabric::FaultDecision on_request(const fabric::FaultPoint&) override {
    return {fabric::Fault::kDelay, 20'000};
  }
};

// The client of a log connects again, and drops the connection it had, while the READ that a
// destroyed reader or producer has posted is still under way.
TEST_F(ReadBufferTest, AbandonedReadKeepsItsConnectionUntilItHasEnded) {
  constexpr uint64_t kTimeoutNs = 1'000'000'000;
  auto buffer = std::move(*ReadBuffer::create(*client_, 64));
  server_memory_->set_word(0, 77);
  LateReads late;
  const fabric::ScopedFaultInjector installed(late);
  std::shared_ptr<fabric::Connection> link = std::move(connection_);
  const std::weak_ptr<fabric::Connection> seen = link;
  buffer->clear(link);
  buffer->read(0, 8, server_memory_->remote(0));
  {
    base::Task<Status> abandoned = buffer->execute(*link, kTimeoutNs);
    abandoned.start();
  }
  ASSERT_TRUE(buffer->under_way());
  link.reset();
  EXPECT_FALSE(seen.expired()) << "the READ would never end";
  ASSERT_TRUE(executor_.run(buffer->settle(kTimeoutNs)));
  uint64_t word = 0;
  std::memcpy(&word, buffer->bytes().data(), sizeof(word));
  EXPECT_EQ(word, 77u);
  buffer->clear(nullptr);
  EXPECT_TRUE(seen.expired());
}

}  // namespace
}  // namespace pmstore::log::internal
