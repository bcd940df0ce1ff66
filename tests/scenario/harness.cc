#include "tests/scenario/harness.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <map>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "fabric/local/local_device.h"

extern char** environ;

namespace pmstore::scenario {

namespace {

// In a guest, on a host that is busy with others, starting a program takes tens of seconds.
constexpr int kStartTimeoutMs = 120'000;
constexpr int kStopTimeoutMs = 60'000;
constexpr std::string_view kReady = "READY ";

std::map<std::string, MakeRole>& roles() {
  static std::map<std::string, MakeRole> all;
  return all;
}

std::unique_ptr<Role> make_role(const std::string& name) {
  auto found = roles().find(name);
  if (found == roles().end()) {
    std::fprintf(stderr, "no scenario role is named '%s'\n", name.c_str());
    std::exit(2);
  }
  return found->second();
}

std::string environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

// One line from `fd` within the time, without its end; empty when there is none.
std::string read_line(int fd, int timeout_ms) {
  base::RealClock clock;
  const uint64_t deadline = clock.now_ns() + static_cast<uint64_t>(timeout_ms) * 1'000'000;
  std::string line;
  while (clock.now_ns() < deadline) {
    pollfd ready{fd, POLLIN, 0};
    if (::poll(&ready, 1, 100) <= 0) continue;
    char c = 0;
    if (read(fd, &c, 1) != 1) return {};
    if (c == '\n') return line;
    line.push_back(c);
  }
  return {};
}

// PMSTORE_TEST_LATE, if effects are to be late.
std::optional<uint64_t> late_seed() {
  static const std::optional<uint64_t> chosen = []() -> std::optional<uint64_t> {
    const std::string text = environment("PMSTORE_TEST_LATE", "");
    if (text.empty()) return std::nullopt;
    if (scheme() != fabric::Scheme::kLocal) {
      std::fprintf(stderr, "PMSTORE_TEST_LATE: effects are late on local and model only\n");
      std::exit(2);
    }
    return std::strtoull(text.c_str(), nullptr, 10);
  }();
  return chosen;
}

// Opens devices of the local provider whose effects are late, each by a number of its own.
class LateOpener final : public fabric::DeviceOpener {
 public:
  explicit LateOpener(uint64_t seed) : seed_(seed) {}
  Result<std::unique_ptr<fabric::Device>> open(fabric::Scheme scheme,
                                               base::Executor& executor) override {
    if (scheme != fabric::Scheme::kLocal) return fabric::open_device(scheme, executor);
    return fabric::open_local_device(executor,
                                     {.late_effects_seed = base::mix64(seed_) + ++devices_});
  }

 private:
  const uint64_t seed_;
  std::atomic<uint64_t> devices_{0};
};

int run_peer(const std::vector<std::string>& args) {
  if (args.size() < 2) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto uri = fabric::parse_uri(args[1]);
  if (!uri) {
    std::printf("%s\n", uri.error().to_string().c_str());
    return 1;
  }
  base::RealClock clock;
  base::Executor executor(clock);
  std::unique_ptr<Role> role = make_role(args[0]);
  auto served = role->start(executor, *uri, {args.begin() + 2, args.end()});
  if (!served) {
    std::printf("%s\n", served.error().to_string().c_str());
    return 1;
  }
  std::printf("%s%s\n", kReady.data(), served->to_string().c_str());
  std::fflush(stdout);
  std::thread watch([&executor] {
    char c = 0;
    while (read(STDIN_FILENO, &c, 1) > 0) {
    }
    executor.request_stop();
  });
  executor.run_until_stopped();
  watch.join();
  role.reset();
  return 0;
}

}  // namespace

void register_role(const std::string& name, MakeRole make) { roles()[name] = make; }

fabric::Scheme scheme() {
  static const fabric::Scheme chosen = [] {
    const std::string name = environment("PMSTORE_TEST_FABRIC", "local");
    if (modelled()) return fabric::Scheme::kLocal;
    for (auto candidate : {fabric::Scheme::kLocal, fabric::Scheme::kTcp, fabric::Scheme::kShm,
                           fabric::Scheme::kVerbs}) {
      if (name == fabric::scheme_name(candidate)) return candidate;
    }
    std::fprintf(stderr, "PMSTORE_TEST_FABRIC=%s: use local, model, tcp, shm or verbs\n",
                 name.c_str());
    std::exit(2);
  }();
  return chosen;
}

bool modelled() {
  static const bool chosen = environment("PMSTORE_TEST_FABRIC", "local") == "model";
  return chosen;
}

bool same_thread() {
  const char* const otherwise = late_seed() ? "same" : "thread";
  return modelled() || (scheme() == fabric::Scheme::kLocal &&
                        environment("PMSTORE_TEST_PLACE", otherwise) == "same");
}

bool late_effects() { return late_seed().has_value(); }

bool virtual_time() { return modelled() || (late_seed() && same_thread()); }

bool separate_process() { return scheme() != fabric::Scheme::kLocal; }

// No default of the product's: one that is taken instead is seen. Virtual time needs no patience.
uint64_t short_timeout_ns() {
  const long wanted = std::atol(environment("PMSTORE_TEST_TIMEOUT_MS", "0").c_str());
  const long milliseconds = wanted > 0 ? wanted : virtual_time() ? 2000 : 7000;
  return static_cast<uint64_t>(milliseconds) * 1'000'000;
}

uint64_t with_patience(uint64_t exactly_ns) {
  return virtual_time() ? exactly_ns : exactly_ns + kPatientTimeoutNs;
}

fabric::Uri listen_uri() {
  static std::atomic<int> serial{0};
  const std::string unique = std::to_string(getpid()) + "-" + std::to_string(++serial);
  switch (scheme()) {
    case fabric::Scheme::kLocal: return {scheme(), "scenario-" + unique, 0};
    case fabric::Scheme::kShm: return {scheme(), "pmstore-" + unique, 0};
    case fabric::Scheme::kTcp: return {scheme(), "127.0.0.1", 0};
    case fabric::Scheme::kVerbs:
      return {scheme(), environment("PMSTORE_GUEST_ADDR", "10.77.0.1"), 0};
  }
  return {scheme(), unique, 0};
}

// ---- the modelled machine ----

namespace {
model::Cluster* the_cluster = nullptr;
fabric::DeviceOpener* the_late_opener = nullptr;
}  // namespace

TestClock::TestClock() {
  if (virtual_time()) {
    clock_ = std::make_unique<base::VirtualClock>();
  } else {
    clock_ = std::make_unique<base::RealClock>();
  }
}

TestMachine::TestMachine(base::Executor& executor) {
  PMSTORE_CHECK(the_cluster == nullptr && the_late_opener == nullptr, "a scenario has one machine");
  if (late_seed() && !modelled()) {
    late_ = std::make_unique<LateOpener>(*late_seed());
    the_late_opener = late_.get();
  }
  if (!modelled()) return;
  auto made = model::Cluster::create(executor, *model::named_parameters("optane-cx5"),
                                     {.late_effects_seed = late_seed()});
  PMSTORE_CHECK(made, "the parameters of the modelled machine are valid");
  cluster_ = std::move(*made);
  the_cluster = cluster_.get();
}

TestMachine::~TestMachine() {
  the_cluster = nullptr;
  the_late_opener = nullptr;
}

fabric::DeviceOpener* TestMachine::test_host() {
  return the_cluster == nullptr ? the_late_opener : &the_cluster->host(1);
}

fabric::DeviceOpener* TestMachine::target_host() {
  return the_cluster == nullptr ? the_late_opener : &the_cluster->host(0);
}

// ---- a target in this process ----

struct Target::InThread {
  base::RealClock clock;
  base::Executor executor{clock};
  std::thread thread;
};

Target::Target() = default;

Target::~Target() { stop(); }

Status Target::start_thread(const std::string& name, const std::vector<std::string>& args) {
  thread_ = std::make_unique<InThread>();
  std::promise<Result<fabric::Uri>> started;
  auto result = started.get_future();
  const fabric::Uri uri = listen_uri();
  thread_->thread = std::thread([this, name, args, uri, &started] {
    std::unique_ptr<Role> role = make_role(name);
    auto served = role->start(thread_->executor, uri, args);
    const bool up = served.has_value();
    started.set_value(std::move(served));
    if (up) thread_->executor.run_until_stopped();
  });
  auto served = result.get();
  if (!served) return std::move(served.error());
  uri_ = *served;
  return {};
}

// ---- a target in another process ----

Status Target::start_process(const std::string& role, const std::vector<std::string>& args) {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
  if (length <= 0) return make_error(ErrorCode::kIo, "cannot find this program in /proc");
  self[length] = '\0';
  int to_child[2];
  int from_child[2];
  if (pipe2(to_child, O_CLOEXEC) != 0 || pipe2(from_child, O_CLOEXEC) != 0) {
    return make_error(ErrorCode::kIo, std::string("pipe: ") + std::strerror(errno));
  }
  std::vector<std::string> words = {self, "--peer", role, listen_uri().to_string()};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_child[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from_child[1], STDOUT_FILENO);
  const int failed = posix_spawn(&child_, self, &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(to_child[0]);
  close(from_child[1]);
  child_stdin_ = to_child[1];
  if (failed != 0) {
    child_ = -1;
    close(from_child[0]);
    return make_error(ErrorCode::kIo,
                      std::string("cannot start the target: ") + std::strerror(failed));
  }
  const std::string line = read_line(from_child[0], kStartTimeoutMs);
  close(from_child[0]);
  if (!line.starts_with(kReady)) {
    return make_error(ErrorCode::kIo, "the target did not start: " +
                                          (line.empty() ? std::string("it said nothing") : line));
  }
  auto uri = fabric::parse_uri(line.substr(kReady.size()));
  if (!uri) return std::move(uri.error());
  uri_ = *uri;
  return {};
}

Result<std::unique_ptr<Target>> Target::start(base::Executor& executor, const std::string& role,
                                              const std::vector<std::string>& args) {
  std::unique_ptr<Target> target(new Target());
  Status started;
  if (separate_process()) {
    started = target->start_process(role, args);
  } else if (same_thread()) {
    target->same_thread_role_ = make_role(role);
    auto served = target->same_thread_role_->start(executor, listen_uri(), args);
    if (!served) return std::move(served.error());
    target->uri_ = *served;
  } else {
    started = target->start_thread(role, args);
  }
  if (!started) return std::move(started.error());
  return target;
}

bool Target::stop() {
  same_thread_role_.reset();
  if (thread_ != nullptr) {
    thread_->executor.request_stop();
    thread_->thread.join();
    thread_.reset();
  }
  if (child_ < 0) return true;
  close(child_stdin_);
  bool orderly = false;
  for (int waited_ms = 0; waited_ms < kStopTimeoutMs; waited_ms += 5) {
    int status = 0;
    if (waitpid(child_, &status, WNOHANG) == child_) {
      orderly = WIFEXITED(status) && WEXITSTATUS(status) == 0;
      child_ = -1;
      return orderly;
    }
    usleep(5000);
  }
  ::kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
  child_ = -1;
  return false;
}

void Target::kill() {
  if (child_ < 0) {
    stop();
    return;
  }
  ::kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
  close(child_stdin_);
  child_ = -1;
}

void Target::pause() {
  if (child_ > 0) ::kill(child_, SIGSTOP);
}

void Target::resume() {
  if (child_ > 0) ::kill(child_, SIGCONT);
}

int run_scenarios(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  if (argc >= 2 && std::string_view(argv[1]) == "--peer") return run_peer({argv + 2, argv + argc});
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace pmstore::scenario
