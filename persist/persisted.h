// Persisted: proof that data is durable.
//
// The rule: a function whose effect must not come before something is durable takes a Persisted (or
// a struct that carries one) as an argument, and says in its header what must be durable. Such
// effects are: acknowledging, publishing a tail, applying, truncating, writing a header that refers
// to the data, and overwriting the older of two copies. A caller has no other way to get a token
// than the call that made the data durable: Memory::drain() or RemoteWriter::write(). The compiler
// proves that there was such a call; that the call covered this data is the caller's promise.
//
// A token is valid for what was flushed by the same thread before it was made. It may be copied and
// kept: what is durable stays durable until it is overwritten.
#pragma once

namespace pmstore::persist {

class Persisted {
 private:
  Persisted() {}  // not defaulted: an aggregate could be made with {}
  friend class Memory;
  friend class RemoteWriter;
};

}  // namespace pmstore::persist
