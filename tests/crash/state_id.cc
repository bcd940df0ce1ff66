#include "tests/crash/state_id.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

namespace pmstore::crash {
namespace {

constexpr char kDead[] = "dead";
constexpr char kNothing[] = "-";  // no line is in doubt

std::string choice_text(const model::CrashStates::Choice& choice) {
  if (choice.empty()) return kNothing;
  std::string text;
  for (size_t i = 0; i < choice.size();) {
    size_t same = 1;
    while (i + same < choice.size() && choice[i + same] == choice[i]) ++same;
    if (!text.empty()) text += '.';
    text += same > 1 ? fmt::format("{}x{}", choice[i], same) : fmt::format("{}", choice[i]);
    i += same;
  }
  return text;
}

// The part before `separator`, taken off `rest`.
std::string_view take(std::string_view& rest, char separator) {
  const size_t end = rest.find(separator);
  const std::string_view part = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return part;
}

bool to_number(std::string_view text, uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

bool to_choice(std::string_view text, model::CrashStates::Choice& choice) {
  if (text == kNothing) return true;
  while (!text.empty()) {
    std::string_view run = take(text, '.');
    const bool repeated = run.find('x') != std::string_view::npos;
    uint64_t kept = 0;
    uint64_t times = 1;
    if (!to_number(take(run, 'x'), kept) || kept > UINT16_MAX) return false;
    if (repeated && (!to_number(run, times) || times > (1u << 20))) return false;
    choice.insert(choice.end(), times, static_cast<uint16_t>(kept));
  }
  return !choice.empty();
}

}  // namespace

std::string StateId::text() const {
  std::string text = fmt::format("{}:{}", scenario, seed);
  for (const Cut& cut : cuts) {
    text += fmt::format("/{}/{}", cut.event, cut.process_only ? kDead : choice_text(cut.choice));
  }
  return text;
}

std::optional<StateId> StateId::parse(const std::string& text) {
  StateId id;
  std::string_view rest = text;
  std::string_view run = take(rest, '/');
  id.scenario = take(run, ':');
  if (!to_number(run, id.seed)) return std::nullopt;
  while (!rest.empty()) {
    Cut cut;
    uint64_t event = 0;
    if (!to_number(take(rest, '/'), event)) return std::nullopt;
    cut.event = event;
    const std::string_view choice = take(rest, '/');
    cut.process_only = choice == kDead;
    if (!cut.process_only && !to_choice(choice, cut.choice)) return std::nullopt;
    id.cuts.push_back(std::move(cut));
  }
  if (id.cuts.empty() || id.cuts.back().process_only) return std::nullopt;
  return id;
}

}  // namespace pmstore::crash
