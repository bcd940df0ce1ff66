// Wire: one TCP socket between two executors, and the connections that share it.
//
// A client of an executor that opens several connections to one server has one socket for them:
// what one turn posts on all of them is one system call, and so is what has arrived for them. (The
// idea of sharing queue pairs among threads is FLOCK's, SOSP 2021.) Connections do not wait for
// each other, since both ends always read; but a large body delays what is behind it.
//
// One thread. Never blocks. Owned by its WireSet; deleted by that when it is over().
//
// Invariants:
//   received bytes that are not used yet are in_[in_begin_, in_end_); while a body is being placed
//   or skipped there are none
//   only the first of ready_ may be in the middle of a frame, so there is one leftover_ at most
//   numbers of connections are never used again: what arrives for one that has closed is skipped
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "fabric/internal/destruction_watch.h"
#include "fabric/tcp/internal/frame.h"
#include "fabric/tcp/internal/frame_sender.h"
#include "fabric/tcp/internal/socket.h"

namespace pmstore::fabric::tcp {

class TcpConnection;
class TcpListener;
class WireSet;

class Wire {
 public:
  // To the first of `addresses` that answers; `where` names them in errors, and is what others that
  // want the same wire look for.
  Wire(WireSet& set, std::vector<SocketAddress> addresses, std::string where);
  // Over a client's socket; new connections are given to `listener`.
  Wire(WireSet& set, Socket socket, TcpListener& listener, uint64_t now_ns);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  const std::string& where() const { return where_; }
  bool dialed() const { return dialed_; }
  bool connected() const { return connected_; }
  bool over() const { return over_; }
  // Takes no new connections: one of them had no answer in time.
  void retire() { retired_ = true; }
  bool retired() const { return retired_; }
  uint64_t sent_bytes() const { return sent_bytes_; }

  // Begins to connect; the error when no address can even be tried.
  Status connect_next();
  // Goes on with that. Breaks the wire when nobody answers.
  void look_at_connecting();
  // The listener is gone: nobody takes new connections.
  void forget_listener(const TcpListener& listener) {
    if (listener_ != &listener) return;
    listener_ = nullptr;
    if (connections_.empty()) close_socket();
  }
  // Of an accepted one: closes it if it has had no connection since `time_ns`, or the rest of what
  // one had to send has not moved since then.
  void look_after(uint64_t now_ns, uint64_t patience_ns);

  // For a new connection of the end that dialed: its number.
  uint32_t add(TcpConnection& connection);
  // The connection is over: `sender` is what it still had to send. Tells the peer, unless that
  // knows or the wire is broken. The rest is the wire's.
  void remove(uint32_t channel, std::unique_ptr<FrameSender> sender, FrameKind last, bool tell);
  // `sender` has something to send.
  void mark_ready(FrameSender& sender);
  // A region is no longer there.
  void withdraw(const MemoryRegion& region);

  // Sends what the socket takes; true when nothing is left. Calls nobody.
  bool flush();
  // Takes what has arrived; returns how much. The wire and its set may be gone afterwards.
  size_t receive();
  // Nothing more is sent, and reading will find the end of the stream. Calls nobody.
  void hang_up();
  // Closes the socket and fails all connections. The wire and its set may be gone afterwards.
  void break_all(const Error& why);

  bool dirty = false;  // in the set's list of those that have something to send

 private:
  static constexpr size_t kInBytes = 64 * 1024;
  // A body up to this size is placed when all of it is here, so that nobody sees half of a small
  // word; a larger one as it comes.
  static constexpr uint32_t kPlaceWholeBytes = 512;
  // So many times a socket that has more is read in one poll.
  static constexpr int kMaxReads = 8;
  // So many times something is sent in one turn: who reads and reads keeps no others waiting.
  static constexpr int kMaxSends = 32;
  static constexpr size_t kMaxPieces = 128;
  // First messages of so many connections may overtake that of another.
  static constexpr uint32_t kMaxUnheard = 1024;

  enum class Parsed { kFrame, kNeedsMore, kOver };

  void close_socket();
  TcpConnection* find(uint32_t channel) const;
  // Tells the peer that this end of connection `channel` is closed.
  void tell_closed(FrameKind kind, uint32_t channel);
  // It has nothing to send any more, and if it is the leftover is of no more use.
  void unlist(FrameSender& sender);
  void count_sent(size_t sent, size_t asked);
  bool take_received(size_t bytes);
  Parsed parse_one();
  Parsed take_frame(const FrameHeader& header);
  // Of an accepted wire: nothing has been heard of `channel` before this.
  bool is_new(uint32_t channel);
  Parsed take_handshake(const FrameHeader& header);
  Parsed begin_body(const FrameHeader& header, TcpConnection* connection, std::byte* to,
                    const MemoryRegion* region);
  Parsed finish_body();
  Parsed protocol_error();

  WireSet& set_;
  internal::Lifetime lifetime_;
  Socket socket_;
  bool connected_ = false;
  bool over_ = false;
  bool retired_ = false;
  const bool dialed_;

  std::string where_;
  std::vector<SocketAddress> addresses_;
  size_t next_address_ = 0;
  TcpListener* listener_ = nullptr;

  std::map<uint32_t, TcpConnection*> connections_;
  uint32_t last_channel_ = 0;
  std::set<uint32_t> unheard_;  // of an accepted one: numbers below that which may still come
  uint64_t idle_since_ns_ = 0;  // of an accepted one: since when it has no connection

  std::vector<FrameSender*> ready_;
  FrameSender notices_{0};                 // that connections are closed
  std::unique_ptr<FrameSender> leftover_;  // of a connection that is over: the rest of a frame
  std::vector<iovec> pieces_;
  uint64_t sent_bytes_ = 0;
  bool mute_ = false;                  // after hang_up()
  uint64_t leftover_since_bytes_ = 0;  // sent_bytes_ when the leftover was looked at first
  uint64_t leftover_since_ns_ = 0;     // 0: there was none

  std::unique_ptr<std::byte[]> in_;
  size_t in_begin_ = 0;
  size_t in_end_ = 0;
  // The frame whose body is being placed; skipped when its connection is over.
  FrameHeader placing_{};
  TcpConnection* place_for_ = nullptr;
  std::byte* place_to_ = nullptr;
  uint32_t place_left_ = 0;
  const MemoryRegion* place_region_ = nullptr;  // of ours that a peer writes; null: a READ's buffer
};

}  // namespace pmstore::fabric::tcp
