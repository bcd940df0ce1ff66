#include "model/crash_recorder.h"

#include <utility>

#include "base/check.h"

namespace pmstore::model {
namespace {

std::vector<std::byte> copy_of(const void* from, size_t bytes) {
  const auto* data = static_cast<const std::byte*>(from);
  return {data, data + bytes};
}

}  // namespace

CrashRecorder::CrashRecorder(persist::Memory& memory, persist::Observer* behind)
    : memory_(&memory), behind_(behind) {
  PMSTORE_CHECK(memory.domain() != persist::Domain::kNone,
                "of a page cache nobody knows what a power cut leaves");
  trace_.domain = memory.domain();
  trace_.initial.assign(memory.mapping().begin(), memory.mapping().end());
  memory.set_observer(this);
}

CrashRecorder::~CrashRecorder() {
  if (memory_ != nullptr) memory_->set_observer(behind_);
}

Trace CrashRecorder::take() {
  memory_->set_observer(behind_);
  memory_ = nullptr;
  return std::move(trace_);
}

void CrashRecorder::mark() { trace_.events.push_back({.kind = EventKind::kMark, .data = {}}); }

void CrashRecorder::process_dies() {
  trace_.events.push_back({.kind = EventKind::kProcessEnd, .data = {}});
}

void CrashRecorder::on_store(const void* to, const void* from, size_t bytes, bool non_temporal) {
  if (behind_ != nullptr) behind_->on_store(to, from, bytes, non_temporal);
  trace_.events.push_back({.kind = EventKind::kStore,
                           .non_temporal = non_temporal,
                           .offset = memory_->offset_of(to),
                           .bytes = bytes,
                           .data = copy_of(from, bytes)});
}

void CrashRecorder::on_flush(const void* from, size_t bytes) {
  if (behind_ != nullptr) behind_->on_flush(from, bytes);
  trace_.events.push_back(
      {.kind = EventKind::kFlush, .offset = memory_->offset_of(from), .bytes = bytes, .data = {}});
}

void CrashRecorder::on_drain() {
  if (behind_ != nullptr) behind_->on_drain();
  trace_.events.push_back({.kind = EventKind::kDrain, .data = {}});
}

void CrashRecorder::on_dma_write(const void* to, const void* from, size_t bytes, Landing landing) {
  const uint64_t offset = memory_->offset_of(to);  // absurdly large when `to` is below the mapping
  if (bytes == 0 || offset >= memory_->bytes()) return;
  PMSTORE_CHECK(memory_->contains(offset, bytes), "a DMA write is in one region of memory");
  trace_.events.push_back({.kind = EventKind::kDmaWrite,
                           .landing = landing,
                           .offset = offset,
                           .bytes = bytes,
                           .data = copy_of(from, bytes)});
}

void CrashRecorder::on_packet(Packet packet, uint32_t qp, size_t bytes) {
  trace_.events.push_back(
      {.kind = EventKind::kPacket, .packet = packet, .qp = qp, .bytes = bytes, .data = {}});
}

}  // namespace pmstore::model
