// Decides without a participant that is lost: pmstore/joint_commit.h.

#include <algorithm>
#include <string>
#include <utility>

#include "pmstore/client/settlement.h"

namespace pmstore::internal {

namespace {

Error not_listed(TxId name) {
  return make_error(ErrorCode::kNotFound,
                    "none of these servers has a transaction of several servers " +
                        name.to_string() + "; see pmstore tx list");
}

Error contradicts(TxId name, const char* what, const char* instead) {
  return make_error(ErrorCode::kConflict, "transaction " + name.to_string() + " is " + what +
                                              " at one of its servers; " + instead);
}

}  // namespace

base::Task<Result<std::vector<Settlement::Part>>> Settlement::find(TxId name) {
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (!servers_[i].session) continue;
    auto open = co_await list(i);
    if (!open) {
      servers_[i].reached = open.error();
      continue;
    }
    for (const OpenTransaction& each : *open) {
      const bool named =
          each.name == name || std::any_of(each.others.begin(), each.others.end(),
                                           [&](const auto& other) { return other.name == name; });
      if (named) co_return parts_of(each);
    }
  }
  co_return not_listed(name);
}

base::Task<Result<size_t>> Settlement::ask_those_who_answer(std::vector<Part>& parts, TxId name) {
  size_t lost = 0;
  for (Part& part : parts) {
    if (part.server == nullptr) {
      ++lost;
      continue;
    }
    const Status asked = co_await ask(part);
    if (asked) continue;
    // It answers, and the coordinator is still connected.
    if (part.server->reached) co_return asked.error();
    ++lost;
  }
  if (lost == 0) {
    co_return make_error(ErrorCode::kConflict, "each participant of " + name.to_string() +
                                                   " can be asked; use pmstore tx settle");
  }
  co_return lost;
}

Status Settlement::check_forced(const std::vector<Part>& parts, TxId name,
                                ForcedDecision decision) {
  const auto any = [&](Vote vote) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const Part& part) { return part.vote == vote; });
  };
  if (decision == ForcedDecision::kAbort && any(Vote::kCommitted)) {
    return contradicts(name, "committed", "force commit");
  }
  if (decision == ForcedDecision::kCommit && any(Vote::kNotHere) && !any(Vote::kCommitted)) {
    return contradicts(name, "aborted", "force abort");
  }
  if (decision == ForcedDecision::kForget && any(Vote::kPrepared)) {
    return contradicts(name, "not decided", "force abort or commit first");
  }
  return {};
}

base::Task<Result<Settled>> Settlement::force(TxId name, ForcedDecision decision) {
  co_await reach_all();
  if (auto why = nobody()) co_return std::move(*why);
  PMSTORE_CO_TRY(std::vector<Part> parts, co_await find(name));
  PMSTORE_CO_TRY_STATUS(co_await ask_those_who_answer(parts, name));
  PMSTORE_CO_TRY_STATUS(check_forced(parts, name, decision));
  const bool commits = decision == ForcedDecision::kCommit;
  for (const Part& part : parts) {
    if (decision == ForcedDecision::kForget && part.vote == Vote::kCommitted) {
      PMSTORE_CO_TRY_STATUS(co_await tell(part, Decision::kForget));
    } else if (part.vote == Vote::kPrepared) {
      PMSTORE_CO_TRY_STATUS(co_await tell(part, commits ? Decision::kCommit : Decision::kAbort));
      (commits ? settled_.committed : settled_.aborted) = 1;
    }
  }
  settled_.remembered = commits ? 1 : 0;
  settled_.servers = servers_reached();
  co_return settled_;
}

}  // namespace pmstore::internal
