#include "tests/unit/cancellation/store_world.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "pmstore/client/client_state.h"
#include "pmstore/joint_commit.h"

namespace pmstore::cancellation {

namespace {

using base::Task;

constexpr uint64_t kRegionBytes = 4 << 20;
constexpr uint64_t kServerGoneNs = 3 * kMillisecond;
constexpr std::string_view kProbeKey = "usable";

// The client's inside, which only its own files see.
struct StateOf {
  friend auto inside(StateOf, Client& client);
};
template <auto kMember>
struct Inside {
  friend auto inside(StateOf, Client& client) { return (client.*kMember).get(); }
};
template struct Inside<&Client::state_>;

Task<Status> put_all(Client& client, TableId table, const Records& records, bool erase_first) {
  Transaction tx = client.begin();
  for (const auto& [key, value] : records) {
    if (erase_first || value.empty()) {
      const auto there = co_await tx.get(table, key);
      if (there) tx.erase(table, key);
    } else {
      tx.put(table, key, value);
    }
  }
  co_return co_await tx.commit();
}

// Again and again while another transaction wins.
Task<Status> put_all_patiently(Client& client, TableId table, const Records& records,
                               bool erase_first) {
  Status done;
  for (int attempt = 0; attempt < 100; ++attempt) {
    done = co_await put_all(client, table, records, erase_first);
    if (done || done.code() != ErrorCode::kConflict) break;
    co_await client.executor().sleep_for(kMillisecond);
  }
  co_return done;
}

// In one transaction.
Task<Result<Records>> read_all(Client& client, TableId table, const Records& keys) {
  while (true) {
    Records found;
    Transaction tx = client.begin();
    std::optional<Error> failed;
    for (const auto& [key, unused] : keys) {
      auto value = co_await tx.get(table, key);
      if (value) found[key] = std::move(*value);
      if (!value && value.code() != ErrorCode::kNotFound) failed = value.error();
    }
    if (!failed) {
      const Status same = co_await tx.commit();
      if (same) co_return found;
      failed = same.error();
    }
    if (failed->code != ErrorCode::kConflict) co_return std::move(*failed);
    co_await client.executor().sleep_for(kMillisecond);
  }
}

// Beside another operation.
Task<Status> stand_by(Client& client, TableId table) {
  PMSTORE_CO_TRY_STATUS(co_await client.put(table, "bystander", "1"));
  PMSTORE_CO_TRY(const std::string value, co_await client.get(table, "bystander"));
  if (value != "1") co_return make_error(ErrorCode::kDamaged, "it read another value: " + value);
  co_return co_await client.erase(table, "bystander");
}

Task<Status> use(Client& client, TableId table) {
  PMSTORE_CO_TRY_STATUS(co_await client.put(table, kProbeKey, "1"));
  PMSTORE_CO_TRY(const std::string value, co_await client.get(table, kProbeKey));
  if (value != "1") co_return make_error(ErrorCode::kDamaged, "it read another value: " + value);
  Transaction tx = client.begin();
  const auto read = co_await tx.get(table, kProbeKey);
  if (!read) co_return Error(read.error());
  tx.put(table, kProbeKey, "2");
  tx.erase(table, kProbeKey);
  co_return co_await tx.commit();
}

Records all_keys(const Records& effect) {
  Records keys = records_before();
  for (const auto& [key, value] : effect) keys.try_emplace(key, "");
  return keys;
}

}  // namespace

const Records& records_before() {
  static const Records records{
      {"read", "old"}, {"update", "old"}, {"move", "old"}, {"erase", "old"}};
  return records;
}

StoreWorld::StoreWorld(LockDiscipline discipline, persist::Domain domain, TableKind kind)
    : domain_(domain), region_(kRegionBytes) {
  server_options_.discipline = discipline;
  pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain_, true));
  FormatOptions format{8, 64 << 10};
  format.identity = 1;
  EXPECT_TRUE(format_store(*pool_, format));
  start_server();
  other_ = executor_.run(connect()).value();
  table = executor_.run(other_->create_table("t", kind)).value();
  EXPECT_TRUE(executor_.run(put_all(*other_, table, records_before(), false)));
}

StoreWorld::~StoreWorld() {
  transaction.reset();
  client.reset();
  executor_.run(other_->close());
  other_.reset();
  EXPECT_TRUE(executor_.run(server->stop()));
}

ClientOptions StoreWorld::client_options() {
  ClientOptions options;
  options.secret = ClientSecret::of_number(++last_client_);
  options.reconnect_timeout_ns = 10 * kSecond;
  options.location_cache_entries = 64;
  const bool rnic = server_options_.discipline == LockDiscipline::kRnic;
  options.misses = rnic ? MissPath::kOneSided : MissPath::kRpc;
  return options;
}

Task<Result<std::unique_ptr<Client>>> StoreWorld::connect() {
  return Client::connect(executor_, uri_, client_options());
}

void StoreWorld::start_server() {
  server = executor_.run(Server::start(executor_, *pool_, server_options_)).value();
  uri_ = executor_.run(server->listen({fabric::Scheme::kLocal, "cancellation", 0})).value();
}

// False when the test cannot go on.
bool StoreWorld::prepare(Weather weather) {
  auto connected = within(executor_, kBoundNs, connect());
  if (!connected || !*connected) {
    ADD_FAILURE() << "no new client can connect: "
                  << (connected ? connected->error().to_string() : "it waits for ever");
    return false;
  }
  client = std::move(**connected);
  closes_ = false;
  if (weather == Weather::kBroken) {
    BreakNext breaks;
    const fabric::ScopedFaultInjector installed(breaks);
    EXPECT_FALSE(executor_.run(client->get(table, "read")));
  }
  if (weather == Weather::kServerGone) {
    server.reset();
    pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain_, false));
    let_pass(executor_, kMillisecond);  // the client notices it
    executor_.spawn([](StoreWorld& world) -> Task<void> {
      co_await world.executor_.sleep_for(kServerGoneNs);
      world.server =
          (co_await Server::start(world.executor_, *world.pool_, world.server_options_)).value();
      const fabric::Uri uri = world.uri_;
      world.uri_ = (co_await world.server->listen(uri)).value();
    }(*this));
  }
  return true;
}

void StoreWorld::destroy_everywhere(Operation operation, const Records& effect, Weather weather,
                                    Aftermath aftermath) {
  weather_ = weather;
  aftermath_ = aftermath;
  // What the first client of a server leaves for the others, such as slabs of new sizes.
  destroy_at(operation, effect, weather, UINT64_MAX);
  free_bytes_.reset();
  at_all_points([&](uint64_t point) { return destroy_at(operation, effect, weather, point); });
}

bool StoreWorld::destroy_at(Operation operation, const Records& effect, Weather weather,
                            uint64_t point) {
  settle(executor_);
  if (!prepare(weather)) return false;
  SlowCompletions slow;
  std::optional<fabric::ScopedFaultInjector> installed;
  if (weather == Weather::kSlow) installed.emplace(slow);
  const auto begin_bystander = [this] {
    if (closes_) return;
    bystander_ = stand_by(*client, table);
    bystander_->start();
  };
  const Cutter::End end = cutter_.run(operation(*this), point, begin_bystander);
  audit(effect, end == Cutter::End::kDone);
  return end == Cutter::End::kDestroyed;
}

void StoreWorld::audit(const Records& effect, bool done) {
  if (aftermath_ == Aftermath::kUse || done) {
    expect_others_end();
  } else {
    drop_client();
  }
  EXPECT_TRUE(run_until(executor_, kBoundNs, [this] { return server != nullptr; }));
  settle_others();
  expect_records(effect, done);
  if (client != nullptr) close_client();
  expect_usable("another client", *other_);
  // All again as before, in new places, by another client; so nothing is left locked.
  Records keys = all_keys(effect);
  keys.try_emplace("bystander", "");
  auto erased = within(executor_, kBoundNs, put_all_patiently(*other_, table, keys, true));
  ASSERT_TRUE(erased) << "something stays locked";
  EXPECT_TRUE(*erased) << erased->error().to_string();
  auto restored =
      within(executor_, kBoundNs, put_all_patiently(*other_, table, records_before(), false));
  ASSERT_TRUE(restored) << "something stays locked";
  EXPECT_TRUE(*restored) << restored->error().to_string();
  const auto stat = [this] { return nlohmann::json::parse(server->stat_json()); };
  EXPECT_TRUE(run_until(executor_, kBoundNs,
                        [&] {
                          const auto now = stat();
                          return now["sessions"] == 1 && now["resolving"] == 0;
                        }))
      << "the server keeps a session: " << stat().dump();
  const auto now = stat();
  EXPECT_EQ(now["live_records"].get<size_t>(), records_before().size());
  const uint64_t free_bytes = now["free_bytes"].get<uint64_t>();
  EXPECT_EQ(free_bytes_.value_or(free_bytes), free_bytes) << "slots are lost";
  free_bytes_ = free_bytes;
}

// What a coordinator has left prepared.
void StoreWorld::settle_others() {
  let_pass(executor_, kMillisecond);  // the commit may go on
  std::optional<Result<Settled>> settled;
  for (int attempt = 0; attempt < 3 && (!settled || !*settled); ++attempt) {
    std::vector<Client*> clients{other_.get()};
    settled = within(executor_, kBoundNs, pmstore::settle(std::move(clients)));
  }
  ASSERT_TRUE(settled) << "the votes are waited for";
  ASSERT_TRUE(*settled) << settled->error().to_string();
  EXPECT_EQ((**settled).waiting, 0u);
}

void StoreWorld::drop_client() {
  bystander_.reset();
  transaction.reset();
  client.reset();
}

void StoreWorld::expect_others_end() {
  if (bystander_) {
    EXPECT_TRUE(run_until(executor_, kBoundNs, [this] { return bystander_->done(); }))
        << "another operation of the same client waits for ever";
    if (bystander_->done()) {
      const Status stood = bystander_->take();
      EXPECT_TRUE(stood) << "another operation of the same client: " << stood.error().to_string();
    }
  }
  if (!closes_) expect_usable("the same client", *client);
}

void StoreWorld::close_client() {
  if (!closes_) {
    expect_nothing_locked();
    expect_nothing_leaked();
  }
  transaction.reset();
  const auto closed = within(executor_, kBoundNs, [](Client& of) -> Task<bool> {
    co_await of.close();
    co_return true;
  }(*client));
  EXPECT_TRUE(closed) << "close() waits for ever";
  drop_client();
}

void StoreWorld::expect_usable(const char* what, Client& of) {
  const auto used = within(executor_, kBoundNs, use(of, table));
  ASSERT_TRUE(used) << what << " waits for ever";
  EXPECT_TRUE(*used) << what << ": " << used->error().to_string();
}

void StoreWorld::expect_records(const Records& effect, bool done) {
  Records after = records_before();
  for (const auto& [key, value] : effect) {
    if (value.empty()) {
      after.erase(key);
    } else {
      after[key] = value;
    }
  }
  let_pass(executor_, kMillisecond);  // the commit may go on
  const auto found = within(executor_, kBoundNs, read_all(*other_, table, all_keys(effect)));
  ASSERT_TRUE(found) << "what it changed cannot be read";
  ASSERT_TRUE(*found) << found->error().to_string();
  if (!done && **found == records_before()) return;
  EXPECT_EQ(**found, after);
}

// While the client lives.
void StoreWorld::expect_nothing_locked() {
  const Records records = all_keys({});
  auto written = within(executor_, kBoundNs, put_all_patiently(*other_, table, records, false));
  ASSERT_TRUE(written) << "something stays locked";
  EXPECT_TRUE(*written) << written->error().to_string();
}

void StoreWorld::expect_nothing_leaked() {
  auto& state = *inside(StateOf{}, *client);
  EXPECT_TRUE(run_until(executor_, kBoundNs, [&] {
    return state.numbers.nothing_running() && state.connector.session()->passive == 0;
  })) << "a commit stays under way";
  EXPECT_FALSE(state.connector.reconnecting());
  EXPECT_EQ(state.connector.waiting(), 0u);
  internal::ClientSession& session = *state.connector.session();
  ASSERT_TRUE(session.usable());
  let_pass(executor_, kMillisecond);  // completions
  const bool rnic = session.discipline() == LockDiscipline::kRnic;
  static_cast<void>(session.buffers().try_take());  // takes back what was abandoned
  EXPECT_EQ(session.buffers().free_buffers(), rnic ? 127u : 128u);
  const size_t truncation = 0;
  EXPECT_EQ(session.connection().completions().leased_or_abandoned(), truncation);
}

}  // namespace pmstore::cancellation
