#include "tests/scenario/fs/model/kept_sequences.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace pmstore::fs::model {
namespace {

constexpr const char* kEnding = ".ops";

// Nothing: a line is none of ours.
std::optional<KeptSequence> kept_at(const std::filesystem::path& path) {
  KeptSequence sequence;
  sequence.name = path.stem().string();
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const auto setting = Setting::parse(line);
  if (!setting) return std::nullopt;
  sequence.setting = *setting;
  while (std::getline(file, line)) {
    const auto operation = Operation::parse(line);
    if (!operation) return std::nullopt;
    sequence.operations.push_back(*operation);
  }
  return sequence;
}

}  // namespace

std::string keep(const std::string& folder, const KeptSequence& sequence) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  const std::string path = fmt::format("{}/{}{}", folder, sequence.name, kEnding);
  std::ofstream file(path, std::ios::trunc);
  file << sequence.setting.to_string() << "\n";
  for (const Operation& operation : sequence.operations) file << operation.to_string() << "\n";
  file.close();
  return file.good() ? path : std::string();
}

std::optional<std::vector<KeptSequence>> kept_in(const std::string& folder) {
  std::vector<KeptSequence> all;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    if (entry.path().extension() != kEnding) continue;
    auto sequence = kept_at(entry.path());
    if (!sequence) {
      fmt::print(stderr, "{}: not a sequence of the model test\n", entry.path().string());
      return std::nullopt;
    }
    all.push_back(std::move(*sequence));
  }
  if (failed) {
    fmt::print(stderr, "{}: {}\n", folder, failed.message());
    return std::nullopt;
  }
  const auto by_name = [](const KeptSequence& a, const KeptSequence& b) { return a.name < b.name; };
  std::sort(all.begin(), all.end(), by_name);
  return all;
}

}  // namespace pmstore::fs::model
