// Multiplexer: one TCP socket between two executors, and the connections that share it.
//
// A client's executor that opens several connections to one server has one socket for them: one
// system call sends what one turn posts on all of them, and one receives for all of them. (The idea
// of sharing queue pairs among threads is FLOCK's, SOSP 2021.) Connections do not wait for each
// other, since both ends always read; but a large body delays the frames behind it.
//
// One thread. Never blocks. Owned by its MultiplexerSet, which deletes it once it is over().
//
// Invariants:
//   in_[in_begin_, in_end_) holds received bytes without a decision; it is empty while a body is
//   being received or skipped. Between two receives there is no in_ unless it holds some.
//   only the first of ready_ may be in the middle of a frame, so there is at most one leftover_
//   channel numbers are never used again: frames for a closed connection are skipped
//   over_  =>  of the set's lists it is only in that of those that are over
//   in the set's list of silent sockets  <=>  accepted, not over and without a connection
//   watches_room_  <=>  the executor is woken when the socket takes more, too;  =>  watched_
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/sleeper.h"
#include "fabric/destruction_watch.h"
#include "fabric/internal/frame.h"
#include "fabric/internal/frame_sender.h"
#include "fabric/internal/newcomers.h"
#include "fabric/tcp/internal/socket.h"

namespace pmstore::fabric::tcp {

using internal::FrameHeader;
using internal::FrameKind;
using internal::FrameSender;

class TcpConnection;
class TcpListener;
class MultiplexerSet;

class Multiplexer final : public base::Watched, public internal::Newcomer {
 public:
  // For a connection to the first of `addresses` that answers. `where` names the server in errors;
  // later connections to the same server find the multiplexer by that name.
  Multiplexer(MultiplexerSet& set, std::vector<SocketAddress> addresses, std::string where);
  // For the socket of a client; `listener` takes its connections.
  Multiplexer(MultiplexerSet& set, Socket::Client client, TcpListener& listener);
  ~Multiplexer() override;
  Multiplexer(const Multiplexer&) = delete;
  Multiplexer& operator=(const Multiplexer&) = delete;

  const std::string& where() const { return where_; }
  bool dialed() const { return dialed_; }
  bool connected() const { return connected_; }
  bool over() const { return over_; }
  // No new connection uses it: one of its connections had no answer in time.
  void retire() { retired_ = true; }
  bool retired() const { return retired_; }
  uint64_t sent_bytes() const { return sent_bytes_; }

  // Begins to connect to the next address. Gives an error when none is left to try.
  Status connect_next();
  // Continues connecting. Breaks the multiplexer when no address answers.
  void continue_connecting();
  // The listener is destroyed: no new connections are accepted.
  void forget_listener(const TcpListener& listener) {
    if (listener_ != &listener) return;
    listener_ = nullptr;
    if (connections_.empty()) close_socket();
  }
  // At the listening end, without a connection: closes the socket.
  void close_silent();
  // With a leftover_: hangs up when it has not moved for `patience_ns`.
  void hang_up_when_stuck(uint64_t now_ns, uint64_t patience_ns);

  // At the dialing end: adds a connection and gives its channel number.
  uint32_t add(TcpConnection& connection);
  // The connection of `channel` closes. The multiplexer takes `sender`, and sends the rest of a
  // frame that has begun to leave. `tell`: the peer gets the frame `last`.
  void remove(uint32_t channel, std::unique_ptr<FrameSender> sender, FrameKind last, bool tell);
  // `sender` has something to send.
  void mark_ready(FrameSender& sender);
  // A part of a body for `connection` has arrived.
  bool receives_body_of(const TcpConnection& connection) const {
    return body_connection_ == &connection;
  }
  // Skips the rest of it if it is for `region`; else false.
  bool forget_body(const TcpConnection& connection, const MemoryRegion& region);

  // Sends what the socket takes; true when nothing is left. Makes no callback.
  bool flush() { return send(kMaxSends); }
  // The same, with one system call at most: no connection delays the others.
  bool flush_once() { return send(1); }
  // The same in two parts, so that one system call serves many sockets. False: nothing can be sent.
  // `message` is valid until finish_send().
  bool prepare_send(msghdr& message);
  // `sent`: bytes, or -errno. True when nothing is left. Makes no callback.
  bool finish_send(ssize_t sent);
  int fd() const { return socket_.fd(); }
  // Something is left to be sent, now or when the socket has room.
  bool has_more() const { return !mute_ && !ready_.empty(); }
  // Nothing more can be sent until the socket has room.
  bool blocked() const { return blocked_; }
  // The kernel has no memory for more: it must be tried again, since no room is told of.
  bool refused() const { return refused_; }
  // Before the executor blocks: it is to be woken when a blocked socket has room.
  void watch_room();
  void on_ready(uint32_t events) override;
  // Handles what one system call receives; returns how much. The multiplexer and its set may be
  // destroyed afterwards.
  size_t receive();
  // The same in two parts. `message` is valid until finish_receive(), which may follow callbacks of
  // other multiplexers, but no other receive().
  void prepare_receive(msghdr& message);
  // `got`: bytes, or -errno. The multiplexer and its set may be destroyed afterwards.
  size_t finish_receive(ssize_t got);
  // Between the two: tells receivers of `most` of the requests in `got` at most, when several
  // sockets have some. Destroys nothing.
  size_t tell_of_received(ssize_t got, size_t most);
  // Sends nothing more and shuts the socket down, so that reading finds the end of the stream.
  // Makes no callback.
  void hang_up();
  // Closes the socket and fails all connections. The multiplexer and its set may be destroyed
  // afterwards.
  void break_all(const Error& why);

  // ---- for the set: its lists of those that ----
  internal::ListLinks<Multiplexer> dirty;          // have something to send
  internal::ListLinks<Multiplexer> readable;       // have something to be read
  internal::ListLinks<Multiplexer> with_leftover;  // have a leftover_
  internal::ListLinks<Multiplexer> to_server;      // dialed, and are not over
  internal::ListLinks<Multiplexer> ended;          // are over
  size_t owned_at = 0;                             // where it is in the set's vectors
  size_t watched_at = 0;

 private:
  // The most system calls of one flush().
  static constexpr int kMaxSends = 32;
  static constexpr size_t kMaxPieces = 128;
  // The first messages of this many connections may arrive out of the order of their numbers.
  static constexpr uint32_t kMaxPendingChannels = 1024;

  enum class Parsed { kFrame, kNeedsMore, kOver };

  // The socket is connected. Breaks the multiplexer when it cannot be watched.
  void start();
  // Whether the executor is woken by room to send, too.
  void set_watches_room(bool watches);
  // Makes at most `max_sends` system calls.
  bool send(int max_sends);
  void unwatch_room();  // unless there is something to send
  // After each change of connections_, leftover_ and over_: which lists of the set it is in.
  void update_lists();
  void close_socket();
  TcpConnection* find(uint32_t channel) const;
  // Tells the peer that this end of connection `channel` is closed.
  void tell_closed(FrameKind kind, uint32_t channel);
  // Answers the hello of connection `channel`, which there will not be.
  void refuse(uint32_t channel, const Error& why);
  // `sender` has nothing to send. Deletes it if it is leftover_.
  void unlist(FrameSender& sender);
  void count_sent(size_t sent, size_t asked);
  void take_received(size_t bytes);
  // Tells receivers of the requests in in_[in_begin_, end), which begins with a frame.
  size_t tell_of_waiting(size_t end, size_t most, bool alone);
  void return_room();  // unless it holds something
  Parsed parse_one();
  Parsed take_frame(const FrameHeader& header);
  // At the listening end: no frame of `channel` has arrived before this one.
  bool is_new(uint32_t channel);
  Parsed take_handshake(const FrameHeader& header);
  Parsed begin_body(const FrameHeader& header, TcpConnection* connection, std::byte* target,
                    const MemoryRegion* region);
  Parsed finish_body();
  Parsed protocol_error();

  MultiplexerSet& set_;
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
  // At the listening end: numbers below last_channel_ whose first frame has not arrived.
  std::set<uint32_t> pending_channels_;

  std::vector<FrameSender*> ready_;
  FrameSender notices_{0};                 // kClosed and kRefused frames
  std::unique_ptr<FrameSender> leftover_;  // the rest of a frame of a closed connection
  std::vector<iovec> pieces_;
  size_t asked_ = 0;   // so many of ready_ are in pieces_, between prepare_send() and finish_send()
  size_t wanted_ = 0;  // so many bytes
  uint64_t sent_bytes_ = 0;
  bool mute_ = false;     // after hang_up()
  bool blocked_ = false;  // the socket took less than it was given
  bool refused_ = false;  // the kernel took nothing although the socket has room: try again later
  bool watches_room_ = false;
  bool watched_ = false;
  uint64_t leftover_since_bytes_ = 0;  // sent_bytes_ when the leftover was looked at first
  uint64_t leftover_since_ns_ = 0;     // 0: there was none

  std::unique_ptr<std::byte[]> in_;
  size_t told_end_ = 0;  // receivers know of the requests in in_ before it
  size_t in_begin_ = 0;
  size_t in_end_ = 0;
  // The frame whose body is being received. Without body_connection_ the body is skipped.
  FrameHeader body_header_{};
  TcpConnection* body_connection_ = nullptr;
  std::byte* body_target_ = nullptr;
  uint32_t body_left_bytes_ = 0;
  iovec targets_[2] = {};                      // between prepare_receive() and finish_receive()
  bool into_body_ = false;                     // the first of targets_ is of a body
  const MemoryRegion* body_region_ = nullptr;  // of a WRITE to this end; null: a READ answer
};

}  // namespace pmstore::fabric::tcp
