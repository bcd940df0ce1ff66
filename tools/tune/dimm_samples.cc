#include "tools/tune/dimm_samples.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "tools/cli/bytes_text.h"
#include "tools/cli/invalid_argument.h"

namespace pmstore::tools {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

// Takes the next line off `text`.
std::string_view next_line(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = trimmed(text.substr(0, end));
  text.remove_prefix(end == text.npos ? text.size() : end + 1);
  return line;
}

Result<uint64_t> counter(std::string_view name, std::string_view text) {
  const bool hexadecimal = text.starts_with("0x");
  if (hexadecimal) text.remove_prefix(2);
  // ipmctl prints 128 bits; the upper half is zero for many years to come.
  while (text.size() > 1 && text.front() == '0') text.remove_prefix(1);
  uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, hexadecimal ? 16 : 10);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return invalid_argument(fmt::format("{} is no number", name));
  }
  return value;
}

struct Field {
  std::string_view name;
  uint64_t DimmReading::*member;
};
constexpr Field kFields[] = {{"MediaReads", &DimmReading::media_reads},
                             {"MediaWrites", &DimmReading::media_writes},
                             {"ReadRequests", &DimmReading::read_requests},
                             {"WriteRequests", &DimmReading::write_requests}};

// An idle DIMM moves data by itself: below this, that may be most of what is counted.
constexpr uint64_t kFewRequests = 1000;

double ratio(uint64_t a, uint64_t b) {
  return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b);
}

uint64_t grown(uint64_t from, uint64_t to) { return to < from ? 0 : to - from; }

}  // namespace

Result<std::vector<DimmReading>> parse_ipmctl(std::string_view text) {
  std::vector<DimmReading> dimms;
  unsigned seen = 0b1111;
  const auto complete = [&]() -> Status {
    if (seen == 0b1111) return {};
    return invalid_argument(
        fmt::format("DIMM {} lacks some of MediaReads, MediaWrites, ReadRequests and "
                    "WriteRequests",
                    dimms.back().name));
  };
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    if (line.starts_with("---DimmI")) {  // DimmId or DimmID, by version
      PMSTORE_TRY_STATUS(complete());
      const size_t equals = line.find('=');
      if (equals == line.npos || !line.ends_with("---"))
        return invalid_argument("a DIMM without an id");
      dimms.push_back({});
      dimms.back().name = line.substr(equals + 1, line.size() - equals - 4);
      seen = 0;
      continue;
    }
    const size_t equals = line.find('=');
    if (equals == line.npos || dimms.empty()) continue;
    for (unsigned i = 0; i < 4; ++i) {
      if (trimmed(line.substr(0, equals)) != kFields[i].name) continue;
      PMSTORE_TRY(dimms.back().*kFields[i].member,
                  counter(kFields[i].name, trimmed(line.substr(equals + 1))));
      seen |= 1u << i;
    }
  }
  if (dimms.empty()) return invalid_argument("it names no DIMM");
  PMSTORE_TRY_STATUS(complete());
  return dimms;
}

std::string ipmctl_text(const std::vector<DimmReading>& dimms) {
  std::string text;
  for (const DimmReading& dimm : dimms) {
    text += fmt::format("---DimmID={}---\n", dimm.name);
    for (const Field& field : kFields) {
      text += fmt::format("   {}=0x{:032x}\n", field.name, dimm.*field.member);
    }
  }
  return text;
}

Result<std::vector<DimmSample>> parse_trace(std::string_view text) {
  std::vector<DimmSample> samples;
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    if (line.empty()) continue;
    if (!line.starts_with("time "))
      return invalid_argument("a reading does not begin with 'time SECONDS'");
    const std::string number(line.substr(5));
    char* end = nullptr;
    DimmSample sample{std::strtod(number.c_str(), &end), {}};
    if (end == number.c_str() || *end != '\0' || !std::isfinite(sample.seconds))
      return invalid_argument("'" + number + "' is no time");
    const size_t next = text.starts_with("time ") ? 0 : text.find("\ntime ");
    PMSTORE_TRY(sample.dimms, parse_ipmctl(text.substr(0, next)));
    text.remove_prefix(next == text.npos ? text.size() : next + (next > 0));
    if (!samples.empty()) {
      const DimmSample& last = samples.back();
      if (sample.seconds <= last.seconds) return invalid_argument("the times do not grow");
      PMSTORE_TRY_STATUS(check_same_dimms(last, sample));
    }
    samples.push_back(std::move(sample));
  }
  if (samples.size() < 2) return invalid_argument("it has fewer than two readings");
  return samples;
}

double DimmDelta::write_amplification() const { return ratio(media_writes, write_requests); }
double DimmDelta::read_amplification() const { return ratio(media_reads, read_requests); }
double DimmDelta::reads_per_write() const { return ratio(read_requests, write_requests); }
double DimmDelta::megabytes_per_s(uint64_t units) const {
  return seconds > 0 ? static_cast<double>(units) * 64 / 1e6 / seconds : 0;
}

Status check_same_dimms(const DimmSample& before, const DimmSample& after) {
  const auto names = [](const DimmSample& sample) {
    std::string text;
    for (const DimmReading& dimm : sample.dimms) text += (text.empty() ? "" : " ") + dimm.name;
    return text;
  };
  if (names(before) == names(after)) return {};
  return invalid_argument(fmt::format(
      "the readings are of different DIMMs: {}, then {}: try again, and look whether all "
      "DIMMs are well (pmstore doctor)",
      printable(names(before)), printable(names(after))));
}

std::vector<DimmDelta> deltas(const DimmSample& before, const DimmSample& after) {
  std::vector<DimmDelta> found;
  DimmDelta all;
  all.name = "all";
  all.seconds = after.seconds - before.seconds;
  for (size_t i = 0; i < after.dimms.size(); ++i) {
    const DimmReading& from = before.dimms[i];
    const DimmReading& to = after.dimms[i];
    DimmDelta one{to.name,
                  all.seconds,
                  grown(from.read_requests, to.read_requests),
                  grown(from.write_requests, to.write_requests),
                  0,
                  grown(from.media_writes, to.media_writes)};
    one.media_reads = grown(one.media_writes, grown(from.media_reads, to.media_reads));
    all.read_requests += one.read_requests;
    all.write_requests += one.write_requests;
    all.media_reads += one.media_reads;
    all.media_writes += one.media_writes;
    found.push_back(std::move(one));
  }
  found.push_back(std::move(all));
  return found;
}

std::string advice(const DimmDelta& all) {
  if (all.write_requests == 0) return "no writes: nothing to advise";
  if (all.write_requests < kFewRequests) {
    return fmt::format("{} requests to write are too few for advice", all.write_requests);
  }
  const double written = all.write_amplification();
  const double reads = all.reads_per_write();
  if (reads >= 0.5 && written >= 1.5) {
    return fmt::format(
        "{:.2f} reads per write: unless the program reads as much, writes read first: align and "
        "pad (H5 to H7), and let the CPU store past its cache (H4)",
        reads);
  }
  if (written >= 3) {
    return fmt::format(
        "the media write {:.1f} times what was asked for, as with small writes in no order: "
        "pad to 256 bytes (H5), or write neighbours together",
        written);
  }
  if (written >= 1.5) {
    return fmt::format(
        "the media write {:.1f} times what was asked for: with large one-sided "
        "writes that is DDIO (H3): pmstore ddio status",
        written);
  }
  return fmt::format("the media write {:.2f} times what was asked for: no rule looks broken",
                     written);
}

}  // namespace pmstore::tools
