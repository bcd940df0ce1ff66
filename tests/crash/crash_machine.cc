#include "tests/crash/crash_machine.h"

#include "base/check.h"

namespace pmstore::crash {

CrashMachine::CrashMachine(const Options& options) : executor_(clock_, {.seed = options.seed}) {
  model::Parameters parameters = *model::named_parameters("optane-cx5");
  parameters.rnic.hold_ns = options.hold_ns;
  if (options.slow_memory) {
    parameters.imc.write_queue = 1;
    parameters.imc.request_ns = 500;
  }
  if (options.send_queue > 0) parameters.rnic.send_queue_wqes = options.send_queue;
  auto made = model::Cluster::create(executor_, parameters,
                                     {.hosts = 2, .ddio = options.ddio, .seed = options.seed});
  PMSTORE_CHECK(made.has_value(), "two hosts with one socket are possible");
  cluster_ = std::move(*made);
}

CrashMachine::~CrashMachine() {
  if (memory_ != nullptr) take();
}

void CrashMachine::record(persist::Memory& memory) {
  memory_ = &memory;
  server().place_nvm(memory.mapping(), 0);
  recorder_.emplace(memory);
  // The host is the memory's observer now, and the recorder the host's: it hears each step once.
  server().watch(memory, 0);
  server().set_nvm_observer(&*recorder_);
}

model::Trace CrashMachine::take() {
  server().set_nvm_observer(nullptr);
  server().unwatch(*memory_);
  server().remove_nvm(memory_->mapping());
  memory_ = nullptr;
  return recorder_->take();
}

void CrashMachine::pass(uint64_t ns) {
  run([](base::Executor& executor, uint64_t for_ns) -> base::Task<void> {
    co_await executor.sleep_for(for_ns);
  }(executor_, ns));
}

}  // namespace pmstore::crash
