// StoreWorld: a server, a client whose operations are destroyed in their middle, another client
// that sees what became of them, and what must hold afterwards.
//
// Invariant between two operations: the records are those of kBefore, nothing is locked, reserved
// or under way, and `client` is new. Everything is on one executor in virtual time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "pmstore/client.h"
#include "pmstore/server.h"
#include "tests/crash/crash_image.h"
#include "tests/unit/cancellation/cutter.h"

namespace pmstore::cancellation {

// Values by key. A key that is not there has none.
using Records = std::map<std::string, std::string>;
const Records& records_before();

class StoreWorld {
 public:
  StoreWorld(LockDiscipline discipline, persist::Domain domain, TableKind kind = TableKind::kHash);
  ~StoreWorld();

  // `effect`: what the operation changes; an empty value takes the key away. The operation is run
  // again and again in new weather of that kind, destroyed at each point, and then once to its end.
  using Operation = base::Task<void> (*)(StoreWorld&);
  void destroy_everywhere(Operation operation, const Records& effect, Weather weather,
                          Aftermath aftermath);

  base::Executor& executor() { return executor_; }
  const fabric::Uri& uri() const { return uri_; }
  ClientOptions client_options();  // of a client that was never there
  base::Task<Result<std::unique_ptr<Client>>> connect();

  // For operations.
  std::unique_ptr<Client> client;
  TableId table{};
  std::optional<Transaction> transaction;  // of `client`, which an operation may leave here
  std::unique_ptr<Server> server;
  Weather weather() const { return weather_; }
  void closes() { closes_ = true; }  // the client is of no use any more, whatever comes of it
  persist::Pool& pool() { return *pool_; }
  const ServerOptions& server_options() const { return server_options_; }

 private:
  bool prepare(Weather weather);
  bool destroy_at(Operation operation, const Records& effect, Weather weather, uint64_t point);
  void audit(const Records& effect, bool done);
  void settle_others();
  void drop_client();
  void expect_others_end();
  void close_client();
  void expect_usable(const char* what, Client& of);
  void expect_records(const Records& effect, bool done);
  void expect_nothing_locked();
  void expect_nothing_leaked();
  void start_server();

  const persist::Domain domain_;
  ServerOptions server_options_;
  crash::PageBytes region_;
  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  Cutter cutter_{executor_};
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<Client> other_;
  fabric::Uri uri_;
  // Another operation of the same client, begun behind the one that is destroyed.
  std::optional<base::Task<Status>> bystander_;
  std::optional<uint64_t> free_bytes_;  // between two operations
  Weather weather_ = Weather::kCalm;
  Aftermath aftermath_ = Aftermath::kUse;
  bool closes_ = false;
  uint64_t last_client_ = 0;
};

}  // namespace pmstore::cancellation
