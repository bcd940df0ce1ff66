// Lifetime and DestructionWatch: let a member function notice that a callback has destroyed its
// object.
//
// An object that may be destroyed from inside its own functions has a Lifetime as a member; those
// functions hold a DestructionWatch around what may do it. One thread. Watches nest and do not
// allocate.
#pragma once

#include <cstdint>

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
  State* state_;  // outlives us while it is watched
};

class DestructionWatch {
 public:
  explicit DestructionWatch(Lifetime& lifetime) : state_(lifetime.state_) { ++state_->watches; }
  // Not inline: where watches nest, g++ 12 takes the inner one's delete
  // for one of what the outer one reads.
  [[gnu::noinline]] ~DestructionWatch() {
    if (--state_->watches == 0 && state_->over) delete state_;
  }
  DestructionWatch(const DestructionWatch&) = delete;
  DestructionWatch& operator=(const DestructionWatch&) = delete;

  bool destroyed() const { return state_->over; }

 private:
  Lifetime::State* state_;
};

}  // namespace pmstore::fabric::internal
