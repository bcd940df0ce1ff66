#include "pmstore/client/transaction_state.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "pmstore/client/client_cpu_commit.h"
#include "pmstore/client/client_rnic_commit.h"
#include "pmstore/client/read_validation.h"
#include "pmstore/client/settled_buffer.h"

namespace pmstore {

using internal::TxItem;

Error Transaction::State::over_error() {
  return make_error(ErrorCode::kInvalidArgument, "the transaction is over; begin() another one");
}

Error Transaction::State::stale_error() {
  return make_error(ErrorCode::kConflict,
                    "the connection on which the transaction began is gone; run it again");
}

void Transaction::State::reset() {
  PMSTORE_CHECK(awaited == nullptr, "a transaction is used again after its commit has ended");
  participants.clear();
  items.clear();
  scanned.clear();
  views.end();
  failure.reset();
  over = false;
  id = {};
}

void Transaction::State::write(TxItem::Need need, TxItem::Leave leave, TableId table,
                               std::string_view key, std::string_view value) {
  if (over) return fail(over_error());
  if (Status sizes = check_sizes(key, value); !sizes) {
    return fail(std::move(sizes.error()));
  }
  // Nothing larger than a request can be committed; so this bounds the memory, not the user.
  const size_t most = client.connector.largest_commit_bytes();
  if (items.bytes() + key.size() + value.size() > most) {
    return fail(make_error(ErrorCode::kTooLarge, "a transaction's keys and values may take " +
                                                     std::to_string(most) + " bytes; split it"));
  }
  Item& item = items.find_or_add(table, key, hash_key(table, key));
  if (!item.writes()) {
    item.need = need;  // later writes see this one's effect, so only the first demands anything
  } else if (need == TxItem::Need::kAbsent && item.leave == TxItem::Leave::kValue) {
    return fail(make_error(ErrorCode::kAlreadyExists, "inserted twice in one transaction"));
  } else if (need == TxItem::Need::kPresent && item.leave == TxItem::Leave::kNothing) {
    return fail(make_error(ErrorCode::kNotFound, "erased twice in one transaction"));
  }
  item.leave = leave;
  items.set_value(item, value);  // nothing, when nothing is left behind
}

// ---- reading ----

Task<Result<internal::Participant*>> Transaction::State::bind() {
  if (participants.empty()) {
    PMSTORE_CO_TRY(internal::SessionRef now, co_await client.connector.connected());
    // Another read of the same transaction may have come first.
    if (participants.empty()) participants.add(now->shard(), now);
  } else if (const internal::SessionRef asked = participants.only().session;
             asked->usable() && asked->may_have_ended()) {
    co_await asked->ask_alive();
  }
  internal::Participant& one = participants.only();
  if (!one.session->usable()) co_return stale_error();
  co_return &one;
}

template <typename Wanted>
Task<Result<typename Wanted::Value>> Transaction::State::get(TableId table, std::string_view key,
                                                             Wanted wanted) {
  constexpr bool is_view = std::is_same_v<Wanted, internal::GivesView>;
  if constexpr (is_view) {
    if (Status may = may_view(); !may) co_return std::move(may.error());
  }
  if (over) co_return over_error();
  if (Status sizes = check_key(key); !sizes) co_return std::move(sizes.error());
  const KeyHash hash = hash_key(table, key);
  if (const Item* item = items.find(table, key, hash); item != nullptr && item->writes()) {
    if (item->leave == Item::Leave::kNothing) co_return make_error(ErrorCode::kNotFound);
    wanted.room().take(items.value(*item));
    co_return wanted.give();
  }
  internal::Participant* there = bind_at_once();
  if (there == nullptr) {
    const auto bound = co_await bind();
    if (!bound) {
      fail(bound.error());
      co_return Error(bound.error());
    }
    there = *bound;
  }
  if constexpr (is_view) {
    if (!there->session->in_process()) co_return internal::Reader::no_view_error();
  }
  auto located = co_await client.reader.locate(there->session, table, key, wanted.room());
  if (!located) {
    fail(located.error());
    co_return std::move(located.error());
  }
  if (over) co_return over_error();
  if (Status same = remember(table, key, hash, *located); !same) {
    co_return std::move(same.error());
  }
  if (!located->found) co_return make_error(ErrorCode::kNotFound);
  co_return wanted.give();
}
template Task<Result<std::string>> Transaction::State::get(TableId, std::string_view,
                                                           internal::GivesString);
template Task<Result<size_t>> Transaction::State::get(TableId, std::string_view,
                                                      internal::FillsBuffer);

Task<Result<std::string_view>> Transaction::State::view(TableId table, std::string_view key) {
  return get(table, key, internal::GivesView{views, {}});
}

// Where the server is in this process, it asks for the memory of all keys of a part before the
// first is looked up; otherwise their requests are under way at the same time.
Task<Result<Values>> Transaction::State::get_many(TableId table, ManyKeys keys) {
  Values values;
  values.reserve(keys.size());
  for (; !keys.empty(); keys = keys.subspan(std::min(keys.size(), kKeysTogether))) {
    if (bind_at_once() == nullptr) {
      const auto bound = co_await bind();
      if (!bound) {
        fail(bound.error());
        co_return Error(bound.error());
      }
    }
    const ManyKeys part = keys.first(std::min(keys.size(), kKeysTogether));
    const bool in_process = participants.only().session->in_process();
    Task<Status> reading =
        in_process ? get_in_turn(table, part, values) : get_together(table, part, values);
    Status done = co_await std::move(reading);
    if (!done) co_return std::move(done.error());
  }
  co_return values;
}

Task<Status> Transaction::State::get_in_turn(TableId table, ManyKeys keys, Values& values) {
  participants.only().session->calls().prefetch(table, keys);
  for (const std::string_view key : keys) {
    Task<Result<std::string>> reading = get(table, key, internal::GivesString{});
    auto value = co_await std::move(reading);
    if (!value && value.code() != ErrorCode::kNotFound) co_return std::move(value.error());
    auto& place = values.emplace_back();
    if (value) place = std::move(*value);
  }
  co_return Status{};
}

namespace {

// The key that is equal to that of `which`, or that one itself.
size_t first_like(std::span<const std::string_view> keys, size_t which) {
  return static_cast<size_t>(std::find(keys.begin(), keys.end(), keys[which]) - keys.begin());
}

}  // namespace

Task<Status> Transaction::State::get_together(TableId table, ManyKeys keys, Values& values) {
  const size_t first = values.size();
  values.resize(first + keys.size());
  std::vector<Status> done(keys.size());
  base::WaitList ended(client.executor);
  std::vector<Task<void>> gets;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (first_like(keys, i) != i) continue;
    gets.push_back(get_one(table, keys[i], values[first + i], done[i], ended));
  }
  for (auto& each : gets) each.start();
  const auto is_done = [](const Task<void>& each) { return each.done(); };
  while (!std::all_of(gets.begin(), gets.end(), is_done)) co_await ended.wait();
  for (Status& each : done) {
    if (!each) co_return std::move(each);
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    const size_t like = first_like(keys, i);
    if (like != i) values[first + i] = values[first + like];
  }
  co_return Status{};
}

Task<void> Transaction::State::get_one(TableId table, std::string_view key,
                                       std::optional<std::string>& value, Status& done,
                                       base::WaitList& ended) {
  Task<Result<std::string>> reading = get(table, key, internal::GivesString{});
  auto got = co_await std::move(reading);
  if (got) {
    value = std::move(*got);
  } else if (got.code() != ErrorCode::kNotFound) {
    done = std::move(got.error());
  }
  ended.notify_one();
}

Status Transaction::State::may_view() {
  // Each look at the clock costs a tenth of a view.
  constexpr size_t kViewsPerLook = 16;
  if (views.count() % kViewsPerLook == 1) {
    const uint64_t now_ns = client.executor.now_ns();
    if (views.count() == 1) viewing_since_ns = now_ns;
    if (now_ns - viewing_since_ns > client.options.longest_view_ns) {
      return make_error(ErrorCode::kTimeout,
                        "this transaction has taken views for longer than longest_view_ns; commit "
                        "or abort it, and begin another one");
    }
  }
  if (views.copied_bytes() > client.connector.largest_commit_bytes()) {
    return make_error(ErrorCode::kTooLarge,
                      "copies of this transaction's own values take more than a commit may; use "
                      "get(), or commit it");
  }
  return {};
}

Status Transaction::State::remember(TableId table, std::string_view key, KeyHash hash,
                                    const internal::Located& located) {
  Item& item = items.find_or_add(table, key, hash);
  const bool again = item.seen == Item::Seen::kFound || item.seen == Item::Seen::kAbsent;
  const bool same = located.found ? item.seen == Item::Seen::kFound && item.slot == located.slot &&
                                        item.version == located.version
                                  : item.seen == Item::Seen::kAbsent &&
                                        item.bucket_version == located.bucket_version;
  if (again && !same) {
    Error changed = make_error(ErrorCode::kConflict, "read twice, and changed in between");
    fail(changed);
    return changed;
  }
  item.seen = located.found ? Item::Seen::kFound : Item::Seen::kAbsent;
  item.size_class = located.size_class;
  item.slot = located.slot;
  item.version = located.version;
  item.bucket = located.bucket;
  item.bucket_version = located.bucket_version;
  return {};
}

// ---- commit ----

Task<Status> Transaction::State::commit_held(Ref /*self*/) {
  if (over) co_return over_error();
  views.end();  // so that its own writes need not move what it has looked at
  over = true;
  if (failure) co_return std::move(*failure);
  if (items.empty() && scanned.pages() == 0) co_return Status{};
  if (!is_ready()) {
    Status ready = co_await get_ready();
    if (!ready) co_return std::move(ready);
  }
  drop_empty_erases();
  if (const auto impossible = what_cannot_be()) {
    Status unchanged = co_await validate();
    if (unchanged) unchanged = make_error(*impossible);
    co_return std::move(unchanged);
  }
  if (!items.has_writes()) co_return co_await validate();
  if (!client.numbers.available()) co_return stale_error();  // the next one gets a new connection
  internal::ClientSession& session = *participants.only().session;
  if (session.discipline() == LockDiscipline::kRnic) co_return co_await commit_rnic();
  id = client.numbers.take();
  co_return co_await internal::commit_by_call(id, items, scanned, session, client.parts,
                                              client.numbers);
}

bool Transaction::State::is_ready() {
  return bind_at_once() != nullptr &&
         std::none_of(items.begin(), items.end(),
                      [&](const Item& item) { return needs_read(item); });
}

Task<Status> Transaction::State::get_ready() {
  const auto bound = co_await bind();
  if (!bound) co_return Error(bound.error());
  co_return co_await read_what_writes_need();
}

void Transaction::State::drop_empty_erases() {
  for (Item& item : items) {
    // Nothing is there and nothing shall be there: only that must stay so.
    const bool nothing = item.leave == Item::Leave::kNothing && item.seen == Item::Seen::kAbsent &&
                         item.need != Item::Need::kPresent;
    if (nothing) item.leave = Item::Leave::kAsItIs;
  }
}

std::optional<ErrorCode> Transaction::State::what_cannot_be() const {
  for (const Item& item : items) {
    if (item.need == Item::Need::kAbsent && item.seen == Item::Seen::kFound) {
      return ErrorCode::kAlreadyExists;
    }
    if (item.need == Item::Need::kPresent && item.seen == Item::Seen::kAbsent) {
      return ErrorCode::kNotFound;
    }
  }
  return std::nullopt;
}

namespace {

// Does one WriteOp say it all? Otherwise commit() must know whether the record is there.
bool is_one_write(const TxItem& item) {
  using Need = TxItem::Need;
  if (item.leave == TxItem::Leave::kValue) return item.need != Need::kPresent;
  return item.need == Need::kPresent;
}

}  // namespace

bool Transaction::State::needs_read(const Item& item) const {
  return item.writes() && item.seen == Item::Seen::kNo && !is_one_write(item);
}

Task<Status> Transaction::State::read_what_writes_need() {
  for (size_t i = 0; i < items.size(); ++i) {
    if (!needs_read(items[i])) continue;
    const std::string key(items.key(items[i]));
    const internal::SessionRef& session = participants[items[i].participant].session;
    auto located = co_await client.reader.locate(session, items[i].table, key, {});
    if (!located) co_return std::move(located.error());
    Status first = remember(items[i].table, key, items[i].hash, *located);
    if (!first) co_return std::move(first);
  }
  co_return Status{};
}

Task<Status> Transaction::State::validate(bool alone) {
  size_t reads = scanned.pages();
  bool leaves = reads > 0;
  for (const Item& item : items) {
    reads += item.was_read();
    leaves |= item.seen == Item::Seen::kAbsent && is_ordered(item.table);
  }
  if (reads <= (alone ? 1 : 0)) co_return Status{};
  internal::ClientSession& session = *participants.only().session;
  const bool rnic = session.discipline() == LockDiscipline::kRnic;
  // Only the server knows the versions of leaves.
  if ((rnic || session.one_sided_reads()) && !leaves) {
    if (!internal::knows_buckets_of(items, session)) {
      PMSTORE_CO_TRY_STATUS(co_await internal::learn_buckets_of(items, session));
    }
    if (internal::knows_buckets_of(items, session)) {
      internal::BufferLease buffer = session.buffers().try_take();
      if (!buffer) buffer = co_await session.buffers().take();
      const internal::SettledBuffer settled(client.commits, participants.only().session,
                                            std::move(buffer));
      co_return co_await internal::validate_one_sided(items, session, *settled);
    }
  }
  co_return co_await internal::validate_by_call({}, items, scanned, session, client.parts);
}

// Once a commit holds locks it must run to its end even if its caller is destroyed; so it is a task
// of its own.
Task<Status> Transaction::State::commit_rnic() {
  internal::ClientSession& session = *participants.only().session;
  if (!session.has_ring() || !client.numbers.has_begun(session.ring().granted().next_sequence))
      [[unlikely]] {
    PMSTORE_CO_TRY_STATUS(co_await session.request_ring());
    if (!session.usable()) co_return session.why_unusable();  // a later one has other numbers
    PMSTORE_CO_TRY_STATUS(client.numbers.begin_session(session.ring().granted().next_sequence));
  }
  id = client.numbers.take();
  internal::CommitEnd end(awaited, client.executor);
  client.commits.run(run_rnic(hold()));
  co_return co_await end;
}

Task<void> Transaction::State::run_rnic(Ref self) {
  const Ref held = std::move(self);  // to the end of the work, not of the frame
  const auto position = client.commits.started_last();
  internal::TransactionNumbers::Running is_running(client.numbers, id.sequence);
  internal::ClientRnicCommit commit({id, items, scanned}, participants.only(), client.reader,
                                    client.numbers, client.parts);
  Status status = co_await commit.run();
  if (awaited != nullptr) {
    is_running.settled();
    awaited->finish(std::move(status));
  }
  client.commits.ended(position);
}

}  // namespace pmstore
