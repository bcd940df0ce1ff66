// The inside of LogClient: its session, shared with its producers and readers.
//
// Invariants: `message` is filled and given to RpcClient::call() without a suspension in between. A
// log in `known` was, when it was noted, inside the regions that the present session was granted.
// A coroutine that waits for an answer, or a buffer whose READ is under way, holds its link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/message.h"
#include "log/embedded_log.h"
#include "log/internal/read_buffer.h"
#include "log/log_client.h"
#include "service/link.h"
#include "service/reconnector.h"

namespace pmstore::log {

// What the server said of a log when it was last asked.
struct KnownLog {
  std::string name;
  LogReply reply{};
  uint64_t data_bytes() const;
};

// As requests carry them. InvalidArgument when one is too long.
Status put_uris(fabric::MessageWriter& request, std::span<const std::string> uris);

// Has the answer to a call that failed so been lost? A READ in an extent that was just given back
// breaks the session with Access.
inline bool lost_answer(const Error& why) {
  return why.code == ErrorCode::kDisconnected || why.code == ErrorCode::kTimeout ||
         why.code == ErrorCode::kAccess;
}

struct LogClient::State final : service::Reconnector::Target {
  using LinkRef = std::shared_ptr<service::Link>;
  // Its bytes lie in memory of the link.
  struct Reply {
    LinkRef link;
    fabric::RpcReply reply;
    std::span<const std::byte> bytes() const { return reply.bytes(); }
  };
  // Between two tries of an operation whose session was lost.
  static constexpr uint64_t kRepeatPauseNs = 1'000'000;

  State(base::Executor& client_executor, fabric::Uri server, LogClientOptions client_options);
  ~State() override;

  bool usable() const override { return link != nullptr && link->usable(); }
  base::Task<void> let_go() override;
  base::Task<Status> connect_once() override;
  Status check_answer(const service::Link& opened);
  // The usable link; makes another one when there is none. Errors of Reconnector::connected().
  base::Task<Result<LinkRef>> connected();
  void drop_link();

  // Sends `body`; the server's own error comes back as it is. Repeats it on another session, while
  // the client has patience, when the answer is lost, and says so in `repeated`: the request may
  // have been executed already.
  base::Task<Result<Reply>> call(LogMethod method, std::span<const std::byte> body,
                                 uint32_t reply_capacity, bool* repeated = nullptr);
  // The same once, on this link. `body` may be laid out in body_room().
  base::Task<Result<Reply>> call_on(LinkRef on, LogMethod method, std::span<const std::byte> body,
                                    uint32_t reply_capacity);
  std::span<std::byte> body_room() const {
    return std::span(message.get(), message_bytes).subspan(sizeof(service::RequestPrefix));
  }
  // Takes a reply about one log apart, as far as every such reply goes, and notes it. Protocol.
  Result<LogInfo> note(const LogReply& reply, std::string_view name);
  // The server's answer cannot be right: the session is given up.
  Error malformed(std::string_view what);
  // By id; asks the server for its list when it was never heard of. NotFound.
  base::Task<Result<KnownLog>> find(uint64_t log);
  // What the server says of it now. NotFound also when its name is another log's by now.
  base::Task<Result<LogInfo>> ask(LogClient& self, uint64_t log);

  // `found`: of the log `wanted`, if it is listed.
  base::Task<Result<std::vector<LogInfo>>> list(uint64_t wanted = 0,
                                                std::optional<KnownLog>* found = nullptr);
  void remember(const LogReply& reply, std::string_view name);
  void forget(uint64_t log);
  base::Task<Result<uint64_t>> trim(TrimRequest request);
  // Laid out in body_room(). InvalidArgument, TooLarge.
  Result<std::span<const std::byte>> append_message(
      uint64_t log, uint64_t number, std::span<const std::span<const std::byte>> payloads);
  base::Task<Result<Appended>> append(uint64_t log,
                                      std::span<const std::span<const std::byte>> payloads);
  // Of append(), with that number of this client, at a server in that epoch: it may be there.
  static Error in_doubt(const std::string& why);

  // Of appends without messages: so many are about 10 us, with an msync each as long as those take.
  // Then leases and everybody else get their turn, timers in every sixteenth.
  static constexpr uint32_t kAppendsPerTurn = 64;
  bool has_had_its_turn() { return ++appended_at_once % kAppendsPerTurn == 0; }

  // ---- one-sided, for producers and readers ----
  fabric::RemoteAddress words_at(const KnownLog& log) const {
    return answer.words.at(uint64_t{log.reply.word} * sizeof(LogWords));
  }
  // Of the byte of its data area that `lsn` names. InvalidArgument: the log was deleted, because
  // its extent is none of the logs' any more; Unsupported: the server's device refuses the extent.
  Result<fabric::RemoteAddress> data_at(const KnownLog& log, uint64_t lsn) const;
  void note_extent(const NamedExtent& extent) { extents[extent.name >> 32] = extent; }
  // Takes a buffer that nobody waits for any more until its READs are done.
  void retire(std::unique_ptr<internal::ReadBuffer> buffer);

  base::Executor& executor;
  fabric::Uri uri;
  LogClientOptions options;
  ClientSecret secret;
  const uint64_t instance;                // of the numbers of its appends
  std::unique_ptr<EmbeddedLog> embedded;  // serves a local:PATH pool
  uint32_t appended_at_once = 0;
  fabric::Uri server_uri;  // where to connect to: `uri`, or what `embedded` says
  std::unique_ptr<fabric::Device> device;
  LinkRef link;             // of the present session; empty: none was made after the last
  LogSessionAnswer answer;  // of the last session
  // What the present session may READ: by entry of the pool's extent table, the last one told.
  std::map<uint64_t, NamedExtent> extents;
  uint64_t generation = 0;  // sessions that were made
  fabric::Counters ended;   // of earlier links
  // Shared appends are numbered. Invariant: the answers of all others through last_append are
  // known. They are sent in their order, in each session anew: one only when the one before it was.
  uint64_t last_append = 0;
  uint64_t last_sent = 0;  // the highest number that was sent in any session
  struct AppendUnderWay {
    uint64_t number;
    uint64_t sent_in;  // the generation of the session in which it was sent last; 0: in none
  };
  std::vector<AppendUnderWay> appends_under_way;  // by number
  base::WaitList append_sent;
  class NumberedAppend;
  // As service::LinkOptions: all appends before the first one under way.
  const std::shared_ptr<uint64_t> known_through = std::make_shared<uint64_t>(0);
  void note_known();
  std::unique_ptr<std::byte[]> message;  // a request with its prefix
  size_t message_bytes = 0;
  // At most kMostKnown, the last ones noted; others are asked for again. Invariant: known_in_order
  // has the keys of known.
  static constexpr size_t kMostKnown = 4096;
  std::map<uint64_t, KnownLog> known;
  std::deque<uint64_t> known_in_order;
  std::vector<std::unique_ptr<internal::ReadBuffer>> retired;
  service::Reconnector reconnector;
};

}  // namespace pmstore::log
