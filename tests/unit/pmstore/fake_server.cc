#include "tests/unit/pmstore/fake_server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"

namespace pmstore::testing {
namespace {

template <typename T>
std::span<std::byte> bytes_of(T& object) {
  return {reinterpret_cast<std::byte*>(&object), sizeof(object)};
}

}  // namespace

FakeServer::FakeServer(Executor& executor) : memory_(std::make_unique<Memory>()) {
  std::memset(static_cast<void*>(memory_.get()), 0, sizeof(Memory));
  device_ = *fabric::open_device(fabric::Scheme::kLocal, executor);
  static int number = 0;
  const fabric::Uri uri{fabric::Scheme::kLocal, "fake-server-" + std::to_string(++number), 0};
  listener_ = *device_->listen(uri, *this);
  for (std::span<std::byte> memory :
       {bytes_of(memory_->records), bytes_of(memory_->words), bytes_of(memory_->buckets),
        bytes_of(memory_->second_piece)}) {
    regions_.push_back(*device_->register_memory(memory, fabric::Access::kRemoteRead));
  }
  hello.pool = 1;
  welcome.epoch = 7;
  welcome.service = service::ServiceId::kStore;
  hello.records = regions_[0]->remote();
  hello.words = regions_[1]->remote();
  hello.buckets = regions_[2]->remote();
  hello.bucket_count = kBuckets;
  for (size_t i = 0; i < kBuckets; ++i) memory_->buckets[i].shape = BucketShape::make(4, 0);
  hello.discipline = static_cast<uint8_t>(LockDiscipline::kCpu);
}

FakeServer::~FakeServer() { disconnect_all(); }

size_t FakeServer::count(Method method) const {
  return static_cast<size_t>(std::count_if(requests.begin(), requests.end(),
                                           [&](const auto& r) { return r.method == method; }));
}

Bucket& FakeServer::bucket_of(TableId table, std::string_view key) {
  return memory_->buckets[hash_key(table, key).bucket(kBuckets)];
}
Bucket& FakeServer::bucket_at(uint64_t number) {
  if (number < kBucketsPerPiece) return memory_->buckets[number];
  PMSTORE_CHECK(number - kBucketsPerPiece < kBucketsOfSecondPiece, "a bucket that there is");
  return memory_->second_piece[number - kBucketsPerPiece];
}

void FakeServer::answer_regions(const Request& request, fabric::RpcCall call) {
  EXPECT_EQ(request.method, Method::kRegions);
  std::array<std::byte, sizeof(RegionsReply) + sizeof(NumberedRegion)> room;
  MessageWriter writer(room);
  writer.put(RegionsReply{1, 0, 0});
  writer.put(NumberedRegion{1, 0, regions_[3]->remote()});
  call.reply(writer.message());
}

LockWord& FakeServer::word_of(SlotOffset slot) {
  return memory_->words[lock_word_offset(raw(slot)) / sizeof(LockWord)];
}
std::span<std::byte> FakeServer::record_at(SlotOffset slot, size_t bytes) {
  return std::span(memory_->records).subspan(raw(slot), bytes);
}

void FakeServer::store(SlotOffset slot, TableId table, std::string_view key, std::string_view value,
                       uint64_t version) {
  const uint64_t bytes = record_bytes(key.size(), value.size());
  build_record(record_at(slot, bytes), slot, table, version, RecordState::kLive, key, value);
  word_of(slot) = LockWord::unlocked(version);
}

void FakeServer::place(SlotOffset slot, TableId table, std::string_view key, std::string_view value,
                       uint64_t version) {
  store(slot, table, key, value, version);
  unindex(table, key);
  Bucket& bucket = bucket_of(table, key);
  const auto free = std::find(std::begin(bucket.entries), std::end(bucket.entries), 0u);
  ASSERT_NE(free, std::end(bucket.entries));
  const uint8_t size_class = size_class_of(record_bytes(key.size(), value.size()));
  *free = BucketEntry::make(hash_key(table, key).tag(), size_class, slot).bits;
}

void FakeServer::unindex(TableId table, std::string_view key) {
  Bucket& bucket = bucket_of(table, key);
  bucket.version += 2;
  for (uint64_t& bits : bucket.entries) {
    if (bits != 0 && BucketEntry{bits}.tag() == hash_key(table, key).tag()) bits = 0;
  }
}

Result<std::vector<std::byte>> FakeServer::on_hello(uint64_t token,
                                                    std::span<const std::byte> bytes) {
  const auto head = service::decode_hello(bytes);
  EXPECT_TRUE(head) << head.error().to_string();
  EXPECT_EQ(head->service, service::ServiceId::kStore);
  ClientHello client;
  EXPECT_EQ(bytes.size(), sizeof(*head) + sizeof(client));
  std::memcpy(&client, bytes.data() + sizeof(*head), sizeof(client));
  hellos.emplace_back(*head, client);
  if (refuse) return refusal;
  service::Welcome first = welcome;
  PMSTORE_TRY(first.request_region, expect_client(token, *device_, head->reply_region));
  ServerHello mine = hello;
  if (spoil_welcome) spoil_welcome(first);
  if (spoil_hello) spoil_hello(mine);
  std::vector<std::byte> answer_bytes = service::encode(first, service::bytes_of(mine));
  answer_bytes.resize(hello_bytes);
  return answer_bytes;
}

void FakeServer::answer_plainly(const Request& request, fabric::RpcCall call) {
  const CommitReply committed{};
  const auto bytes = std::as_bytes(std::span(&committed, 1));
  call.reply(request.method == Method::kCommit ? bytes : std::span<const std::byte>{});
}

void FakeServer::on_call(fabric::RpcPeer&, fabric::RpcCall call) {
  MessageReader reader(call.request());
  const auto prefix = reader.get<RequestPrefix>();
  ASSERT_FALSE(reader.failed());
  const auto body = call.request().subspan(sizeof(prefix));
  requests.push_back(
      {static_cast<Method>(call.method()), {body.begin(), body.end()}, prefix.epoch});
  if (answer) {
    answer(requests.back(), std::move(call));
  } else {
    answer_plainly(requests.back(), std::move(call));
  }
}

}  // namespace pmstore::testing
