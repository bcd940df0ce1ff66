// A host of two small services over the in-process fabric, in virtual time: what it tells them and
// its observer is a list of words, in order.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fabric/message.h"
#include "persist/remote_writer.h"
#include "service/host.h"
#include "service/link.h"
#include "tests/harness/numbered_client.h"

namespace pmstore::service {

using Events = std::vector<std::string>;

inline constexpr ServiceId kEcho{1};
inline constexpr ServiceId kQuiet{9};
inline constexpr uint16_t kEchoMethod = 0x0901;     // answers with its body
inline constexpr uint16_t kHoldMethod = 0x0902;     // is answered by finish()
inline constexpr uint16_t kLookMethod = 0x0903;     // calls EchoService::look
inline constexpr uint16_t kFailingMethod = 0x0904;  // NotFound

// Refuses a hello whose body is not empty, or is "no".
class EchoService final : public Service {
 public:
  EchoService(const ServiceTraits& traits, Events& events) : Service(traits), events_(events) {}

  uint64_t epoch() const override { return epoch_now; }
  bool needs_lease(const Session&) const override { return leased; }
  Result<std::vector<std::byte>> admit(Session& session, std::span<const std::byte> body) override {
    const std::string text(reinterpret_cast<const char*>(body.data()), body.size());
    if (text == "no") return make_error(ErrorCode::kNotFound, "it said no");
    if (!text.empty() && text != "ends") return make_error(ErrorCode::kProtocol, "what body?");
    if (text == "ends") host().kick(session.client);
    last = session.weak_from_this();
    const std::string answer = "welcome";
    const auto bytes = std::as_bytes(std::span(answer));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  }
  void on_call(Session& session, fabric::RpcCall call, std::span<const std::byte> body) override {
    switch (call.method()) {
      case kEchoMethod: return call.reply(body);
      case kHoldMethod: return held.push_back(std::move(call));
      case kLookMethod: look(session); return call.reply({});
      case kFailingMethod: return call.reply_error(make_error(ErrorCode::kNotFound, "not here"));
      default: return host().drop_malformed(session, call);
    }
  }
  void on_waiting(uint16_t method, std::span<const std::byte> body) override {
    const std::string text(reinterpret_cast<const char*>(body.data()), body.size());
    waiting.push_back(std::to_string(method) + " " + text);
  }
  bool on_known_through(Session&, uint64_t number) override {
    if (number > kLastNumber) return false;
    known.push_back(number);
    return true;
  }
  void finish() override {
    std::vector<fabric::RpcCall> all;
    all.swap(held);
    for (fabric::RpcCall& call : all) call.reply({});
  }
  void on_ended(Session& session, std::optional<SessionEnd> why) override {
    EXPECT_EQ(session.peer, nullptr) << "the connection goes first";
    events_.push_back("service: " + std::to_string(numbered::number_of(session.client)) +
                      (why ? "" : " stops"));
  }
  void describe(const Session&, SessionReport& report) const override { report.commits = 77; }

  uint64_t epoch_now = 5;
  bool leased = false;
  std::function<void(Session&)> look = [](Session&) {};
  std::vector<std::string> waiting;  // on_waiting()
  std::vector<fabric::RpcCall> held;
  std::weak_ptr<Session> last;
  static constexpr uint64_t kLastNumber = 100;
  std::vector<uint64_t> known;  // on_known_through()

 private:
  Events& events_;
};

class Listening final : public SessionObserver {
 public:
  explicit Listening(Events& events) : events_(events) {}
  void on_session(const SessionName& session) override { say("begins", session, ""); }
  void on_refused(const SessionName& session, const Error& why) override {
    say("refused", session, " " + std::string(base::error_name(why.code)));
  }
  void on_ended(const SessionName& session, SessionEnd why) override {
    say("ended", session, " " + std::to_string(static_cast<int>(why)));
  }
  void on_failure(const Error& why) override { events_.push_back("failure: " + why.message); }

 private:
  void say(const char* what, const SessionName& session, const std::string& more) {
    events_.push_back(std::string(what) + ": " + std::string(session.kind) + " " +
                      std::to_string(numbered::number_of(session.client)) + more);
  }
  Events& events_;
};

class HostFixture : public testing::Test {
 protected:
  static constexpr uint64_t kLeaseMs = 100;

  void SetUp() override { start(); }
  void TearDown() override { host_.reset(); }
  void start(fabric::DeviceOpener* devices = nullptr) {
    HostOptions options;
    options.lease_ms = kLeaseMs;
    options.observer = &observer_;
    options.devices = devices;
    host_ = std::make_unique<Host>(executor_, options);
    host_->add(echo_);
    host_->add(quiet_);
    auto listening = run(host_->listen({fabric::Scheme::kLocal, "host", 0}));
    ASSERT_TRUE(listening) << listening.error().to_string();
    uri_ = *listening;
    device_ = std::move(*fabric::open_device(fabric::Scheme::kLocal, executor_));
  }
  template <typename T>
  T run(base::Task<T> task) {
    return executor_.run(std::move(task));
  }
  void let_time_pass(uint64_t ms) {
    run([](base::Executor& executor, uint64_t ns) -> base::Task<void> {
      co_await executor.sleep_for(ns);
    }(executor_, ms * 1'000'000));
  }
  Result<std::unique_ptr<Link>> try_open(uint64_t client, ServiceId service = kEcho,
                                         std::string_view body = {},
                                         std::shared_ptr<const uint64_t> known = {}) {
    LinkOptions options;
    options.known_through = std::move(known);
    options.service = service;
    options.secret = ClientSecret::of_number(client);
    return run(Link::open(*device_, uri_, options, std::as_bytes(std::span(body))));
  }
  std::unique_ptr<Link> open(uint64_t client, ServiceId service = kEcho, std::string_view body = {},
                             std::shared_ptr<const uint64_t> known = {}) {
    auto link = try_open(client, service, body, std::move(known));
    EXPECT_TRUE(link) << link.error().to_string();
    return link ? std::move(*link) : nullptr;
  }
  Result<std::string> call_raw(Link& link, uint16_t method, std::vector<std::byte> request) {
    auto reply = run(link.rpc().call(method, request, 256));
    if (!reply) return std::move(reply.error());
    return std::string(reinterpret_cast<const char*>(reply->bytes().data()), reply->bytes().size());
  }
  static std::vector<std::byte> with_prefix(const Link& link, std::string_view text) {
    const RequestPrefix prefix = link.prefix();
    std::vector<std::byte> request(sizeof prefix + text.size());
    fabric::MessageWriter writer(request);
    writer.put(prefix);
    writer.put_bytes(text);
    return request;
  }
  Result<std::string> call(Link& link, uint16_t method, std::string_view text = {}) {
    return call_raw(link, method, with_prefix(link, text));
  }
  bool usable(Link& link) {
    let_time_pass(1);
    return link.usable();
  }

  Events events_;
  Listening observer_{events_};
  EchoService echo_{{.id = kEcho, .name = "echo", .max_sessions = 3}, events_};
  EchoService quiet_{
      {.id = kQuiet, .name = "quiet", .max_sessions = 2, .quiet_gives_way = true, .listed = false},
      events_};
  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  std::unique_ptr<Host> host_;
  fabric::Uri uri_;
  std::unique_ptr<fabric::Device> device_;
};

}  // namespace pmstore::service
