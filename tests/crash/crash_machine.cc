#include "tests/crash/crash_machine.h"

#include "base/check.h"

namespace pmstore::crash {

CrashMachine::CrashMachine(const Options& options)
    : slow_sync_(clock_, options.msync_ns),
      executor_(clock_, {.seed = options.seed}),
      servers_(options.servers) {
  model::Parameters parameters = *model::named_parameters("optane-cx5");
  parameters.rnic.hold_ns = options.hold_ns;
  if (options.slow_memory) {
    parameters.imc.write_queue = 1;
    parameters.imc.request_ns = 500;
  }
  if (options.send_queue > 0) parameters.rnic.send_queue_wqes = options.send_queue;
  auto made = model::Cluster::create(
      executor_, parameters, {.hosts = servers_ + 1, .ddio = options.ddio, .seed = options.seed});
  PMSTORE_CHECK(made.has_value(), "hosts with one socket are possible");
  cluster_ = std::move(*made);
}

CrashMachine::~CrashMachine() {
  if (!memories_.empty()) take();
}

// The host is the memory's observer now, and the recorder the host's: it hears each step once.
void CrashMachine::record(persist::Memory& memory) {
  memories_ = {&memory};
  server().place_nvm(memory.mapping(), 0);
  recorder_.emplace(memory, slow_sync_.takes_time() ? &slow_sync_ : nullptr);
  server().watch(memory, 0);
  server().set_nvm_observer(&*recorder_);
}

void CrashMachine::record(std::span<persist::Memory* const> parts,
                          std::span<const std::byte> whole) {
  memories_.assign(parts.begin(), parts.begin() + servers_);
  recorder_.emplace(parts, whole);
  for (size_t i = 0; i < servers_; ++i) {
    server(i).place_nvm(memories_[i]->mapping(), 0);
    server(i).watch(*memories_[i], 0);
    server(i).set_nvm_observer(&recorder_->part(i));
  }
}

model::Trace CrashMachine::take() {
  for (size_t i = 0; i < memories_.size(); ++i) {
    server(i).set_nvm_observer(nullptr);
    server(i).unwatch(*memories_[i]);
    server(i).remove_nvm(memories_[i]->mapping());
  }
  memories_.clear();
  return recorder_->take();
}

void CrashMachine::pass(uint64_t ns) {
  run([](base::Executor& executor, uint64_t for_ns) -> base::Task<void> {
    co_await executor.sleep_for(for_ns);
  }(executor_, ns));
}

}  // namespace pmstore::crash
