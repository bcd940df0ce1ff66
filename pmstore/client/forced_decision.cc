// Decides without a participant that is lost: pmstore/joint_commit.h.

#include <fmt/format.h>

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

std::string pools_text(const std::vector<uint64_t>& pools) {
  std::string text;
  for (const uint64_t each : pools) {
    text += (text.empty() ? "" : ", ") + fmt::format("{:016x}", each);
  }
  return text.empty() ? "none" : text;
}

Error others_are_lost(TxId name, const std::vector<uint64_t>& not_asked,
                      const std::vector<uint64_t>& lost) {
  return make_error(
      ErrorCode::kInvalidArgument,
      fmt::format("the participants of {} that are not among these servers, or "
                  "cannot be reached, have the pools {}, and lost were said to be {}; "
                  "give all servers that are left, and name exactly the lost pools",
                  name.to_string(), pools_text(not_asked), pools_text(lost)));
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

base::Task<Status> Settlement::ask_those_who_are_left(std::vector<Part>& parts, TxId name,
                                                      std::vector<uint64_t> lost) {
  std::vector<uint64_t> not_asked;
  for (Part& part : parts) {
    if (part.server == nullptr) {
      not_asked.push_back(part.pool);
      continue;
    }
    PMSTORE_CO_TRY_STATUS(co_await ask(part));
  }
  if (not_asked.empty()) {
    co_return make_error(ErrorCode::kConflict, "each participant of " + name.to_string() +
                                                   " can be asked; use pmstore tx settle");
  }
  for (std::vector<uint64_t>* const each : {&not_asked, &lost}) {
    std::sort(each->begin(), each->end());
    each->erase(std::unique(each->begin(), each->end()), each->end());
  }
  if (lost != not_asked) co_return others_are_lost(name, not_asked, lost);
  co_return Status{};
}

Status Settlement::check_forced(const std::vector<Part>& parts, TxId name,
                                ForcedDecision decision) {
  if (decision == ForcedDecision::kAbort && any(parts, Vote::kCommitted)) {
    return contradicts(name, "committed", "force commit");
  }
  if (decision == ForcedDecision::kCommit && any(parts, Vote::kNotHere) &&
      !any(parts, Vote::kCommitted)) {
    return contradicts(name, "aborted", "force abort");
  }
  if (decision == ForcedDecision::kForget && any(parts, Vote::kPrepared)) {
    return contradicts(name, "not decided", "force abort or commit first");
  }
  return {};
}

// Who is told is asked again: somebody else may have been faster, and have decided otherwise.
base::Task<Status> Settlement::tell_those_who_are_left(std::vector<Part>& parts, TxId name,
                                                       bool commits) {
  for (Part& part : parts) {
    if (part.vote != Vote::kPrepared) continue;
    PMSTORE_CO_TRY_STATUS(co_await tell(part, commits ? Decision::kCommit : Decision::kAbort));
    PMSTORE_CO_TRY_STATUS(co_await ask(part));
    if (commits != (part.vote == Vote::kCommitted)) {
      co_return contradicts(name, commits ? "aborted" : "committed", "somebody else was faster");
    }
    (commits ? settled_.committed : settled_.aborted) = 1;
  }
  co_return Status{};
}

base::Task<Result<Settled>> Settlement::force(TxId name, ForcedDecision decision,
                                              std::vector<uint64_t> lost) {
  co_await reach_all();
  if (auto why = nobody()) co_return std::move(*why);
  PMSTORE_CO_TRY(std::vector<Part> parts, co_await find(name));
  PMSTORE_CO_TRY_STATUS(co_await ask_those_who_are_left(parts, name, std::move(lost)));
  PMSTORE_CO_TRY_STATUS(check_forced(parts, name, decision));
  const bool commits = decision == ForcedDecision::kCommit;
  if (decision != ForcedDecision::kForget) {
    PMSTORE_CO_TRY_STATUS(co_await tell_those_who_are_left(parts, name, commits));
  } else {
    for (const Part& part : parts) {
      if (part.vote != Vote::kCommitted) continue;
      PMSTORE_CO_TRY_STATUS(co_await tell(part, Decision::kForget));
    }
  }
  settled_.remembered = commits ? 1 : 0;
  settled_.servers = servers_reached();
  co_return settled_;
}

}  // namespace pmstore::internal
