// The records of the shard log.
#include "pmstore/layout/shard_record.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/random.h"

namespace pmstore {
namespace {

constexpr uint64_t kEpoch = 5;
constexpr ClientId kClient(77, 1);

std::vector<ShardParticipant> participants() {
  return {{4, {5, 6}, 7, 8, 0, 0, 0}, {9, {10, 11}, 12, 13, 0, 0, 0}};
}

std::vector<std::byte> a_commit() {
  return encode_decision(ShardRecordKind::kCommit, kClient, kEpoch, participants(), {41});
}

struct Redo {
  explicit Redo(size_t value_bytes = 100, const std::vector<ShardParticipant>& others = {})
      : room(4096) {
    ShardRedoBuilder redo(room, kClient, kEpoch, others);
    redo.add(SlotOffset{64}, TableId{1}, 9, RecordState::kLive, "alice",
             std::string(value_bytes, 'v'));
    redo.add(SlotOffset{4096}, TableId{2}, 3, RecordState::kTombstone, "bob", {});
    room.resize(redo.finish().size());
  }
  ShardRecordHeader header() const {
    ShardRecordHeader header;
    std::memcpy(&header, room.data(), sizeof header);
    return header;
  }
  void set(const ShardRecordHeader& header) { std::memcpy(room.data(), &header, sizeof header); }
  std::vector<std::byte> room;
};

CoordinatorMark a_mark() {
  CoordinatorMark mark;
  mark.through_lsn = 4096;
  mark.floor = 17;
  mark.sessions.push_back({kClient, 20, 30, {21, 25, 30}});
  mark.sessions.push_back({78, 1, 9, {}});
  return mark;
}

TEST(ShardRecord, RedoIsReadBackAsItWasBuilt) {
  const Redo redo;
  auto reader = ShardRecordReader::open_whole(redo.room, kEpoch);
  ASSERT_TRUE(reader) << reader.error().to_string();
  EXPECT_EQ(reader->kind(), ShardRecordKind::kRedo);
  EXPECT_EQ(reader->client(), kClient);
  EXPECT_EQ(reader->writes(), 2u);
  const auto alice = reader->next();
  ASSERT_TRUE(alice);
  EXPECT_EQ(alice->slot, SlotOffset{64});
  EXPECT_EQ(alice->record.key, "alice");
  EXPECT_EQ(alice->record.value, std::string(100, 'v'));
  EXPECT_EQ(alice->record.version(), 9u);
  const auto bob = reader->next();
  ASSERT_TRUE(bob);
  EXPECT_FALSE(bob->record.live());
  EXPECT_FALSE(reader->next());
  EXPECT_FALSE(reader->malformed());
}

TEST(ShardRecord, MarkIsReadBackAsItWasEncoded) {
  const CoordinatorMark mark = a_mark();
  const auto bytes = encode_mark(mark, kEpoch);
  EXPECT_EQ(bytes.size(), mark_bytes(mark));
  auto reader = ShardRecordReader::open_whole(bytes, kEpoch);
  ASSERT_TRUE(reader) << reader.error().to_string();
  ASSERT_EQ(reader->kind(), ShardRecordKind::kMark);
  const CoordinatorMark read = *reader->mark();
  EXPECT_EQ(read.through_lsn, mark.through_lsn);
  EXPECT_EQ(read.floor, mark.floor);
  ASSERT_EQ(read.sessions.size(), 2u);
  EXPECT_EQ(read.sessions[0].client, kClient);
  EXPECT_EQ(read.sessions[0].known_from, 20u);
  EXPECT_EQ(read.sessions[0].highest, 30u);
  EXPECT_EQ(read.sessions[0].committed, mark.sessions[0].committed);
  EXPECT_TRUE(read.sessions[1].committed.empty());
}

TEST(ShardRecord, RecordsOfSeveralServersNameTheOthers) {
  const Redo redo(100, participants());
  auto reader = ShardRecordReader::open_whole(redo.room, kEpoch);
  ASSERT_TRUE(reader) << reader.error().to_string();
  EXPECT_TRUE(reader->is_shared());
  EXPECT_EQ(reader->next()->record.key, "alice");
  EXPECT_FALSE(open_whole_redo(redo.room, kEpoch)) << "no client's ring has such a record";
  const auto bytes = a_commit();
  auto commit = ShardRecordReader::open_whole(bytes, kEpoch);
  ASSERT_TRUE(commit) << commit.error().to_string();
  EXPECT_EQ(commit->kind(), ShardRecordKind::kCommit);
  EXPECT_EQ(commit->decision()->known_through, 41u);
  for (const auto& record : {*reader, *commit}) {
    ASSERT_EQ(record.participants().size(), 2u);
    EXPECT_EQ(record.participants()[1].pool, 9u);
    EXPECT_EQ(record.participants()[1].name(), (TxId{{10, 11}, 12}));
  }
  const auto abort = encode_decision(ShardRecordKind::kAbort, kClient, kEpoch, {}, {41});
  ASSERT_TRUE(ShardRecordReader::open_whole(abort, kEpoch));
}

TEST(ShardRecord, ParticipantsThatOnlyALaterReleaseWritesAreRefused) {
  const auto code = [](auto change) {
    auto others = participants();
    change(others[1]);
    return ShardRecordReader::open(Redo(100, others).room, kEpoch).code();
  };
  using Other = ShardParticipant;
  EXPECT_EQ(code([](Other& o) { o.partition = 1; }), ErrorCode::kVersionMismatch);
  EXPECT_EQ(code([](Other& o) { o.shard = 1; }), ErrorCode::kVersionMismatch);
  EXPECT_EQ(code([](Other& o) { o.zero = 1; }), ErrorCode::kBadPool);
  Redo none;
  ShardRecordHeader header = none.header();
  for (const auto kind : {ShardRecordKind::kCommit, ShardRecordKind::kAbort}) {
    header.kind = kind;
    none.set(header);
    EXPECT_EQ(ShardRecordReader::open_whole(none.room, kEpoch).code(), ErrorCode::kBadPool);
  }
}

// Fields for what comes later have the values of one server; whoever wrote others is newer.
TEST(ShardRecord, WhatOnlyALaterReleaseWritesIsRefusedAsSuch) {
  const auto refused = [](auto change) {
    Redo redo;
    ShardRecordHeader header = redo.header();
    change(header);
    redo.set(header);
    return ShardRecordReader::open(redo.room, kEpoch).code();
  };
  using Header = ShardRecordHeader;
  const ErrorCode later = ErrorCode::kVersionMismatch;
  EXPECT_EQ(refused([](Header& h) { h.kind = ShardRecordKind{9}; }), later);
  EXPECT_EQ(refused([](Header& h) { h.features = 1; }), later);
  EXPECT_EQ(refused([](Header& h) { h.replicas = 1; }), later);
  EXPECT_EQ(refused([](Header& h) { h.partition = 1; }), later);
  EXPECT_EQ(refused([](Header& h) { h.home_partition = 1; }), later);
  EXPECT_EQ(refused([](Header& h) { h.epoch = kEpoch + 1; }), ErrorCode::kBadPool);
  EXPECT_EQ(refused([](Header& h) { h.zero = 1; }), ErrorCode::kBadPool);
  EXPECT_EQ(refused([](Header& h) { h.zero_end = 1; }), ErrorCode::kBadPool);
}

TEST(ShardRecord, EveryPartOfARecordIsMalformed) {
  const Redo redo;
  const Redo shared(100, participants());
  const auto mark = encode_mark(a_mark(), kEpoch);
  const auto commit = a_commit();
  for (const auto* whole : {&redo.room, &shared.room, &mark, &commit}) {
    for (size_t bytes = 0; bytes < whole->size(); ++bytes) {
      EXPECT_FALSE(ShardRecordReader::open_whole(std::span(*whole).first(bytes), kEpoch)) << bytes;
    }
    auto longer = *whole;
    longer.resize(longer.size() + 8);
    EXPECT_FALSE(ShardRecordReader::open_whole(longer, kEpoch));
  }
}

TEST(ShardRecord, AWriteToAnotherPartitionOrExtentIsMalformed) {
  for (const size_t field : {offsetof(ShardWrite, partition), offsetof(ShardWrite, extent),
                             offsetof(ShardWrite, zero), offsetof(ShardWrite, offset)}) {
    Redo redo;
    redo.room[sizeof(ShardRecordHeader) + field] ^= std::byte{64};
    EXPECT_FALSE(ShardRecordReader::open_whole(redo.room, kEpoch)) << field;
  }
}

// Whatever it says: nothing outside of it is read.
TEST(ShardRecord, DrawnBytesAreRefusedOrRead) {
  Random random(11);
  const Redo redo;
  const Redo shared(100, participants());
  const auto mark = encode_mark(a_mark(), kEpoch);
  const auto commit = a_commit();
  const std::vector<std::byte>* const whole[] = {&redo.room, &mark, &shared.room, &commit};
  for (int i = 0; i < 80'000; ++i) {
    std::vector<std::byte> mutant = *whole[i % 4];
    for (uint64_t n = random.below(4) + 1; n > 0; --n) {
      mutant[random.below(mutant.size())] = static_cast<std::byte>(random.next());
    }
    mutant.resize(mutant.size() - random.below(2) * random.below(mutant.size()));
    const std::vector<std::byte> exact(mutant.begin(), mutant.end());
    auto reader = ShardRecordReader::open_whole(exact, kEpoch);
    if (!reader || reader->kind() != ShardRecordKind::kRedo) continue;
    while (reader->next()) {
    }
    EXPECT_FALSE(reader->malformed());
  }
}

}  // namespace
}  // namespace pmstore
