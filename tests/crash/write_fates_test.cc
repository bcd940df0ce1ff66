// The three fates of a one-sided write, through the product's RemoteWriter on the modelled machine:
// the remains of a write after a power cut of the server at the moment of the acknowledgement.
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <utility>

#include "model/crash_recorder.h"
#include "model/crash_states.h"
#include "persist/remote_writer.h"
#include "tests/unit/model/model_pair.h"

namespace pmstore::crash {
namespace {

using model::CrashImage;
using model::EventKind;
using model::Packet;
using persist::Domain;
using persist::WriteLanding;
using persist::WriteStrategy;

using Bytes = std::set<int>;  // what the last byte of the write may be after the crash
constexpr int kOld = 1;
constexpr int kNew = 2;
constexpr size_t kWriteBytes = 64;  // one line

class WriteFatesTest : public testing::Test {
 protected:
  // Writes durably, as RemoteWriter says, to a server that declares `declared`.
  void write(WriteStrategy strategy, bool ddio, Domain domain, WriteLanding declared,
             double hold_ns) {
    model::Parameters parameters = *model::named_parameters("optane-cx5");
    parameters.rnic.hold_ns = hold_ns;
    model::ModelPair pair(parameters, {.ddio = ddio});
    std::memset(pair.nvm.bytes.data(), kOld, kWriteBytes);
    pair.fill(0, kWriteBytes, kNew);
    persist::Memory memory(pair.nvm.bytes, {.domain = domain});
    model::CrashRecorder recorder(memory);
    pair.server_host().set_nvm_observer(&recorder);
    auto writer = persist::RemoteWriter::create(*pair.client, *pair.connection, nullptr,
                                                pair.nvm_region->remote(),
                                                {domain, declared, false}, {strategy, 0});
    if (!writer) {
      refused_ = writer.code();
    } else {
      const persist::RemotePiece piece{pair.at(0, kWriteBytes), 0};
      const auto written = pair.executor.run((*writer)->write({&piece, 1}));
      EXPECT_TRUE(written);
    }
    pair.server_host().set_nvm_observer(nullptr);
    trace_ = recorder.take();
  }

  // Into the cache of a server under adr: it declares so, and is asked by message for durability.
  void write_visible(bool persists) {
    model::ModelPair pair(*model::named_parameters("optane-cx5"), {.ddio = true});
    std::memset(pair.nvm.bytes.data(), kOld, kWriteBytes);
    pair.fill(0, kWriteBytes, kNew);
    persist::Memory memory(pair.nvm.bytes, {.domain = Domain::kMemoryController});
    model::CrashRecorder recorder(memory);
    pair.server_host().set_nvm_observer(&recorder);
    // The strategy is that of a writer that may be made without RPC; a visible write has none.
    auto writer = persist::RemoteWriter::create(
        *pair.client, *pair.connection, nullptr, pair.nvm_region->remote(),
        {Domain::kMemoryController, WriteLanding::kMemory, false}, {WriteStrategy::kDoorbell, 0});
    ASSERT_TRUE(writer);
    const persist::RemotePiece piece{pair.at(0, kWriteBytes), 0};
    const persist::RemoteLook look{pair.at(kWriteBytes, 8), pair.nvm_region->remote().at(0)};
    EXPECT_TRUE(pair.executor.run((*writer)->write_visible({&piece, 1}, {&look, 1})));
    if (persists) {
      memory.flush(memory.base(), kWriteBytes);
      EXPECT_TRUE(memory.drain());
    }
    pair.server_host().set_nvm_observer(nullptr);
    trace_ = recorder.take();
  }

  // The event behind the `number`-th completion that the client got, from 1.
  size_t behind_completion(size_t number) const {
    for (size_t i = 0; i < trace_.events.size(); ++i) {
      const model::Event& event = trace_.events[i];
      const bool completes = event.kind == EventKind::kPacket && event.packet == Packet::kCompleted;
      if (completes && --number == 0) return i + 1;
    }
    ADD_FAILURE() << "there are not so many completions";
    return trace_.events.size();
  }
  Bytes after_power_cut(size_t events) const {
    model::CrashStates states(trace_);
    states.step_to(events);
    Bytes found;
    Random random(1);
    states.visit(1000, random, [&](CrashImage& image) {
      found.insert(static_cast<int>(image.bytes()[kWriteBytes - 1]));
      return true;
    });
    return found;
  }
  Bytes when_acknowledged() const { return after_power_cut(trace_.events.size()); }

  model::Trace trace_;
  std::optional<ErrorCode> refused_;
};

// In the last-level cache: the server says that DDIO is off, and it is on.
TEST_F(WriteFatesTest, InTheCacheWhenAcknowledgedItIsLostUnderAdr) {
  for (const auto strategy : {WriteStrategy::kNaive, WriteStrategy::kDoorbell}) {
    write(strategy, true, Domain::kMemoryController, WriteLanding::kMemory, 0);
    EXPECT_EQ(when_acknowledged(), (Bytes{kOld, kNew})) << "nobody has flushed the line";
  }
}

// A visible write, and then what makes it durable: the server's CPU flushes its range.
TEST_F(WriteFatesTest, AVisibleWriteIsLostUntilItsRangeWasFlushed) {
  for (const bool persists : {false, true}) {
    write_visible(persists);
    EXPECT_EQ(when_acknowledged(), persists ? Bytes{kNew} : (Bytes{kOld, kNew}));
  }
}

TEST_F(WriteFatesTest, WhereItWouldBeLostInTheCacheNoWriterIsMade) {
  write(WriteStrategy::kDoorbell, true, Domain::kMemoryController, WriteLanding::kLastLevelCache,
        0);
  EXPECT_EQ(refused_, ErrorCode::kUnsupported);
}

TEST_F(WriteFatesTest, InTheCacheWhenAcknowledgedItSurvivesUnderEadr) {
  write(WriteStrategy::kDoorbell, true, Domain::kCpuCache, WriteLanding::kLastLevelCache, 1e9);
  EXPECT_EQ(when_acknowledged(), Bytes{kNew});
}

// In the RNIC: kNaive has the WRITE acknowledged before it sends the READ.
TEST_F(WriteFatesTest, StillInTheRnicWhenTheWriteAloneIsAcknowledgedItIsLost) {
  write(WriteStrategy::kNaive, false, Domain::kMemoryController, WriteLanding::kMemory, 1e9);
  EXPECT_EQ(after_power_cut(behind_completion(1)), Bytes{kOld});
  EXPECT_EQ(after_power_cut(behind_completion(2)), Bytes{kNew}) << "the READ has pushed it out";
}

TEST_F(WriteFatesTest, StillInTheRnicItIsLostUnderEadrToo) {
  write(WriteStrategy::kNaive, true, Domain::kCpuCache, WriteLanding::kLastLevelCache, 1e9);
  EXPECT_EQ(after_power_cut(behind_completion(1)), Bytes{kOld});
  EXPECT_EQ(after_power_cut(behind_completion(2)), Bytes{kNew});
}

// Durable: acknowledged means that the READ behind it was answered.
TEST_F(WriteFatesTest, DurableWhenItsReadIsAnswered) {
  for (const auto strategy :
       {WriteStrategy::kNaive, WriteStrategy::kOutstanding, WriteStrategy::kDoorbell}) {
    for (const double hold_ns : {0.0, 1e9}) {
      write(strategy, false, Domain::kMemoryController, WriteLanding::kMemory, hold_ns);
      EXPECT_EQ(when_acknowledged(), Bytes{kNew});
    }
  }
}

}  // namespace
}  // namespace pmstore::crash
