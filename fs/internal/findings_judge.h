// FindingsJudge: which findings of surveys are damage, and which are only changes under way.
//
// A finding counts when the next survey has it, too, and the record of its inode was the same in
// both: then nothing of the inode has changed between. A count of an inode that does change is
// looked at in one transaction. Threads: the client's. Lifetimes: client and tables outlive it.
// Errors of the client.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "base/task.h"
#include "fs/internal/namespace_survey.h"
#include "fs/internal/namespace_transaction.h"

namespace pmstore::fs::internal {

class FindingsJudge {
 public:
  FindingsJudge(Client& client, const NamespaceTables& tables) : client_(client), tables_(tables) {}

  // `now` is the survey behind `before`. What is damage for certain joins confirmed().
  base::Task<Status> compare(const NamespaceSurvey& before, const NamespaceSurvey& now);
  const std::vector<Finding>& confirmed() const { return confirmed_; }
  // What the last call could not tell: the inode changes whenever it is looked at.
  uint64_t open() const { return open_; }

 private:
  // None: the count is right, or its inode is gone.
  using Judged = std::optional<Finding>;
  base::Task<Status> judge_count(const Finding& finding);
  base::Task<PosixResult<Judged>> look(NamespaceTransaction& transaction, const Finding& finding);
  void confirm(const Finding& finding);

  Client& client_;
  const NamespaceTables& tables_;
  std::vector<Finding> confirmed_;
  // What confirmed_ has: a count by kind and inode, anything else by its line.
  std::map<Finding::Kind, std::unordered_set<uint64_t>> counts_;
  std::unordered_set<std::string> lines_;
  uint64_t open_ = 0;
};

}  // namespace pmstore::fs::internal
