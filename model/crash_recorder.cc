#include "model/crash_recorder.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pmstore::model {
namespace {

std::vector<std::byte> copy_of(const void* source, size_t bytes) {
  const auto* data = static_cast<const std::byte*>(source);
  return {data, data + bytes};
}

}  // namespace

class CrashRecorder::Part final : public NvmObserver {
 public:
  Part(CrashRecorder& recorder, const persist::Memory& memory)
      : recorder_(recorder), offset_(recorder.offset_of(memory.base())), bytes_(memory.bytes()) {}

  void on_store(const void* destination, const void* source, size_t bytes,
                bool non_temporal) override {
    recorder_.on_store(destination, source, bytes, non_temporal);
  }
  void on_flush(const void* source, size_t bytes) override { recorder_.on_flush(source, bytes); }
  void on_drain() override {
    recorder_.on_drain();
    recorder_.trace_.events.back().offset = offset_;
    recorder_.trace_.events.back().bytes = bytes_;
  }
  void on_fence() override {
    const size_t before = recorder_.trace_.events.size();
    recorder_.on_fence();
    if (recorder_.trace_.events.size() == before) return;
    recorder_.trace_.events.back().offset = offset_;
    recorder_.trace_.events.back().bytes = bytes_;
  }
  void on_sync(const void* source, size_t bytes) override { recorder_.on_sync(source, bytes); }
  void on_dma_write(const void* destination, const void* source, size_t bytes,
                    Landing landing) override {
    recorder_.on_dma_write(destination, source, bytes, landing);
  }
  void on_packet(Packet packet, uint32_t qp, size_t bytes) override {
    recorder_.on_packet(packet, qp, bytes);
  }

 private:
  CrashRecorder& recorder_;
  uint64_t offset_;
  uint64_t bytes_;
};

CrashRecorder::CrashRecorder(persist::Memory& memory, persist::Observer* behind)
    : memories_{&memory}, behind_(behind) {
  start(memory.mapping(), memory.domain());
  memory.set_observer(this);
}

CrashRecorder::CrashRecorder(std::span<persist::Memory* const> parts,
                             std::span<const std::byte> whole, persist::Observer* behind)
    : memories_(parts.begin(), parts.end()), behind_(behind) {
  start(whole, parts.front()->domain());
  for (persist::Memory* const memory : memories_) {
    const uint64_t offset = offset_of(memory->base());
    PMSTORE_CHECK(offset % 64 == 0 && offset < whole_.size() &&
                      memory->bytes() <= whole_.size() - offset &&
                      memory->domain() == trace_.domain,
                  "a part of the memory, alike with the others");
    parts_.push_back(std::make_unique<Part>(*this, *memory));
    memory->set_observer(parts_.back().get());
  }
}

void CrashRecorder::start(std::span<const std::byte> whole, persist::Domain domain) {
  whole_ = whole;
  trace_.domain = domain;
  trace_.initial.assign(whole.begin(), whole.end());
}

CrashRecorder::~CrashRecorder() {
  for (persist::Memory* const memory : memories_) memory->set_observer(behind_);
}

Trace CrashRecorder::take() {
  for (persist::Memory* const memory : memories_) memory->set_observer(behind_);
  memories_.clear();
  return std::move(trace_);
}

NvmObserver& CrashRecorder::part(size_t index) { return *parts_.at(index); }

uint64_t CrashRecorder::offset_of(const void* address) const {
  return static_cast<uint64_t>(static_cast<const std::byte*>(address) - whole_.data());
}

void CrashRecorder::mark() { trace_.events.push_back({.kind = EventKind::kMark, .data = {}}); }

void CrashRecorder::process_dies() {
  trace_.events.push_back({.kind = EventKind::kProcessEnd, .data = {}});
}

void CrashRecorder::on_store(const void* destination, const void* source, size_t bytes,
                             bool non_temporal) {
  if (behind_ != nullptr) behind_->on_store(destination, source, bytes, non_temporal);
  trace_.events.push_back({.kind = EventKind::kStore,
                           .non_temporal = non_temporal,
                           .offset = offset_of(destination),
                           .bytes = bytes,
                           .data = copy_of(source, bytes)});
}

void CrashRecorder::on_flush(const void* source, size_t bytes) {
  if (behind_ != nullptr) behind_->on_flush(source, bytes);
  trace_.events.push_back(
      {.kind = EventKind::kFlush, .offset = offset_of(source), .bytes = bytes, .data = {}});
}

void CrashRecorder::on_drain() {
  if (behind_ != nullptr) behind_->on_drain();
  trace_.events.push_back({.kind = EventKind::kDrain, .data = {}});
}

// Under ADR a fence is a step to nowhere: what counts is the drain.
void CrashRecorder::on_fence() {
  if (behind_ != nullptr) behind_->on_fence();
  if (trace_.domain != persist::Domain::kCpuCache) return;
  trace_.events.push_back({.kind = EventKind::kFence, .data = {}});
}

// The last page may be larger than what is left of the memory.
void CrashRecorder::on_sync(const void* source, size_t bytes) {
  if (behind_ != nullptr) behind_->on_sync(source, bytes);
  const uint64_t offset = offset_of(source);
  PMSTORE_CHECK(offset < whole_.size(), "the pages are the memory's");
  trace_.events.push_back({.kind = EventKind::kSync,
                           .offset = offset,
                           .bytes = std::min<uint64_t>(bytes, whole_.size() - offset),
                           .data = {}});
}

void CrashRecorder::on_dma_write(const void* destination, const void* source, size_t bytes,
                                 Landing landing) {
  const uint64_t offset =
      offset_of(destination);  // absurdly large when `destination` is below the mapping
  if (bytes == 0 || offset >= whole_.size()) return;
  PMSTORE_CHECK(bytes <= whole_.size() - offset, "a DMA write is in one region of memory");
  trace_.events.push_back({.kind = EventKind::kDmaWrite,
                           .landing = landing,
                           .offset = offset,
                           .bytes = bytes,
                           .data = copy_of(source, bytes)});
}

void CrashRecorder::on_post(std::span<const std::byte> message) {
  if (post_listener_) post_listener_(message);
}

void CrashRecorder::on_packet(Packet packet, uint32_t qp, size_t bytes) {
  trace_.events.push_back(
      {.kind = EventKind::kPacket, .packet = packet, .qp = qp, .bytes = bytes, .data = {}});
}

}  // namespace pmstore::model
