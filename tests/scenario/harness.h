// Harness: runs one scenario source on every provider, with the server where that provider wants
// it.
//
// The provider is chosen by the environment, so that one binary serves all of them:
//
//   PMSTORE_TEST_FABRIC=local   (default) the target is a second thread with its own executor;
//                               with PMSTORE_TEST_PLACE=same it shares the test's executor
//   PMSTORE_TEST_FABRIC=model   both are hosts of the modelled machine (docs/model-network.md), on
//                               one executor, in virtual time
//   PMSTORE_TEST_FABRIC=tcp     the target is a second process, at tcp://127.0.0.1:0
//   PMSTORE_TEST_FABRIC=shm     the target is a second process, at shm://pmstore-PID-N
//   PMSTORE_TEST_FABRIC=verbs   the target is a second process, at verbs://$PMSTORE_GUEST_ADDR:0
//                               (for instance, in a guest of tests/guest, with rxe0 at 10.77.0.1:
//                               PMSTORE_TEST_FABRIC=verbs PMSTORE_GUEST_ADDR=10.77.0.1
//                               build/tests/fabric_scenarios [--gtest_filter=...])
//
// PMSTORE_TEST_LATE=SEED has what is posted take effect late (docs/fabric-local.md), as this number
// says: on model; or on local, whose target then shares the test's executor, in virtual time
// (PMSTORE_TEST_PLACE=thread: a second thread, in real time, which no number repeats). Each test
// begins anew with the number, so that a failure is repeated by the same number and a
// --gtest_filter. tests/scenario/late_campaign tries many.
//
// A suite writes its server as a Role, registers it by name, and calls run_scenarios() from main().
// A second process is this same binary started as `BINARY --peer ROLE URI ARGS...`; it prints its
// address, and ends when its standard input closes, so nothing is left behind, not even by a killed
// test. PMSTORE_TEST_TIMEOUT_MS (default 10000) is the operation and call timeout of the scenarios
// that lose a peer: longer than a busy machine keeps one from running that is alive.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "fabric/device.h"
#include "fabric/uri.h"
#include "model/cluster.h"

namespace pmstore::scenario {

// The clock of a scenario: real, or virtual on the model and with late effects on one executor.
class TestClock final : public base::Clock {
 public:
  TestClock();
  uint64_t now_ns() const override { return clock_->now_ns(); }
  bool is_virtual() const override { return clock_->is_virtual(); }
  bool advance_to(uint64_t time_ns) override { return clock_->advance_to(time_ns); }

 private:
  std::unique_ptr<base::Clock> clock_;
};

// The modelled machine of a scenario, or what opens devices with late effects. A fixture declares
// it right behind its executor, before whatever has devices; one at a time.
class TestMachine {
 public:
  explicit TestMachine(base::Executor& executor);
  ~TestMachine();
  TestMachine(const TestMachine&) = delete;
  TestMachine& operator=(const TestMachine&) = delete;
  // Where the test's devices come from, and those of its targets: each nullptr on devices of
  // this machine.
  static fabric::DeviceOpener* test_host();
  static fabric::DeviceOpener* target_host();

 private:
  std::unique_ptr<model::Cluster> cluster_;
  std::unique_ptr<fabric::DeviceOpener> late_;
};

// The server of a scenario. Created, used and destroyed on the executor it is given.
class Role {
 public:
  virtual ~Role() = default;
  // Starts serving at `uri` (port 0: any) and says where.
  virtual Result<fabric::Uri> start(base::Executor& executor, const fabric::Uri& uri,
                                    const std::vector<std::string>& args) = 0;
};
using MakeRole = std::unique_ptr<Role> (*)();

// To be called before run_scenarios().
void register_role(const std::string& name, MakeRole make);

// The provider of this run; ends the program when the environment names none.
fabric::Scheme scheme();
// The provider is the model's.
bool modelled();
// PMSTORE_TEST_LATE is set.
bool late_effects();
// Time is the test's own: what needs no time takes none.
bool virtual_time();
// The target shares the test's executor: nothing can run there while the test blocks its thread.
bool same_thread();
// The target is a process and can be killed in the middle of an instruction.
bool separate_process();
// A fresh place to listen at.
fabric::Uri listen_uri();
// For scenarios that lose a peer: short, so that providers which notice only by time do it soon.
uint64_t short_timeout_ns();
// For what has to happen: on a host that is busy with others, two programs of a guest may take tens
// of seconds to shake hands.
inline constexpr uint64_t kPatientTimeoutNs = 60'000'000'000;
// The most that something may take which is to take `exactly_ns`. The model keeps to it; a machine
// may stand still meanwhile.
uint64_t with_patience(uint64_t exactly_ns);

// A role that runs somewhere else, as the header comment says.
class Target {
 public:
  // Io with the reason when it does not come up within 120 s. `executor` is the test's.
  static Result<std::unique_ptr<Target>> start(base::Executor& executor, const std::string& role,
                                               const std::vector<std::string>& args = {});
  // stop()
  ~Target();
  const fabric::Uri& uri() const { return uri_; }

  // The role ends in order. A process that does not is killed after 10 s; says whether it was not.
  bool stop();
  // SIGKILL. In this process: the role is destroyed on its thread without being asked.
  void kill();
  // SIGSTOP and SIGCONT: alive, but silent. Only where separate_process().
  void pause();
  void resume();

 private:
  struct InThread;
  Target();
  Status start_process(const std::string& role, const std::vector<std::string>& args);
  Status start_thread(const std::string& role, const std::vector<std::string>& args);

  fabric::Uri uri_{fabric::Scheme::kLocal, {}, 0};
  std::unique_ptr<Role> same_thread_role_;
  std::unique_ptr<InThread> thread_;
  pid_t child_ = -1;
  int child_stdin_ = -1;
};

// main() of a scenario binary: the peer of another one, or GoogleTest.
int run_scenarios(int argc, char** argv);

}  // namespace pmstore::scenario
