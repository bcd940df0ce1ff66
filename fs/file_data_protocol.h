// The messages of the file data service (ServiceId::kFileData): the bodies of its hello and welcome
// (service/hello.h), the write that a server's CPU makes durable, and what the owner of an area
// asks for: the namespace server of the file system whose data it holds.
//
// A session may READ and WRITE all units of the area, section by section, and READ the generation
// words. A map of a file (fs/types.h) says where to. docs/files-data.md tells why that is safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/memory_region.h"
#include "service/hello.h"

namespace pmstore::fs {

// The body of the hello.
struct FileDataHello {
  uint64_t area = 0;      // identity of the area that is meant; 0: any
  uint64_t instance = 0;  // drawn for each FileData, not 0. Its session before is ended first: what
                          // was posted there may not overwrite what is written from now on
};
static_assert(sizeof(FileDataHello) == 16);

// The body of the welcome. The epoch of the session is the start of the area.
struct FileDataAnswer {
  uint64_t area = 0;  // identity
  // Of the first section of the area. A client asks for the others when a map first names one.
  fabric::RemoteRegion units;  // READ, WRITE: from the first unit on
  fabric::RemoteRegion words;  // READ: uint64_t for each unit
  uint64_t reserved = 0;       // 0
};
static_assert(sizeof(FileDataAnswer) == 64);

// RequestPrefix. The answer: DataSections | DataSection[count], the later sections of the area that
// the session may reach now, by offset.
inline constexpr uint16_t kDataSectionsMethod = 0x0607;
inline constexpr size_t kMaxAreaSections = 64;  // as a pool has extents
struct DataSections {
  uint64_t end = 0;  // behind every offset that a map may have named so far
  uint32_t count = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(DataSections) == 16);
struct DataSection {
  uint64_t offset = 0;         // among the units, of its first one
  fabric::RemoteRegion units;  // as FileDataAnswer
  fabric::RemoteRegion words;
};
static_assert(sizeof(DataSection) == 56);
inline constexpr uint32_t kMaxSectionsReply =
    sizeof(DataSections) + kMaxAreaSections * sizeof(DataSection);

inline constexpr uint16_t kDataWriteMethod = 0x0601;

// RequestPrefix | DataWriteRequest | DataWritePiece[pieces] | the bytes of each piece, one after
// the other. All of it is written, or nothing when a generation word is another one.
inline constexpr size_t kMaxDataPieces = 8;
struct DataWriteRequest {
  uint32_t pieces = 0;  // 1 to kMaxDataPieces
  uint32_t reserved = 0;
};
static_assert(sizeof(DataWriteRequest) == 8);

struct DataWritePiece {
  uint64_t offset = 0;      // among the units
  uint64_t extent = 0;      // offset of the extent that it lies in, whose first word counts
  uint64_t generation = 0;  // of that word
  uint32_t bytes = 0;       // at least 1
  uint32_t reserved = 0;
};
static_assert(sizeof(DataWritePiece) == 32);
inline constexpr size_t kMaxDataWriteHead = sizeof(service::RequestPrefix) +
                                            sizeof(DataWriteRequest) +
                                            kMaxDataPieces * sizeof(DataWritePiece);

struct DataWriteReply {
  uint32_t stale = 0;  // 1: a generation word has changed, and nothing was written
  uint32_t reserved = 0;
};
static_assert(sizeof(DataWriteReply) == 8);

// RequestPrefix | PersistRangesHeader | RemoteRange[] (persist/persist_ranges_message.h): what
// these parts of the units hold becomes durable. Words do not matter: bytes that were not written
// by this client become durable, too. The answer is empty.
inline constexpr uint16_t kDataPersistMethod = 0x0606;

// ---- the owner's session ----

// The body of its hello. One owner has a session at a time. The record in the area (fs/file_area.h)
// says which file system it is of, and the id of the secret that the hello comes with.
struct AreaOwnerHello {
  uint64_t area = 0;         // identity of the area that is meant; 0: any
  uint64_t instance = 0;     // drawn by each start of a namespace server, not 0. At the first hello
                             // of one, all sessions of clients are ended and all words are renewed
  uint64_t file_system = 0;  // identity, not 0
  uint64_t epoch = 0;        // of the namespace server; one with a lower epoch is fenced
  uint16_t server = 0;       // of the area in that file system, not 0
  // Drawn by each start of a namespace server: of two on copies of a pool with the same epoch, the
  // second one is fenced. 48 bits, low ones first; 0: an earlier release, which draws none.
  uint16_t start[3] = {};
  uint64_t start_number() const {
    return uint64_t{start[0]} | uint64_t{start[1]} << 16 | uint64_t{start[2]} << 32;
  }
};
static_assert(sizeof(AreaOwnerHello) == 40);

struct AreaOwnerAnswer {
  uint64_t area = 0;   // identity
  uint64_t bytes = 0;  // of all units
  // That of all units, when they were renewed. 0: the words are as the owner has set them.
  uint64_t word = 0;
};
static_assert(sizeof(AreaOwnerAnswer) == 24);

// Each answer is empty. All may be repeated.
inline constexpr uint16_t kAreaSetWordsMethod = 0x0602;   // AreaSetWords | AreaWord[count]
inline constexpr uint16_t kAreaZeroMethod = 0x0603;       // AreaZero: zeros, durably
inline constexpr uint16_t kAreaEndClientMethod = 0x0604;  // AreaEndClient
inline constexpr uint16_t kAreaReleaseMethod = 0x0605;    // nothing: the area has no owner then

inline constexpr size_t kMaxAreaWords = 512;
struct AreaSetWords {
  uint32_t count = 0;
  uint32_t reserved = 0;
};
struct AreaWord {
  uint64_t offset = 0;  // of a unit
  uint64_t word = 0;
};
static_assert(sizeof(AreaWord) == 16);

inline constexpr uint64_t kMaxAreaBytes = uint64_t{1} << 44;
inline constexpr uint64_t kMaxAreaZeroBytes = uint64_t{4} << 20;
struct AreaZero {
  uint64_t offset = 0;
  uint64_t bytes = 0;  // at most kMaxAreaZeroBytes
};

struct AreaEndClient {
  ClientId client;  // 0: all clients
};
static_assert(sizeof(AreaEndClient) == 16);

}  // namespace pmstore::fs
