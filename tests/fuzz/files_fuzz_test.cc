// The messages of the file service: whatever the bytes of a request are, it is executed, refused
// with an errno, or does not decode; nothing outside of the message is read or written.
//
// The number of rounds is small enough for every test run; PMSTORE_FUZZ_ROUNDS in the environment
// makes it larger.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/random.h"
#include "fs/internal/files_calls.h"
#include "tests/fuzz/fuzzing.h"
#include "tests/unit/fs/namespace_fixture.h"

namespace pmstore::fs {
namespace {

using internal::FilesCalls;
using internal::FilesRequest;

constexpr uint64_t kRoom = 16 * fuzz::kPage;

// A request of each method that decodes, about inodes and names that are there.
template <typename T>
std::vector<std::byte> request_of(const T& body, std::string_view names = {}) {
  std::vector<std::byte> request(sizeof body + names.size());
  fabric::MessageWriter writer(request);
  writer.put(body);
  writer.put_bytes(names);
  return request;
}

struct Sample {
  FilesMethod method;
  std::vector<std::byte> body;
};

std::vector<Sample> samples(uint64_t directory, uint64_t file) {
  SetAttributesRequest change;
  change.ino = file;
  change.set = AttributeChange::kSize | AttributeChange::kMode;
  change.size = 300'000;
  MakeRequest symlink;
  symlink.parent = directory;
  symlink.name_bytes = 3;
  symlink.target_bytes = 6;
  symlink.type = FileType::kSymlink;
  MakeRequest regular;
  regular.parent = directory;
  regular.name_bytes = 1;
  regular.type = FileType::kRegular;
  MakeRequest at = regular;
  at.name_bytes = 8;
  return {
      {FilesMethod::kLookup, request_of(NameRequest{directory, 4, {}}, "file")},
      {FilesMethod::kWalk, request_of(WalkRequest{directory, 12, 0, {}}, "../d/./file/")},
      {FilesMethod::kWalk, request_of(WalkRequest{directory, 4, 6, {}}, "file../d/x")},
      {FilesMethod::kGetAttributes, request_of(InoRequest{file})},
      {FilesMethod::kSetAttributes, request_of(change)},
      {FilesMethod::kAccess, request_of(AccessRequest{file, 4, 0})},
      {FilesMethod::kMake, request_of(symlink, "symtarget")},
      {FilesMethod::kMake, request_of(regular, "r")},
      {FilesMethod::kLink, request_of(LinkRequest{file, directory, 2, {}}, "ln")},
      {FilesMethod::kUnlink, request_of(NameRequest{directory, 2, {}}, "ln")},
      {FilesMethod::kRemoveDirectory, request_of(NameRequest{directory, 4, {}}, "file")},
      {FilesMethod::kRename,
       request_of(RenameRequest{directory, directory, 1, 2, RenameMode::kReplace, {}}, "rr2")},
      {FilesMethod::kMakeAt, request_of(at, "../d/./r")},
      {FilesMethod::kRemoveAt, request_of(NameRequest{directory, 7, {}}, "../d/ln")},
      {FilesMethod::kRenameAt,
       request_of(RenameRequest{directory, directory, 6, 4, RenameMode::kReplace, {}},
                  "../d/r./r2")},
      {FilesMethod::kReadLink, request_of(InoRequest{file})},
      {FilesMethod::kReadDirectory, request_of(ReadDirectoryRequest{directory, 0, 100, 1, {}})},
      {FilesMethod::kParentOf, request_of(InoRequest{directory})},
      {FilesMethod::kOpen, request_of(OpenRequest{file, O_RDWR, 1})},
      {FilesMethod::kAwaitOpen, request_of(AwaitOpenRequest{file, 1, 0})},
      {FilesMethod::kAwaitLock, request_of(LockRequest{file, 0, 9, 1, 1, {}, {}, 0, 0})},
      {FilesMethod::kClose, request_of(InoRequest{file})},
      {FilesMethod::kMap, request_of(MapRequest{file, 0, 1 << 20, 0, {}})},
      {FilesMethod::kRead, request_of(RangeRequest{file, 0, 10'000})},
      {FilesMethod::kWrite, request_of(WriteRequest{file, 1000, 5, 0, {}}, "bytes")},
      {FilesMethod::kWrite, request_of(WriteRequest{file, 0, 5, 1, {}}, "bytes")},
      {FilesMethod::kAllocate,
       request_of(AllocateRequest{file, 0, 100'000, AllocateMode::kPunchHole, {}})},
      {FilesMethod::kReserve, request_of(RangeRequest{file, 0, 200'000})},
      {FilesMethod::kPublish, request_of(PublishRequest{file, 1, 200'000})},
      {FilesMethod::kTouch, request_of(TouchRequest{file, 1, 1, 1, {}})},
      {FilesMethod::kSetXattr,
       request_of(XattrRequest{file, 5, 6, XattrMode::kSet, 0}, "user.avalue")},
      {FilesMethod::kGetXattr, request_of(XattrRequest{file, 0, 6, XattrMode::kSet, 0}, "user.a")},
      {FilesMethod::kRemoveXattr,
       request_of(XattrRequest{file, 0, 6, XattrMode::kSet, 0}, "user.a")},
      {FilesMethod::kListXattrs, request_of(InoRequest{file})},
      {FilesMethod::kUsage, {}},
      {FilesMethod::kLock, request_of(request_of(Ino{file}, FileLock{}, false))},
      {FilesMethod::kFindLock, request_of(request_of(Ino{file}, FileLock{}, false))},
      {FilesMethod::kReclaim, request_of(ReclaimRequest{file, O_RDWR, 1})},
  };
}

// Changes bytes, mostly few; cuts; lengthens.
void mutate(std::vector<std::byte>& bytes, Random& random) {
  const uint64_t what = random.below(8);
  if (what == 0 && !bytes.empty()) bytes.resize(random.below(bytes.size()));
  if (what == 1) bytes.resize(bytes.size() + 1 + random.below(100));
  if (what >= 6 || bytes.empty()) return;  // as it is
  for (uint64_t i = random.below(4); i > 0; --i) {
    constexpr uint8_t kEdges[] = {0, 1, 0x7f, 0x80, 0xff};
    bytes[random.below(bytes.size())] = random.below(2) == 0
                                            ? std::byte{kEdges[random.below(std::size(kEdges))]}
                                            : static_cast<std::byte>(random.next());
  }
}

class FilesFuzz : public NamespaceTest {};

TEST_F(FilesFuzz, AnyRequestIsExecutedOrRefused) {
  const Ino in = directory("d", kRootIno, 0777);
  const Ino of = file("file", in);
  internal::FileLocks locks(executor_);
  internal::Delegations delegations;
  delegations.on_recall = [](Ino) -> uint64_t { return 1; };
  FilesCalls calls(executor_, fs(), locks, delegations, {});
  const std::vector<Sample> corpus = samples(raw(in), raw(of));
  const bool forgotten = false;
  const bool ended = false;
  uint64_t session_calls = 0;
  bool has_maps = false;
  Random random(1);
  fuzz::Guarded<kRoom> into;
  fuzz::Guarded<fuzz::kPage> from;
  uint64_t done = 0;
  uint64_t refused = 0;
  uint64_t malformed = 0;
  const uint64_t rounds = fuzz::rounds(3000);
  for (uint64_t round = 0; round < rounds; ++round) {
    const Sample& sample = corpus[random.below(corpus.size())];
    std::vector<std::byte> body = sample.body;
    mutate(body, random);
    // Its last byte is in front of a page that cannot be touched.
    const auto at = from.bytes().last(body.size());
    std::copy(body.begin(), body.end(), at.begin());
    FilesRequest request;
    request.method =
        random.below(20) == 0 ? static_cast<FilesMethod>(0x0300 + random.below(64)) : sample.method;
    request.owner = OpenOwner{1};
    request.forgotten = &forgotten;
    request.ended = &ended;
    request.calls = &session_calls;
    request.call = ++session_calls;
    request.has_maps = &has_maps;
    request.body = at;
    request.room = random.below(10) == 0 ? random.below(300) : kRoom;
    fabric::MessageWriter reply(into.bytes().last(request.room));
    const PosixStatus answer = run(calls.execute(request, reply));
    if (answer) {
      ++done;
    } else if (answer.number() == EBADMSG) {
      ++malformed;
    } else {
      ++refused;
    }
    ASSERT_LE(reply.bytes(), request.room);
  }
  EXPECT_GT(done, rounds / 5);
  EXPECT_GT(refused, rounds / 20);
  EXPECT_GT(malformed, rounds / 20);
  // It is as good as before.
  run(fs().forget(OpenOwner{1}));
  EXPECT_EQ(stat(in).type, FileType::kDirectory);
}

TEST_F(FilesFuzz, AnyReplyIsUnderstoodOrNot) {
  Random random(2);
  fuzz::Guarded<fuzz::kPage> memory;
  Namespace::Listed listed;
  listed.entry = {"name", Ino{5}, FileType::kRegular, 17};
  listed.attributes = Attributes{.ino = Ino{5}};
  uint64_t understood = 0;
  uint64_t not_understood = 0;
  const uint64_t rounds = fuzz::rounds(20'000);
  for (uint64_t round = 0; round < rounds; ++round) {
    std::vector<std::byte> bytes(400);
    fabric::MessageWriter writer(bytes);
    put_listed(listed, writer);
    bytes.resize(writer.bytes());
    mutate(bytes, random);
    const auto at = memory.bytes().last(bytes.size());
    std::copy(bytes.begin(), bytes.end(), at.begin());
    fabric::MessageReader reader(at);
    const auto found = get_listed(reader);
    ++(found && reader.complete() ? understood : not_understood);
    if (found) {
      EXPECT_LE(found->entry.name.size(), kMaxNameBytes);
    }
    fabric::MessageReader head(at);
    Caller caller;
    if (get_head(head, caller)) {
      EXPECT_LE(caller.groups.size(), kMaxGroups);
    }
  }
  EXPECT_GT(understood, rounds / 5);
  EXPECT_GT(not_understood, rounds / 5);
}

TEST_F(FilesFuzz, AnyWalkIsUnderstoodOrNot) {
  Random random(3);
  fuzz::Guarded<fuzz::kPage> memory;
  uint64_t understood = 0;
  uint64_t not_understood = 0;
  const uint64_t rounds = fuzz::rounds(20'000);
  for (uint64_t round = 0; round < rounds; ++round) {
    Namespace::Walked walked;
    for (uint64_t i = random.below(4); i > 0; --i) walked.found.push_back({.ino = Ino{i}});
    if (random.below(2) == 0) {
      walked.error.emplace(ENOENT, "there is none");
    } else {
      walked.target = "target";
    }
    std::vector<std::byte> bytes(500);
    fabric::MessageWriter writer(bytes);
    put_walked(walked, writer);
    bytes.resize(writer.bytes());
    mutate(bytes, random);
    const auto at = memory.bytes().last(bytes.size());
    std::copy(bytes.begin(), bytes.end(), at.begin());
    fabric::MessageReader reader(at);
    const auto found = get_walked(reader);
    ++(found && reader.complete() ? understood : not_understood);
    if (!found) continue;
    EXPECT_LE(found->found.size(), kMaxWalkedNames);
    EXPECT_LE(found->target.size(), kMaxSymlinkBytes);
  }
  EXPECT_GT(understood, rounds / 5);
  EXPECT_GT(not_understood, rounds / 5);
}

}  // namespace
}  // namespace pmstore::fs
