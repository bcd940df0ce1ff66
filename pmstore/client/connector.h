// Connector: a client's connection to its server: made, lost, made again; and kept alive while
// nothing else is sent.
//
// The reconnect itself is service::Reconnector's. Invariants: a session that the connector has
// replaced is never used for a new operation; after close() no session is made. Threads: the
// executor's. The executor and the numbers outlive it, it outlives its tasks. Its tasks may be
// destroyed at any moment.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/device.h"
#include "fabric/uri.h"
#include "pmstore/client.h"
#include "pmstore/client/client_session.h"
#include "pmstore/client/embedded.h"
#include "pmstore/client/transaction_numbers.h"
#include "service/reconnector.h"

namespace pmstore::internal {

class Connector final : private service::Reconnector::Target {
 public:
  // `options` are borrowed. `numbers` are those of the client whose secret it is.
  Connector(Executor& executor, std::shared_ptr<fabric::Device> device, fabric::Uri uri,
            const ClientOptions& options, const ClientSecret& secret, TransactionNumbers& numbers);

  // The session in use; empty before the first and after close(). It may have become unusable.
  const SessionRef& session() const { return session_; }
  bool has_usable_session() const { return session_ && session_->usable() && numbers_.available(); }
  // For an operation that begins: without it, connected() comes first.
  bool may_begin() const { return has_usable_session() && !session_->may_have_ended(); }
  // The usable session. Reconnects when there is none, within ClientOptions::reconnect_timeout_ns;
  // one attempt serves all operations that ask while it runs. Disconnected: closed, or the server
  // is gone; errors of ClientSession::open().
  base::Task<Result<SessionRef>> connected();
  // One attempt. The server ends this client's earlier session before it accepts the new one.
  // Protocol: the server grants numbers that this client has used already.
  base::Task<Status> connect_once() override;
  // The next attempt connects to the server in this process, which is borrowed until close().
  // SessionInfo::uri stays the client's.
  void set_server(const Embedded& embedded) { embedded_ = &embedded; }

  // Waits for commits that still run, at most ClientOptions::call_timeout_ns, and takes leave of
  // the server when nothing is in doubt, so that the server keeps no outcomes. Every later
  // connected() is Disconnected.
  base::Task<void> close();
  bool closed() const { return reconnector_.closed(); }
  bool reconnecting() const { return reconnector_.connecting(); }
  // Operations that wait for the attempt that runs.
  size_t waiting() const { return reconnector_.waiting(); }

  const SessionInfo& info() const { return info_; }
  fabric::Counters counters() const { return book_->counters(); }
  // What one transaction may hold: nothing larger can be committed. 0 before the first session.
  size_t largest_commit_bytes() const { return largest_commit_bytes_; }

 private:
  void describe(const ServerHello& hello, bool again);
  bool commits_run(const ClientSession& session) const {
    return session.usable() && (session.passive > 0 || !numbers_.nothing_running());
  }
  bool usable() const override { return has_usable_session(); }
  base::Task<void> let_go() override;

  Executor& executor_;
  const ClientOptions& options_;
  const ClientSecret secret_;
  TransactionNumbers& numbers_;
  fabric::Uri uri_;
  const Embedded* embedded_ = nullptr;  // of local:PATH
  std::shared_ptr<fabric::Device> device_;
  std::shared_ptr<SessionBook> book_ = std::make_shared<SessionBook>();
  SessionRef session_;
  SessionInfo info_;
  service::Reconnector reconnector_;
  size_t largest_commit_bytes_ = 0;
};

}  // namespace pmstore::internal
