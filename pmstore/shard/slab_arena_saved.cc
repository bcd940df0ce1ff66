// What a checkpoint has of a SlabArena: the headers of chunks, as a start that reads them would
// find them.
#include <type_traits>

#include "pmstore/shard/checkpoint_reader.h"
#include "pmstore/shard/checkpoint_writer.h"
#include "pmstore/shard/slab_arena.h"

namespace pmstore::internal {

namespace {

constexpr char kChunksSection[] = "chunks";

// A chunk with a header. Those inside a slab have none.
struct SavedChunk {
  uint64_t base_version;
  uint64_t generation;
  uint32_t chunk;
  uint32_t run;  // of a slab; 0: the chunk is free
  uint32_t size_class;
  uint32_t zero;
};
static_assert(sizeof(SavedChunk) == 32 && std::is_trivially_copyable_v<SavedChunk>);

}  // namespace

void SlabArena::save(CheckpointWriter& writer) const {
  writer.begin_section(kChunksSection);
  for (uint32_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    const Chunk& state = chunks_[chunk];
    const bool is_slab = state.kind == Chunk::Kind::kSlab;
    if (state.generation == 0 || (!is_slab && state.kind != Chunk::Kind::kFree)) continue;
    writer.put(SavedChunk{state.base_version, state.generation, chunk, is_slab ? state.run : 0,
                          state.size_class, 0});
  }
}

Result<SlabArena> SlabArena::restore(persist::Pool& pool, const CatalogHeader& header,
                                     const CheckpointReader& checkpoint) {
  PMSTORE_TRY(RecordFrames frames, RecordFrames::open(pool, header));
  SlabArena arena(pool.memory(), std::move(frames));
  for (const RecordFrames::Part& part : arena.frames_.parts()) arena.add(part);
  if (!arena.restore_chunks(checkpoint)) {
    return make_error(ErrorCode::kDamaged, "it is of other slabs");
  }
  arena.restored_ = true;
  return arena;
}

bool SlabArena::restore_chunks(const CheckpointReader& checkpoint) {
  auto section = checkpoint.section(kChunksSection);
  if (!section) return false;
  const std::vector<RecordFrames::Part> parts = frames_.parts();
  auto part = parts.begin();
  uint32_t next = 0;
  while (section->left() > 0) {
    SavedChunk saved;
    if (!section->read(saved) || saved.chunk < next) return false;
    while (part != parts.end() && saved.chunk >= part->end_of_headers()) ++part;
    const bool inside = part != parts.end() && saved.chunk >= part->first_chunk &&
                        saved.run <= part->end_of_headers() - saved.chunk && saved.generation > 0;
    if (!inside) return false;
    Chunk& state = chunks_[saved.chunk];
    state.base_version = saved.base_version;
    state.generation = saved.generation;
    next = saved.chunk + 1;
    state.leftover = saved.run == 0;
    if (saved.run == 0) continue;
    const bool is_class = saved.size_class < kSizeClasses &&
                          saved.run == run_chunks_of(static_cast<uint8_t>(saved.size_class));
    if (!is_class) return false;
    set_slab(saved.chunk, static_cast<uint8_t>(saved.size_class), saved.run);
    next = saved.chunk + saved.run;
  }
  return section->ended_well();
}

}  // namespace pmstore::internal
