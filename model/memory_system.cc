// Invariant: a line is in the caches of at most one socket.
#include "model/memory_system.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "model/cpu_memory_path.h"
#include "model/interconnect.h"
#include "model/last_level_cache.h"
#include "model/memory_controller.h"
#include "model/pcie.h"
#include "model/picoseconds.h"

namespace pmstore::model {

struct MemorySystem::State {
  struct Socket {
    Socket(const Parameters& parameters, const Now* now, uint64_t seed)
        : controller(parameters, now), cache(parameters.llc, seed), port(parameters.pcie) {}
    MemoryController controller;
    LastLevelCache cache;
    RootPort port;
  };

  // A range of bytes, line by line.
  class Lines {
   public:
    Lines(Location location, uint32_t bytes)
        : line(location.medium, location.socket, location.address),
          offset_(location.address % kCacheLineBytes),
          left_(bytes) {}
    bool more() const { return left_ > 0; }
    bool whole() const { return offset_ == 0 && left_ >= kCacheLineBytes; }
    void next() {
      left_ -= std::min(left_, kCacheLineBytes - offset_);
      offset_ = 0;
      line = line.next();
    }
    Line line;

   private:
    uint64_t offset_;
    uint64_t left_;
  };

  State(const Parameters& parameters, const MemoryOptions& options);
  State(const State&) = delete;  // its parts point to its now

  Interconnect& hop(uint32_t source, uint32_t destination) {
    return hops[source * sockets.size() + destination];
  }
  uint32_t socket_of(uint32_t core) const { return core / cores_per_socket; }

  // Takes the line out of all caches but those of `but`; what it was.
  LastLevelCache::Entry take_from_others(uint32_t but, Line line);
  struct Fetch {
    uint64_t home_ps;  // the request is at the line's memory controller
    uint64_t done_ps;  // the data is back
  };
  // From the memory of the line, as seen from `socket`; `own` to change it in a cache.
  Fetch memory_read(uint32_t socket, uint64_t at_ps, Line line, Dimm::Writer who, bool own);
  // Past the caches. With `whole`, or when a cache had the line, nothing has to be read.
  uint64_t memory_write(uint32_t socket, uint64_t at_ps, Line line, Dimm::Writer who, bool whole);
  // Brings a line into the cache of `socket`; gives when what had to go for it is away.
  uint64_t insert(uint32_t socket, uint64_t at_ps, Line line, LastLevelCache::User user,
                  const LastLevelCache::Entry& from_other);

  uint64_t device_write_line(uint32_t socket, uint64_t at_ps, Line line, bool whole);
  uint64_t device_read_line(uint32_t socket, uint64_t at_ps, Line line);
  // When the core has the line; it can go on at `at_ps` if it does not need it.
  uint64_t cpu_touch_line(uint32_t core, uint64_t& at_ps, Line line, bool store);

  Now now;
  Placement placement;
  bool ddio;
  uint32_t cores_per_socket;
  uint64_t dram_ps, bypassed_ps;
  uint64_t hit_ps, private_hit_ps, store_ps, write_back_ps, streaming_ps;
  std::vector<Socket> sockets;
  std::vector<Interconnect> hops;  // from, to; all of one latency
  std::vector<CpuMemoryPath> cores;
};

using Entry = LastLevelCache::Entry;

MemorySystem::State::State(const Parameters& parameters, const MemoryOptions& options)
    : ddio(options.ddio),
      cores_per_socket(static_cast<uint32_t>(parameters.cpu.cores_per_socket)),
      dram_ps(to_ps(parameters.dram.latency_ns)),
      bypassed_ps(to_ps(parameters.cpu.bypassed_ns)),
      hit_ps(to_ps(parameters.llc.hit_ns)),
      private_hit_ps(to_ps(parameters.cpu.private_hit_ns)),
      store_ps(to_ps(parameters.cpu.store_ns)),
      write_back_ps(to_ps(parameters.cpu.write_back_ns)),
      streaming_ps(to_ps(parameters.cpu.streaming_ns)),
      hops(options.sockets * options.sockets, Interconnect(parameters.numa, &now)),
      cores(options.sockets * cores_per_socket, CpuMemoryPath(parameters.cpu)) {
  PMSTORE_CHECK(options.sockets >= 1 && options.sockets <= 16, "1 to 16 sockets are modelled");
  PMSTORE_CHECK(cores.size() < 255, "a cache line remembers its core in 8 bits");
  for (uint32_t i = 0; i < options.sockets; ++i) {
    sockets.emplace_back(parameters, &now, base::mix64(options.seed) + i);
  }
}

Entry MemorySystem::State::take_from_others(uint32_t but, Line line) {
  for (uint32_t i = 0; i < sockets.size(); ++i) {
    if (i == but) continue;
    const Entry entry = sockets[i].cache.take_out(line);
    if (entry.valid) return entry;
  }
  return {};
}

MemorySystem::State::Fetch MemorySystem::State::memory_read(uint32_t socket, uint64_t at_ps,
                                                            Line line, Dimm::Writer who, bool own) {
  const uint32_t home = line.socket();
  if (home == socket) return {at_ps, sockets[home].controller.read(at_ps, line, who)};
  Interconnect& way = hop(socket, home);
  const uint64_t home_ps = own ? way.write_owned_line(at_ps) : way.read_line(at_ps);
  return {home_ps, sockets[home].controller.read(home_ps, line, who) + way.latency_ps()};
}

uint64_t MemorySystem::State::memory_write(uint32_t socket, uint64_t at_ps, Line line,
                                           Dimm::Writer who, bool whole) {
  const uint32_t home = line.socket();
  if (home != socket) {
    Interconnect& way = hop(socket, home);
    at_ps = whole ? way.write_full_line(at_ps) : way.write_owned_line(at_ps);
  }
  MemoryController& controller = sockets[home].controller;
  return whole ? controller.write(at_ps, line, who) : controller.write_part(at_ps, line, who);
}

uint64_t MemorySystem::State::insert(uint32_t socket, uint64_t at_ps, Line line,
                                     LastLevelCache::User user, const Entry& from_other) {
  LastLevelCache& cache = sockets[socket].cache;
  const Entry gone = cache.insert(line, user);
  if (from_other.valid && from_other.dirty) {
    Entry* entry = cache.find(line);
    entry->dirty = 1;
    entry->writer = from_other.writer;
  }
  if (!gone.valid || !gone.dirty) return at_ps;
  // A line of another socket has paid for its way back when it was owned.
  const Line victim = Line::from_name(gone.name);
  return sockets[victim.socket()].controller.write(at_ps, victim,
                                                   static_cast<Dimm::Writer>(gone.writer), true);
}

uint64_t MemorySystem::State::device_write_line(uint32_t socket, uint64_t at_ps, Line line,
                                                bool whole) {
  LastLevelCache& cache = sockets[socket].cache;
  const Entry other = take_from_others(socket, line);
  if (!ddio || line.socket() != socket) {
    const bool cached = cache.take_out(line).valid || other.valid;
    return memory_write(socket, at_ps, line, Dimm::kDevice, whole || cached);
  }
  Entry* entry = cache.find(line);
  uint64_t done_ps = at_ps + hit_ps;
  if (entry == nullptr) {
    if (!whole && !other.valid) {
      done_ps = memory_read(socket, at_ps, line, Dimm::kDevice, true).done_ps + hit_ps;
    }
    done_ps = std::max(done_ps, insert(socket, at_ps, line, LastLevelCache::kDevice, other));
    entry = cache.find(line);
  }
  entry->dirty = 1;
  entry->user = LastLevelCache::kDevice;
  entry->writer = Dimm::kDevice;
  return done_ps;
}

uint64_t MemorySystem::State::device_read_line(uint32_t socket, uint64_t at_ps, Line line) {
  for (uint32_t i = 0; i < sockets.size(); ++i) {
    if (sockets[i].cache.find(line) == nullptr) continue;
    return at_ps + hit_ps + (i == socket ? 0 : 2 * hops[0].latency_ps());
  }
  return memory_read(socket, at_ps, line, Dimm::kDevice, false).done_ps;
}

uint64_t MemorySystem::State::cpu_touch_line(uint32_t core, uint64_t& at_ps, Line line,
                                             bool store) {
  const auto user = static_cast<LastLevelCache::User>(core + 1);
  const uint32_t socket = socket_of(core);
  LastLevelCache& cache = sockets[socket].cache;
  CpuMemoryPath& path = cores[core];
  Entry* entry = cache.find(line);
  uint64_t done_ps = at_ps + private_hit_ps;
  if (entry == nullptr || entry->user != user) {
    at_ps = path.begin(at_ps);
    if (entry != nullptr) {
      done_ps = at_ps + hit_ps;
    } else {
      const Entry other = take_from_others(socket, line);
      const Fetch fetch = other.valid ? Fetch{at_ps, at_ps + 2 * hops[0].latency_ps()}
                                      : memory_read(socket, at_ps, line, user, store);
      // What has to go competes with what comes: it is written when the request is there, too.
      const uint64_t gone_ps = insert(socket, fetch.home_ps, line, user, other);
      done_ps = std::max(fetch.done_ps, gone_ps) + hit_ps;
      entry = cache.find(line);
    }
    path.end(done_ps);
  }
  entry->user = user;
  if (store) {
    entry->dirty = 1;
    entry->writer = user;
    path.note_owned(done_ps);
  }
  return done_ps;
}

MemorySystem::MemorySystem(const Parameters& parameters, const MemoryOptions& options)
    : state_(std::make_unique<State>(parameters, options)) {}
MemorySystem::~MemorySystem() = default;

Placement& MemorySystem::placement() { return state_->placement; }
void MemorySystem::set_ddio(bool enabled) { state_->ddio = enabled; }
bool MemorySystem::ddio() const { return state_->ddio; }

MemorySystem::DeviceWrite MemorySystem::device_write(uint32_t socket, uint64_t at_ps,
                                                     const void* destination, uint32_t bytes) {
  State& s = *state_;
  s.now.move_to(at_ps);
  const Location location = s.placement.find(destination);
  RootPort& port = s.sockets[socket].port;
  uint64_t begin_ps = at_ps;
  for (State::Lines lines(location, bytes); lines.more(); lines.next()) {
    begin_ps = port.begin(at_ps);
    port.end(s.device_write_line(socket, begin_ps, lines.line, lines.whole()));
  }
  return {std::max(at_ps, port.visible_ps()), begin_ps, s.ddio && location.socket == socket};
}

uint64_t MemorySystem::device_read(uint32_t socket, uint64_t at_ps, const void* source,
                                   uint32_t bytes) {
  State& s = *state_;
  s.now.move_to(at_ps);
  const uint64_t begin_ps = std::max(at_ps, s.sockets[socket].port.visible_ps());
  uint64_t done_ps = begin_ps;
  for (State::Lines lines(s.placement.find(source), bytes); lines.more(); lines.next()) {
    done_ps = std::max(done_ps, s.device_read_line(socket, begin_ps, lines.line));
  }
  return done_ps;
}

uint64_t MemorySystem::cpu_load(uint32_t core, uint64_t at_ps, const void* source, uint32_t bytes) {
  State& s = *state_;
  s.now.move_to(at_ps);
  uint64_t done_ps = at_ps;
  for (State::Lines lines(s.placement.find(source), bytes); lines.more(); lines.next()) {
    done_ps = std::max(done_ps, s.cpu_touch_line(core, at_ps, lines.line, false));
  }
  return done_ps;
}

uint64_t MemorySystem::cpu_receive(uint32_t core, uint64_t at_ps, const void* message,
                                   uint32_t bytes) {
  State& s = *state_;
  if (!s.ddio) at_ps += 2 * s.bypassed_ps + s.dram_ps;
  return bytes == 0 ? at_ps : cpu_load(core, at_ps, message, bytes);
}

uint64_t MemorySystem::cpu_store(uint32_t core, uint64_t at_ps, const void* destination,
                                 uint32_t bytes) {
  State& s = *state_;
  s.now.move_to(at_ps);
  for (State::Lines lines(s.placement.find(destination), bytes); lines.more(); lines.next()) {
    s.cpu_touch_line(core, at_ps, lines.line, true);
    at_ps += s.store_ps;
  }
  return at_ps;
}

uint64_t MemorySystem::cpu_store_non_temporal(uint32_t core, uint64_t at_ps,
                                              const void* destination, uint32_t bytes) {
  State& s = *state_;
  s.now.move_to(at_ps);
  const uint32_t socket = s.socket_of(core);
  CpuMemoryPath& path = s.cores[core];
  for (State::Lines lines(s.placement.find(destination), bytes); lines.more(); lines.next()) {
    at_ps = path.begin(at_ps) + s.store_ps;
    const bool cached = s.sockets[socket].cache.take_out(lines.line).valid ||
                        s.take_from_others(socket, lines.line).valid;
    const uint64_t there_ps =
        s.memory_write(socket, at_ps, lines.line, static_cast<Dimm::Writer>(core + 1),
                       lines.whole() || cached) +
        s.streaming_ps;
    path.end(there_ps);
    path.note_persisted(there_ps);
  }
  return at_ps;
}

uint64_t MemorySystem::cpu_flush(uint32_t core, uint64_t at_ps, const void* source,
                                 uint32_t bytes) {
  State& s = *state_;
  s.now.move_to(at_ps);
  CpuMemoryPath& path = s.cores[core];
  for (State::Lines lines(s.placement.find(source), bytes); lines.more(); lines.next()) {
    at_ps += s.store_ps;
    for (State::Socket& socket : s.sockets) {
      Entry* entry = socket.cache.find(lines.line);
      if (entry == nullptr || !entry->dirty) continue;
      entry->dirty = 0;
      at_ps = path.begin(at_ps);
      const uint64_t leaves_ps = std::max(at_ps, path.owned_ps());
      const uint64_t there_ps =
          s.sockets[lines.line.socket()].controller.write(
              leaves_ps, lines.line, static_cast<Dimm::Writer>(entry->writer)) +
          s.write_back_ps;
      path.end(there_ps);
      path.note_persisted(there_ps);
    }
  }
  return at_ps;
}

uint64_t MemorySystem::cpu_drain(uint32_t core, uint64_t at_ps) {
  return std::max(at_ps, state_->cores[core].persisted_ps());
}

size_t MemorySystem::dimms() const {
  return state_->sockets.size() * state_->sockets[0].controller.dimms();
}

const DimmCounters& MemorySystem::dimm(size_t index) const {
  const size_t per_socket = state_->sockets[0].controller.dimms();
  return state_->sockets[index / per_socket].controller.dimm(index % per_socket);
}

DimmCounters MemorySystem::all_dimms() const {
  DimmCounters all;
  for (size_t i = 0; i < dimms(); ++i) all += dimm(i);
  return all;
}

DimmCounters MemorySystem::settled_dimm(size_t index) const {
  const size_t per_socket = state_->sockets[0].controller.dimms();
  return state_->sockets[index / per_socket].controller.settled(index % per_socket);
}

uint64_t MemorySystem::dirty_nvm_lines() const {
  uint64_t lines = 0;
  for (const State::Socket& socket : state_->sockets) {
    socket.cache.each_dirty([&](Line line) { lines += line.medium() == Medium::kNvm; });
  }
  return lines;
}

void MemorySystem::settle() {
  for (State::Socket& socket : state_->sockets) {
    socket.cache.clean_all(
        [&](Line line) { state_->sockets[line.socket()].controller.write_untimed(line); });
  }
  for (State::Socket& socket : state_->sockets) socket.controller.settle();
}

}  // namespace pmstore::model
