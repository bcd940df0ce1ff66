// The inside of FileData: its session, and the accesses that are under way.
//
// An access is cut into parts, of at most kMaxMessageData each: one doorbell, or one message. A few
// workers, tasks that run to their ends, take one part after the other. Invariants: `message` is
// filled and given to RpcClient::call() without a suspension in between; workers hold their
// session, nobody else does, so that it never outlives the buffers; a worker holds at most one
// buffer; nothing is copied into or out of memory that is not registered once the caller is gone.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/executor.h"
#include "base/running_tasks.h"
#include "fs/file_data.h"
#include "fs/file_data_protocol.h"
#include "fs/internal/transfer_buffers.h"
#include "persist/remote_writer.h"
#include "service/link.h"
#include "service/reconnector.h"

namespace pmstore::fs {

struct FileData::State final : service::Reconnector::Target {
  static_assert(kMaxDataPieces <= internal::kMaxWords);
  static_assert(2 * kMaxDataPieces <= persist::RemoteWriter::kMaxPieces);
  // Parts of one access at the same time.
  static constexpr size_t kWorkers = 4;
  // Of a part that is made durable in a file: a second doorbell then costs less than the two copies
  // that a message has more.
  static constexpr size_t kOneSidedBytes = 128 * 1024;
  // Of accesses that need no wait, in this process. Then leases and everybody else get their turn.
  static constexpr uint32_t kAccessesPerTurn = 32;

  // Of the area: a region of units, and one of their words. Both are as if they began with the
  // first section, so that an offset in the area is one in them.
  struct Section {
    bool has(uint64_t offset, uint64_t bytes) const {
      return offset >= begin && offset <= end && bytes <= end - offset;
    }
    uint64_t begin = 0;  // in the area
    uint64_t end = 0;
    fabric::RemoteRegion units;
    fabric::RemoteRegion words;
    std::unique_ptr<persist::RemoteWriter> writer;
  };
  using SectionRef = std::shared_ptr<const Section>;
  struct Session {
    // nullptr: no known section has all of it.
    SectionRef section_of(uint64_t offset, uint64_t bytes) const;
    bool was_named(uint64_t offset, uint64_t bytes) const {
      return offset <= end && bytes <= end - offset;
    }

    uint64_t number = 0;    // `generation` while it is the present one
    uint64_t area = 0;      // identity
    uint64_t end = 0;       // behind what a map may have named, as far as is known
    size_t part_bytes = 0;  // the most that a part has
    persist::WriteStrategy strategy{};
    std::vector<SectionRef> sections;  // that are known; the first one always
    bool knew_later_section = false;
    bool by_message = false;  // durable writes are, and what makes others durable
    // With by_message: durable parts of so many bytes are written one-sided, and a message right
    // behind them makes them durable.
    size_t one_sided_bytes = SIZE_MAX;
    std::unique_ptr<service::Link> link;  // goes first: its READs land in the writers
  };
  using SessionRef = std::shared_ptr<Session>;

  // A piece of a part.
  struct Piece {
    uint64_t offset = 0;      // in the area
    uint64_t extent = 0;      // the same of its extent
    uint64_t generation = 0;  // of that
    std::byte* memory = nullptr;
    uint32_t bytes = 0;
    const fabric::MemoryRegion* region = nullptr;  // of `memory`; nullptr: it is not registered
  };
  struct Part {
    std::span<const Piece> pieces() const { return {table.data(), count}; }
    SectionRef section;  // that has all pieces
    std::array<Piece, kMaxDataPieces> table;
    size_t count = 0;
    size_t bytes = 0;
    size_t copied_bytes = 0;  // of pieces that are not registered
  };

  enum class Kind : uint8_t { kRead, kWrite, kWriteVisible };
  struct Access {
    Access(base::Executor& executor, Kind what) : kind(what), ended(executor) {}
    // Is another part to be begun?
    bool goes_on() const { return next < parts.size() && !failure && !stale && !abandoned; }

    const Kind kind;
    uint64_t number = 0;
    std::vector<Part> parts;
    size_t next = 0;  // part
    size_t workers = 0;
    std::optional<Error> failure;
    bool stale = false;
    bool abandoned = false;  // the caller is gone
    base::WaitList ended;    // when there are no workers any more
  };
  using AccessRef = std::shared_ptr<Access>;
  // A question about sections; the session that it is asked in may be lost.
  struct Learning {
    explicit Learning(base::Executor& executor) : ended(executor) {}
    std::optional<Status> done;
    base::WaitList ended;
  };
  using LearningRef = std::shared_ptr<Learning>;
  // What persist() was asked for; one session after the other tries it.
  struct Persisting {
    Persisting(base::Executor& executor, std::vector<persist::RemoteRange> what)
        : ranges(std::move(what)), ended(executor) {}
    const std::vector<persist::RemoteRange> ranges;
    std::optional<Status> done;
    base::WaitList ended;
  };
  using PersistingRef = std::shared_ptr<Persisting>;

  State(fabric::Device& data_device, fabric::Uri server, FileDataOptions with);
  ~State() override;

  // ---- the session (file_data.cc) ----
  bool usable() const override { return session != nullptr && session->link->usable(); }
  bool ready() const { return usable() && !reconnector.closed(); }
  base::Task<void> let_go() override;
  base::Task<Status> connect_once() override;
  Result<SessionRef> check_answer(std::unique_ptr<service::Link> link);
  Status add_section(Session& to, const DataSection& given) const;
  // ---- later sections of the area (file_data_sections.cc) ----
  // What was under way in this session may be repeated in the next one. An access to a section that
  // the server has given back is refused, and everything on the connection ends with it.
  bool is_lost(ErrorCode why, uint64_t in_session) const;
  // Asks the server for them. kStaleMap: there is another session now.
  base::Task<Result<DataOutcome>> learn_sections();
  base::Task<void> learn(LearningRef learning, SessionRef with);
  Status take_sections(Session& to, std::span<const std::byte> reply) const;
  // Requires a session.
  template <typename P>
  bool knows(const std::vector<P>& pieces) const {
    return std::all_of(pieces.begin(), pieces.end(), [this](const P& piece) {
      const AreaRange& place = piece.extent.place;
      return session->section_of(place.offset, place.bytes) != nullptr;
    });
  }
  // Asks for sections when one of the places is not known. kStaleMap: there is another session now,
  // or the section of a place is gone.
  base::Task<Result<DataOutcome>> find_places(std::vector<AreaRange> places);
  // The same for what is to be durable: a range whose section is gone is no file's any more.
  // InvalidArgument: a range is outside of the area.
  base::Task<Result<DataOutcome>> find_ranges(std::span<const persist::RemoteRange> ranges);
  void drop_session();
  base::Task<void> settled();
  base::Task<Status> landed();
  base::Task<Status> landed_by(uint64_t until_ns);
  Status nothing_may_land();
  base::Task<void> connect_again();
  base::Task<void> say_goodbye(SessionRef last);
  base::Task<void> retire(std::unique_ptr<fabric::MemoryRegion> region);

  // ---- accesses (file_data_datapath.cc) ----
  // Adds the bytes to the last part, or to new ones. False: outside of the extent or of what is
  // known of the area.
  bool add(Access& access, const MapExtent& extent, uint64_t offset, std::byte* memory,
           size_t bytes) const;
  base::Task<Result<DataOutcome>> execute(AccessRef access);
  base::Task<void> work(AccessRef access, SessionRef with);
  base::Task<Status> read_part(AccessRef access, SessionRef with, const Part& part);
  base::Task<Status> write_part(AccessRef access, SessionRef with, const Part& part);
  base::Task<Status> send_part(AccessRef access, SessionRef with, const Part& part);
  base::Task<void> persist_in(PersistingRef persisting, SessionRef with);
  size_t lay_out(const service::Link& link, const Part& part);
  // nullptr: it is not registered as a whole.
  const fabric::MemoryRegion* region_of(const std::byte* memory, size_t bytes) const;

  fabric::Device& device;
  base::Executor& executor;
  const fabric::Uri uri;
  const FileDataOptions options;
  const uint64_t instance;                             // as FileDataHello
  uint64_t area = 0;                                   // identity; 0: of the first answer
  std::unique_ptr<internal::TransferBuffers> buffers;  // goes behind the connections
  std::map<const std::byte*, std::unique_ptr<fabric::MemoryRegion>> registered;  // by address
  std::unique_ptr<std::byte[]> message;
  SessionRef session;       // the present one; empty: none was made after the last
  uint64_t generation = 0;  // sessions that were made
  // Of the server, by the first session that has met each of them.
  std::map<uint64_t, uint64_t> starts;
  // A write has failed, and may be under way at the server until that hears of the next session.
  bool may_land = false;
  fabric::Counters ended_counters;  // of sessions before
  // Accesses are numbered from 1 on; those under way.
  uint64_t last_access = 0;
  std::set<uint64_t> under_way;
  base::WaitList access_ended;
  uint32_t accesses_at_once = 0;
  service::Reconnector reconnector;
  base::RunningTasks workers;  // last: destroyed first
};

}  // namespace pmstore::fs
