// Client::State: the parts of a client. Each part has a header of its own.
//
// Threads: the executor's. Destruction, in reverse order: the commits that still run, then the
// connection, then the server in this process.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "pmstore/client.h"
#include "pmstore/client/client_cpu_commit.h"
#include "pmstore/client/commit_tasks.h"
#include "pmstore/client/connector.h"
#include "pmstore/client/embedded.h"
#include "pmstore/client/joint_task.h"
#include "pmstore/client/reader.h"
#include "pmstore/client/transaction_numbers.h"

namespace pmstore {

struct Client::State {
  State(Executor& client_executor, std::shared_ptr<fabric::Device> client_device, fabric::Uri uri,
        ClientOptions client_options);
  ~State();

  // `Wanted`: GivesString, FillsBuffer or GivesValueView.
  template <typename Wanted>
  Task<Result<typename Wanted::Value>> get(TableId table, std::string_view key, Wanted wanted);
  // The values of several keys, behind those in `values`, which has room for them (CHECK). Nothing
  // is validated. Requires that the server is in this process: it asks for the memory of all keys
  // before the first is looked up.
  Task<Status> get_in_turn(TableId table, std::span<const std::string_view> keys, Values& values);
  // A new or used transaction, empty.
  Transaction::Ref take_transaction();

  Executor& executor;
  ClientOptions options;
  std::shared_ptr<fabric::Device> device;
  std::unique_ptr<internal::Embedded> embedded;  // of local:PATH
  const ClientSecret secret;
  internal::TransactionNumbers numbers;
  internal::Reader reader;
  internal::Connector connector;
  internal::CommitParts parts;  // of whichever transaction is being laid out
  std::vector<std::unique_ptr<Transaction::State>> spare;  // transactions to be used again
  internal::CommitTasks commits;                           // destroyed second
  internal::JointTasks joint_commits;                      // last: destroyed first
};

}  // namespace pmstore
