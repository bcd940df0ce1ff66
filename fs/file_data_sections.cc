// Of FileData: the later sections of the area, which the server is asked for when a map first names
// one that is not known.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "fabric/message.h"
#include "fs/internal/file_data_state.h"

namespace pmstore::fs {

FileData::State::SectionRef FileData::State::Session::section_of(uint64_t offset,
                                                                 uint64_t bytes) const {
  for (const SectionRef& section : sections) {
    if (section->has(offset, bytes)) return section;
  }
  return nullptr;
}

bool FileData::State::is_lost(ErrorCode why, uint64_t in_session) const {
  if (why == ErrorCode::kDisconnected || why == ErrorCode::kTimeout) return true;
  const bool is_over = session == nullptr || generation != in_session;
  return why == ErrorCode::kAccess && (is_over || session->knew_later_section);
}

base::Task<Result<DataOutcome>> FileData::State::find_places(std::vector<AreaRange> places) {
  PMSTORE_CO_TRY(const DataOutcome learned, co_await learn_sections());
  if (learned == DataOutcome::kStaleMap) co_return learned;
  for (const AreaRange& place : places) {
    if (session->section_of(place.offset, place.bytes) != nullptr) continue;
    // A section that the server has no more: the file has another place.
    if (session->was_named(place.offset, place.bytes)) co_return DataOutcome::kStaleMap;
  }
  co_return DataOutcome::kDone;
}

base::Task<Result<DataOutcome>> FileData::State::find_ranges(
    std::span<const persist::RemoteRange> ranges) {
  const auto is_known = [this](const persist::RemoteRange& range) {
    return range.bytes > 0 && session->section_of(range.offset, range.bytes) != nullptr;
  };
  if (std::all_of(ranges.begin(), ranges.end(), is_known)) co_return DataOutcome::kDone;
  PMSTORE_CO_TRY(const DataOutcome learned, co_await learn_sections());
  if (learned == DataOutcome::kStaleMap) co_return learned;
  for (const persist::RemoteRange& range : ranges) {
    if (range.bytes > 0 && session->was_named(range.offset, range.bytes)) continue;
    co_return make_error(ErrorCode::kInvalidArgument,
                         "what is made durable is at least one byte, inside of the area");
  }
  co_return DataOutcome::kDone;
}

base::Task<Result<DataOutcome>> FileData::State::learn_sections() {
  const uint64_t in_session = generation;
  const auto learning = std::make_shared<Learning>(executor);
  workers.run(learn(learning, session));
  while (!learning->done) co_await learning->ended.wait();
  if (!*learning->done) {
    Error why = learning->done->error();
    if (!is_lost(why.code, in_session)) co_return why;
    if (session != nullptr && generation == in_session) session->link->drop();
    const Status again = co_await reconnector.connected();
    if (!again) co_return why;
  }
  const bool is_same = session != nullptr && generation == in_session;
  co_return is_same ? DataOutcome::kDone : DataOutcome::kStaleMap;
}

base::Task<void> FileData::State::learn(LearningRef learning, SessionRef with) {
  const base::RunningTasks::Position here = workers.started_last();
  const auto reply = co_await with->link->call(kDataSectionsMethod, {}, kMaxSectionsReply);
  Status done = reply ? take_sections(*with, reply->bytes()) : Status{reply.error()};
  if (!done && done.code() == ErrorCode::kProtocol) with->link->drop();
  learning->done = std::move(done);
  learning->ended.notify_all();
  workers.ended(here);
}

Status FileData::State::take_sections(Session& to, std::span<const std::byte> reply) const {
  fabric::MessageReader reader(reply);
  const auto head = reader.get<DataSections>();
  const auto malformed = [] {
    return make_error(ErrorCode::kProtocol, "the data server's list of sections makes no sense");
  };
  if (reader.failed() || head.count > kMaxAreaSections || head.reserved != 0) return malformed();
  std::vector<DataSection> all;
  for (uint32_t i = 0; i < head.count; ++i) all.push_back(reader.get<DataSection>());
  if (!reader.complete()) return malformed();
  // Accesses under way have a reference to theirs.
  std::erase_if(to.sections, [&](const SectionRef& known) {
    return known->begin != 0 && std::none_of(all.begin(), all.end(), [&](const DataSection& each) {
             return each.offset == known->begin;
           });
  });
  for (const DataSection& each : all) {
    const bool is_known =
        std::any_of(to.sections.begin(), to.sections.end(),
                    [&](const SectionRef& known) { return known->begin == each.offset; });
    if (!is_known) {
      PMSTORE_TRY_STATUS(add_section(to, each));
    }
  }
  to.end = std::max(to.end, head.end);
  return {};
}

}  // namespace pmstore::fs
