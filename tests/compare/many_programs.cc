// One of many programs that use one server at the same time: pmstore, Redis, or a bare echo server.
// Prints what it measured as one line of JSON. tests/compare/compare_waiting starts them.
//
// With --wait it says "ready" when it is connected and begins when it reads a line, so that many
// programs begin together.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/compare/echo_server.h"
#include "tests/compare/load.h"
#include "tests/compare/socket_load.h"
#include "tests/compare/store_load.h"

namespace {

using namespace pmstore::compare;

struct Arguments {
  LoadOptions load;
  bool echo_server = false;
  bool wait = false;
};

const std::map<std::string, Operation> kOperations = {{"put", Operation::kPut},
                                                      {"get", Operation::kGet},
                                                      {"append", Operation::kAppend},
                                                      {"idle", Operation::kIdle},
                                                      {"fill", Operation::kFill}};

void add_options(CLI::App& app, Arguments& arguments) {
  LoadOptions& load = arguments.load;
  app.add_flag("--serve-echo", arguments.echo_server, "be the echo server, until a signal");
  app.add_option("--side", load.side, "store, redis or echo")
      ->check(CLI::IsMember({"store", "redis", "echo"}));
  app.add_option("--address", load.address,
                 "tcp://HOST:PORT or shm://NAME; of others A.B.C.D:PORT or unix:PATH");
  app.add_option("--op", load.operation, "put, get, append, idle, or fill (writes all keys)")
      ->transform(CLI::CheckedTransformer(kOperations));
  app.add_option("--connections", load.connections, "so many, divided among the threads")
      ->check(CLI::Range(1, 1000));
  app.add_option("--coroutines", load.coroutines, "of the store, on each connection")
      ->check(CLI::Range(1, 1000));
  app.add_option("--threads", load.threads, "so many")->check(CLI::Range(1, 1000));
  app.add_option("--keys", load.keys, "so many")->check(CLI::Range(1, 1'000'000'000));
  app.add_option("--bytes", load.bytes, "of each value or entry")->check(CLI::Range(8, 32768));
  app.add_option("--seconds", load.seconds, "how long")->check(CLI::Range(0.0, 3600.0));
  app.add_option("--ops", load.ops, "on each connection and coroutine, instead of --seconds");
  app.add_option("--silence-ms", load.silence_ms, "before each operation, which alone is measured");
  app.add_flag("--warm", load.warm, "of the store: read every key before the start");
  app.add_option("--request-bytes", load.request_bytes, "of the echo side, on the wire")
      ->check(CLI::Range(sizeof(EchoHeader), size_t{kMaxEchoBytes}));
  app.add_option("--reply-bytes", load.reply_bytes, "of the echo side, on the wire")
      ->check(CLI::Range(1u, kMaxEchoBytes));
  app.add_flag("--wait", arguments.wait, "say ready, then wait for a line on standard input");
  app.footer("example: many_programs --side store --address tcp://127.0.0.1:7000 --op put");
}

void check(const LoadOptions& load) {
  if (load.address.empty()) fail("--address", "is missing; say where the server is");
  if (load.threads > load.connections) {
    fail("--threads", "there are fewer connections; give at most --connections");
  }
  if (load.side != "store" && load.coroutines > 1) {
    fail("--coroutines", "only the store's client has coroutines; give --connections");
  }
  if (load.silence_ms != 0 && load.connections > 1) {
    fail("--silence-ms", "measures one connection; leave out --connections");
  }
  if (load.side == "echo" && (load.request_bytes == 0 || load.reply_bytes == 0)) {
    fail("--side echo", "the sizes are missing; give --request-bytes and --reply-bytes");
  }
}

// Values and how many operations each of them stands for, so that the latencies of many programs
// can be merged: every per cent, and above 98% every fiftieth of one.
std::string profile(const pmstore::Histogram& latency) {
  std::string text;
  double below = 0;
  for (int step = 1; step <= 198; ++step) {
    const double q = step <= 98 ? step / 100.0 : 0.98 + (step - 98) * 0.0002;
    text += fmt::format("{}[{},{:.4f}]", text.empty() ? "" : ",", latency.quantile(q), q - below);
    below = q;
  }
  return text;
}

struct Measured {
  Tally all;
  Cost cost;
  SocketBytes bytes;
  double seconds = 0;
};

void print(const LoadOptions& load, const Measured& measured) {
  const auto& [all, cost, bytes, seconds] = measured;
  const uint64_t ops = all.latency_ns.count();
  const double each = 1.0 / static_cast<double>(std::max<uint64_t>(ops, 1));
  const auto operation = std::find_if(kOperations.begin(), kOperations.end(),
                                      [&](const auto& o) { return o.second == load.operation; });
  fmt::print(
      "{{\"side\":\"{}\",\"op\":\"{}\",\"connections\":{},\"threads\":{},\"coroutines\":{},"
      "\"bytes\":{},\"ops\":{},\"conflicts\":{},\"seconds\":{:.6f},\"rate\":{:.1f},",
      load.side, operation->first, load.connections, load.threads, load.coroutines, load.bytes, ops,
      all.conflicts, seconds, static_cast<double>(ops) / seconds);
  fmt::print("\"p50_ns\":{},\"p99_ns\":{},\"p999_ns\":{},\"max_ns\":{},",
             all.latency_ns.quantile(0.5), all.latency_ns.quantile(0.99),
             all.latency_ns.quantile(0.999), all.latency_ns.max());
  fmt::print(
      "\"user_s\":{:.6f},\"system_s\":{:.6f},\"voluntary\":{},\"involuntary\":{},"
      "\"sent_per_op\":{:.1f},\"received_per_op\":{:.1f},\"profile\":[{}]}}\n",
      static_cast<double>(cost.user_ns) / 1e9, static_cast<double>(cost.system_ns) / 1e9,
      cost.voluntary_switches, cost.involuntary_switches, static_cast<double>(bytes.sent) * each,
      static_cast<double>(bytes.received) * each, profile(all.latency_ns));
}

void run(const Arguments& arguments) {
  const LoadOptions& load = arguments.load;
  StartGate gate;
  std::vector<Tally> tallies(load.threads);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < load.threads; ++i) {
    threads.emplace_back([&, i] {
      (load.side == "store" ? run_store_load : run_socket_load)(load, i, gate, tallies[i]);
    });
  }
  gate.wait_for_arrival(load.threads);
  if (arguments.wait) {
    fmt::print("ready\n");
    std::fflush(stdout);
    std::string line;
    if (!std::getline(std::cin, line)) fail("--wait", "standard input ended");
  }
  const SocketBytes bytes = tcp_bytes();
  const Cost cost = Cost::until_now();
  gate.open();
  gate.wait_for_finish(load.threads);
  Measured measured;
  measured.seconds = static_cast<double>(monotonic_ns() - gate.start_ns()) / 1e9;
  measured.cost = Cost::until_now() - cost;
  measured.bytes = tcp_bytes() - bytes;
  gate.release();
  for (std::thread& thread : threads) thread.join();
  for (const Tally& tally : tallies) measured.all.merge(tally);
  print(load, measured);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("one of many programs that use one server", "many_programs");
  Arguments arguments;
  add_options(app, arguments);
  CLI11_PARSE(app, argc, argv);
  if (arguments.echo_server) serve_echo();
  check(arguments.load);
  run(arguments);
  return 0;
}
