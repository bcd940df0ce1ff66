// The inside of ReplicatedLog.
//
// Invariants: members are those of `membership`, in its order. While nothing is under way and
// nothing has failed, every producer's next index is next_index. Appends take their indexes when
// they are called, and a producer places an entry only with its index: so what replicas have are
// prefixes of one sequence, whichever of them fails.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "log/internal/log_membership.h"
#include "log/replicated_log.h"

namespace pmstore::log {

struct ReplicatedLog::State {
  struct Member {
    std::string uri;
    std::unique_ptr<LogClient> client;
    LogInfo info;                           // as it was when it was asked
    std::unique_ptr<LogProducer> producer;  // goes before the client
  };
  using Membership = internal::Membership;

  State(base::Executor& log_executor, std::string log_name, ReplicatedLogOptions log_options);

  // ---- replicated_log_takeover.cc ----
  base::Task<Status> take_over(std::vector<std::string> servers, bool& only_if_gone);
  base::Task<Status> acquire_all();
  base::Task<Status> acquire(Member& member, uint64_t number);
  // The first of them whose lease was lost again; members.size(): none.
  base::Task<Result<size_t>> first_lost();
  base::Task<Status> record(Member& member, const Membership& decided);
  // Tells each member that all have recorded `membership`.
  base::Task<Status> agree();
  void check_members() const;
  // Those that lag get what the longest has. Everything is then acknowledged.
  base::Task<Status> make_equal();
  base::Task<Status> copy(Member& from, uint64_t to_lsn, Member& to);
  base::Task<Status> acknowledge_all();
  base::Task<Status> connect_new(Member& member, bool replace);
  base::Task<Status> erase_old(Member& member);

  // ---- replicated_log.cc ----
  base::Task<Result<Appended>> append(std::span<const std::span<const std::byte>> payloads);
  struct Part {
    Result<Appended> result = make_error(ErrorCode::kDisconnected);
    base::Task<void> task;
  };
  struct UnderWay;
  struct Together {
    explicit Together(base::Executor& executor) : done(executor) {}
    size_t left = 0;
    base::WaitList done;
  };
  static base::Task<void> append_part(LogProducer& producer,
                                      std::span<const std::span<const std::byte>> payloads,
                                      uint64_t first_index, Part& part, Together& together);
  Result<Appended> conclude(std::span<const Part> parts);
  Status usable() const;
  base::Task<Status> resynchronise();

  base::Executor& executor;
  std::string name;
  ReplicatedLogOptions options;
  Membership membership;
  std::vector<Member> members;
  uint64_t next_index = 1;
  uint64_t acknowledged_lsn = 0;
  size_t under_way = 0;
  bool skewed = false;  // appends failed that nobody has: next_index is too high
  base::WaitList idle;
  std::optional<Error> broken;  // no more appends
};

}  // namespace pmstore::log
