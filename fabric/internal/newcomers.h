// Newcomers: clients that have knocked and are not served yet: sockets without a connection, or
// handshakes that are under way. They are bounded, and the bound is shared fairly by the addresses
// that they come from: a flood from one address does not keep others out.
//
// A newcomer always finds room. When there are too many, the owner turns one away that has waited:
// of all addresses the oldest newcomer of the one that has most; or the oldest of the newcomer's
// own address if that has more than its share and has waited long enough. So many clients of one
// host may still come at the same moment.
//
// Invariants:
//   each newcomer is in the list of its origin, and in that of all; both begin with the oldest
//   an origin without newcomers is forgotten
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "fabric/internal/intrusive_list.h"

namespace pmstore::fabric::internal {

// Where a client comes from, as far as it costs an attacker something to have many of them: an IPv4
// address, the network part (/64) of an IPv6 address.
struct Origin {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const Origin&) const = default;
};

// A base of what is counted. Its owner removes it before it is destroyed.
struct Newcomer {
  Origin origin;
  uint64_t since_ns = 0;
  ListLinks<Newcomer> of_origin;
  ListLinks<Newcomer> of_all;
};

class Newcomers {
 public:
  static constexpr size_t kMost = 1024;
  // The share of an address.
  static constexpr size_t kMostOfOrigin = 64;
  // A newcomer of its own address does not push one out that has not waited for so long: where a
  // thousand programs start on a busy host, seconds pass until the last one says hello.
  static constexpr uint64_t kGraceNs = 3'000'000'000;

  // `most`: of all addresses together; `most_of_origin`: of one that have waited.
  explicit Newcomers(size_t most = kMost, size_t most_of_origin = kMostOfOrigin)
      : most_(most), most_of_origin_(most_of_origin) {}
  ~Newcomers();
  Newcomers(const Newcomers&) = delete;
  Newcomers& operator=(const Newcomers&) = delete;

  void set_most(size_t most) { most_ = most; }
  size_t most() const { return most_; }
  size_t size() const { return all_.size(); }
  static bool listed(const Newcomer& newcomer) { return newcomer.of_all.listed; }

  // It is the youngest: `now_ns` does not decrease from call to call.
  void add(Newcomer& newcomer, const Origin& origin, uint64_t now_ns);
  void remove(Newcomer& newcomer);

  // Null when there are none.
  Newcomer* oldest() const { return all_.front(); }
  // The oldest one of the origin that has most, of equal ones that which has waited longest; null
  // when there are none. Takes time for each origin.
  Newcomer* oldest_of_most() const;
  // The one that must go before a newcomer of `origin` is added; null when there is room.
  Newcomer* surplus(const Origin& origin, uint64_t now_ns) const;

 private:
  using OfOrigin = IntrusiveList<Newcomer, &Newcomer::of_origin>;

  size_t most_;
  const size_t most_of_origin_;
  IntrusiveList<Newcomer, &Newcomer::of_all> all_;
  std::map<Origin, OfOrigin> origins_;
};

}  // namespace pmstore::fabric::internal
