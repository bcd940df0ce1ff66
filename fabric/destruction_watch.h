// Lifetime and DestructionWatch: let a member function notice that a callback has destroyed its
// object.
//
// An object that its own functions may destroy has a Lifetime as a member. A function holds a
// DestructionWatch around a callback that may destroy the object. One thread. Watches nest and do
// not allocate. A DestructionWatch may outlive the object.
#pragma once

#include <cstdint>

#include "base/check.h"

namespace pmstore::fabric::internal {

class Lifetime {
 public:
  Lifetime() : state_(new State) {}
  ~Lifetime() {
    state_->over = true;
    if (state_->watches == 0) delete state_;
  }
  Lifetime(const Lifetime&) = delete;
  Lifetime& operator=(const Lifetime&) = delete;

 private:
  friend class DestructionWatch;
  struct State {
    bool over = false;
    uint32_t watches = 0;
  };
  State* state_;  // outlives the Lifetime while it is watched
};

class DestructionWatch {
 public:
  explicit DestructionWatch(Lifetime& lifetime) : state_(lifetime.state_) { ++state_->watches; }
  // Not inline: where watches nest, g++ 12 takes the inner one's delete
  // for one of what the outer one reads.
  [[gnu::noinline]] ~DestructionWatch() {
    PMSTORE_CHECK(state_->watches > 0, "each watch ends once");
    if (--state_->watches == 0 && state_->over) delete state_;
  }
  DestructionWatch(const DestructionWatch&) = delete;
  DestructionWatch& operator=(const DestructionWatch&) = delete;

  bool destroyed() const { return state_->over; }

 private:
  Lifetime::State* state_;
};

}  // namespace pmstore::fabric::internal
