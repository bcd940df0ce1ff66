// The inside of LogClient: its session, shared with its producers and readers.
//
// Invariants: `message` is filled and given to RpcClient::call() without a suspension in between. A
// log in `known` was, when it was noted, inside the regions that the session was granted.
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

namespace pmstore::log {

// What the server said of a log when it was last asked.
struct KnownLog {
  std::string name;
  LogReply reply{};
  uint64_t data_bytes() const;
};

// As requests carry them. InvalidArgument when one is too long.
Status put_uris(fabric::MessageWriter& request, std::span<const std::string> uris);

struct LogClient::State {
  State(base::Executor& client_executor, fabric::Uri server, LogClientOptions client_options);
  ~State();

  base::Task<Status> connect();

  // Sends `body`, laid out in body_room() or elsewhere; the server's own error comes back as it is.
  base::Task<Result<fabric::RpcReply>> call(LogMethod method, std::span<const std::byte> body,
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
      uint64_t log, std::span<const std::span<const std::byte>> payloads);

  // Of appends without messages: so many are about 10 us, with an msync each as long as those take.
  // Then leases and everybody else get their turn, timers in every sixteenth.
  static constexpr uint32_t kAppendsPerTurn = 64;
  bool has_had_its_turn() { return ++appended_at_once % kAppendsPerTurn == 0; }

  // ---- one-sided, for producers and readers ----
  fabric::RemoteAddress words_at(const KnownLog& log) const {
    return answer.words.at(uint64_t{log.reply.word} * sizeof(LogWords));
  }
  // Of the byte of its data area that `lsn` names.
  fabric::RemoteAddress data_at(const KnownLog& log, uint64_t lsn) const;
  // Takes a buffer that nobody waits for any more until its READs are done.
  void retire(std::unique_ptr<internal::ReadBuffer> buffer);

  base::Executor& executor;
  fabric::Uri uri;
  LogClientOptions options;
  ClientSecret secret;
  std::unique_ptr<EmbeddedLog> embedded;  // serves a local:PATH pool
  uint32_t appended_at_once = 0;
  fabric::Uri server_uri;  // where to connect to: `uri`, or what `embedded` says
  std::unique_ptr<fabric::Device> device;
  std::unique_ptr<service::Link> link;
  LogSessionAnswer answer;
  std::unique_ptr<std::byte[]> message;  // a request with its prefix
  size_t message_bytes = 0;
  // At most kMostKnown, the last ones noted; others are asked for again. Invariant: known_in_order
  // has the keys of known.
  static constexpr size_t kMostKnown = 4096;
  std::map<uint64_t, KnownLog> known;
  std::deque<uint64_t> known_in_order;
  std::vector<std::unique_ptr<internal::ReadBuffer>> retired;
};

}  // namespace pmstore::log
