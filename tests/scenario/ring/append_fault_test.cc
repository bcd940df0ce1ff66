// Appends that lose their connection at every work request in turn. Fault points exist only in
// process.
#include <algorithm>
#include <atomic>

#include "fabric/local/fault_injection.h"
#include "tests/scenario/ring/ring_scenario.h"

namespace pmstore::scenario {
namespace {

using fabric::Fault;

// Breaks the connection at the n-th request of the client. Completions before it are held back, so
// that many appends are in flight when it happens.
class BreakNthRequest final : public fabric::FaultInjector {
 public:
  BreakNthRequest(uint64_t n, Fault fault) : n_(n), fault_(fault) {}
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
    if (!point.connector) return {};
    const uint64_t number = seen_.fetch_add(1, std::memory_order_acq_rel) + 1;
    if (number == n_) return {fault_, 0};
    return {Fault::kDelay, 300'000};
  }
  bool fired() const { return seen_.load(std::memory_order_acquire) >= n_; }

 private:
  const uint64_t n_;
  const Fault fault_;
  std::atomic<uint64_t> seen_{0};
};

class AppendFault : public RingScenario {
 protected:
  // Whatever was reported as durable is a prefix of the calls; afterwards nothing more can be
  // appended.
  static size_t check_reports(const std::vector<Appending>& appendings) {
    size_t durable = 0;
    while (durable < appendings.size() && *appendings[durable].result) ++durable;
    for (size_t i = durable; i < appendings.size(); ++i) {
      EXPECT_FALSE(*appendings[i].result) << i << " is reported as durable, " << durable << " not";
    }
    return durable;
  }
  // A new link of the same owner finds what was reported, and behind it at most what was in flight.
  void check_found(const LinkOptions& options, const std::vector<Appending>& appendings,
                   size_t durable) {
    LinkOptions same;
    same.owner = options.owner;
    auto link = connect(same);
    ASSERT_TRUE(link);
    const std::vector<FoundEntry> entries = found(*link);
    EXPECT_GE(entries.size(), durable);
    ASSERT_LE(entries.size(), appendings.size()) << "nothing but what was appended";
    for (size_t i = 0; i < entries.size(); ++i) {
      EXPECT_EQ(entries[i].sequence, appendings[i].sequence);
      EXPECT_EQ(entries[i].checksum,
                payload_checksum(std::as_bytes(std::span(appendings[i].payload))));
      if (i < durable) {
        EXPECT_EQ(entries[i].lsn, (*appendings[i].result)->lsn);
      }
    }
  }
  static std::vector<Appending> some_appendings() {
    std::vector<Appending> appendings;
    for (uint64_t sequence = 1; sequence <= 8; ++sequence) {
      appendings.push_back({sequence, text(sequence, sequence % 2 == 0 ? 50 : 1500), {}, 0});
    }
    return appendings;
  }
  static bool by_message(const persist::RemoteWriterOptions& writer) {
    return writer.strategy == persist::WriteStrategy::kTwoSided || writer.two_sided_bytes != 0;
  }
  // Loses the connection at each request of a batch of appends; gives how often.
  uint64_t break_everywhere(const persist::RemoteWriterOptions& writer, Fault fault) {
    uint64_t owner = 1;
    for (uint64_t n = 1;; ++n) {
      // A fresh, empty ring: the owner before is another one.
      LinkOptions options;
      options.owner = ++owner + 10;
      options.writer = writer;
      options.staging_bytes = log::RemoteAppender::kMinStagingBytes;  // used up
      auto link = connect(options);
      if (!link) return 0;
      auto appendings = some_appendings();
      bool fired = false;
      {
        BreakNthRequest breaker(n, fault);
        fabric::ScopedFaultInjector scope(breaker);
        append_all(*link, appendings);
        fired = breaker.fired();
      }
      const size_t durable = check_reports(appendings);
      if (!fired) {
        EXPECT_EQ(durable, appendings.size());
        return n - 1;
      }
      // The server may answer the last message before the client knows that the connection broke.
      if (fault == Fault::kBreakBefore || !by_message(writer)) {
        EXPECT_LT(durable, appendings.size()) << "request " << n;
      }
      EXPECT_FALSE(append(*link, 99, "too late")) << "after a failure nothing counts";
      link.reset();
      SCOPED_TRACE(n);
      check_found(options, appendings, durable);
    }
  }
};

TEST_F(AppendFault, LostAtEveryRequestReportsOnlyAPrefix) {
  for (const Fault fault : {Fault::kBreakBefore, Fault::kBreakAfter}) {
    persist::RemoteWriterOptions writer;
    EXPECT_GE(break_everywhere(writer, fault), 16u) << "one-sided";
    writer.strategy = persist::WriteStrategy::kTwoSided;
    EXPECT_GE(break_everywhere(writer, fault), 8u) << "two-sided";
    writer.strategy = persist::WriteStrategy::kAuto;
    writer.two_sided_bytes = 1024;
    EXPECT_GE(break_everywhere(writer, fault), 12u) << "both";
  }
}

}  // namespace
}  // namespace pmstore::scenario
