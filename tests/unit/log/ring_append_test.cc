#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "log/ring.h"
#include "persist/memory.h"
#include "tests/crash/crash_image.h"

namespace pmstore::log {
namespace {

constexpr uint64_t kBytes = 16 * 1024;
constexpr uint32_t kSalt = 0x5a17;

std::string text_of(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('a' + i * 31 % 26);
  return text;
}

class RingAppendTest : public testing::TestWithParam<persist::Domain> {
 protected:
  // A ring with two entries, of which `append` makes the second.
  template <typename Append>
  std::vector<std::byte> bytes_after(bool padded, Append append) {
    memory_.zero(memory_.base(), kBytes);
    auto ring = Ring::format(memory_, 0, kBytes, kSalt);
    ring->set_padding({padded, padded, padded});
    EXPECT_TRUE(ring->append(4, std::as_bytes(std::span("first"))));
    EXPECT_TRUE(append(*ring));
    return {memory_.base(), memory_.base() + kBytes};
  }
  std::string second_found() {
    std::string found;
    auto ring = Ring::open(memory_, 0, kBytes, kSalt);
    EXPECT_TRUE(ring->walk([&](const EntryView& entry) {
      if (entry.sequence != 5) return;
      found.assign(reinterpret_cast<const char*>(entry.payload.data()), entry.payload.size());
    }));
    return found;
  }

  crash::PageBytes region_{kBytes};
  persist::Memory memory_{region_.bytes(), {.domain = GetParam()}};
};
INSTANTIATE_TEST_SUITE_P(Ring, RingAppendTest,
                         testing::Values(persist::Domain::kNone, persist::Domain::kMemoryController,
                                         persist::Domain::kCpuCache),
                         [](const auto& each) {
                           return std::string(persist::domain_name(each.param));
                         });

// Laid out in one piece, in parts, word by word, behind a prefix, or by the caller.
TEST_P(RingAppendTest, EveryWayToAppendWritesTheSameBytes) {
  for (const bool padded : {true, false}) {
    for (size_t bytes = 1; bytes < 2200; bytes += bytes % 97 == 0 ? 90 : 1) {
      const std::string text = text_of(bytes);
      const std::span<const std::byte> payload = std::as_bytes(std::span(text));
      std::vector<std::byte> scratch(entry_room(bytes));
      std::memcpy(scratch.data() + sizeof(EntryHeader), text.data(), text.size());
      const auto expected = bytes_after(
          padded, [&](Ring& ring) { return ring.append_in(5, scratch, bytes).has_value(); });
      ASSERT_EQ(second_found(), text);
      for (size_t prefix_bytes : {0u, 1u, 8u, 32u}) {
        if (prefix_bytes > bytes) continue;
        const auto found = bytes_after(padded, [&](Ring& ring) {
          return ring.append(5, payload.subspan(prefix_bytes), payload.first(prefix_bytes))
              .has_value();
        });
        ASSERT_EQ(found, expected) << bytes << " bytes, prefix " << prefix_bytes;
        ASSERT_EQ(second_found(), text);
      }
    }
  }
}

// Whoever sent the payload may go on writing where it lies.
class Meddler final : public persist::Observer {
 public:
  Meddler(persist::Memory& memory, std::string& text) : memory_(memory), text_(text) {
    memory_.set_observer(this);
  }
  ~Meddler() override { memory_.set_observer(nullptr); }
  void on_store(const void*, const void*, size_t, bool) override {
    for (char& each : text_) each ^= 1;
  }
  void on_flush(const void*, size_t) override {}
  void on_drain() override {}

 private:
  persist::Memory& memory_;
  std::string& text_;
};

TEST_P(RingAppendTest, PayloadThatChangesOnTheWayIsStillAWholeEntry) {
  for (const size_t bytes : {30u, 470u, 480u, 600u, 1000u, 4096u, 5000u}) {
    std::string text = text_of(bytes);
    (void)bytes_after(true, [&](Ring& ring) {
      Meddler meddler(memory_, text);
      return ring.append(5, std::as_bytes(std::span(text))).has_value();
    });
    EXPECT_EQ(second_found().size(), bytes);
  }
}

// Small ones are summed word by word while they are stored: what was summed is what is there. (With
// two processors free, a sum in a pass of its own is seen; two reads of a word next to each other
// are too close for that.)
TEST_P(RingAppendTest, SmallPayloadThatChangesAtAnyMomentIsStillAWholeEntry) {
  std::vector<std::byte> text(150);
  std::atomic<bool> enough = false;
  std::thread scribbler([&] {
    for (unsigned i = 0; !enough; ++i) {
      for (std::byte& each : text) {
        *static_cast<volatile std::byte*>(&each) = static_cast<std::byte>(i);
      }
    }
  });
  const uint64_t prefix = 7;
  for (size_t bytes = 1; bytes <= text.size(); ++bytes) {
    for (int again = 0; again < 100; ++again) {
      (void)bytes_after(true, [&](Ring& ring) {
        return ring.append(5, std::span(text).first(bytes), std::as_bytes(std::span(&prefix, 1)))
            .has_value();
      });
      const size_t found = second_found().size();
      EXPECT_EQ(found, sizeof prefix + bytes);
      if (found != sizeof prefix + bytes) again = 100;
    }
  }
  enough = true;
  scribbler.join();
}

}  // namespace
}  // namespace pmstore::log
