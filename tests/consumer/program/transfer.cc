// usage: transfer URI: moves 10 from alice to bob, in one durable transaction.
#include <cstdio>
#include <string>

#include "base/clock.h"
#include "pmstore/client.h"

using namespace pmstore;

base::Task<Status> transfer(Client& client) {
  PMSTORE_CO_TRY(const TableId table, co_await client.open_table("default"));
  // Runs the body and commits; again when another transaction came between.
  co_return co_await retry(client, [table](Transaction& t) -> base::Task<Status> {
    PMSTORE_CO_TRY(const std::string alice, co_await t.get(table, "alice"));
    PMSTORE_CO_TRY(const std::string bob, co_await t.get(table, "bob"));
    t.put(table, "alice", std::to_string(std::stol(alice) - 10));
    t.put(table, "bob", std::to_string(std::stol(bob) + 10));
    co_return Status();
  });
}

int main(int argc, char** argv) {
  base::RealClock clock;
  Executor executor(clock);
  Status done;
  if (auto uri = fabric::parse_uri(argc > 1 ? argv[1] : ""); !uri) {
    done = uri.error();
  } else if (auto client = executor.run(Client::connect(executor, *uri, {})); !client) {
    done = client.error();
  } else {
    done = executor.run(transfer(**client));
    executor.run((*client)->close());
  }
  if (!done) std::fprintf(stderr, "transfer: %s\n", done.error().to_string().c_str());
  return done ? 0 : 1;
}
