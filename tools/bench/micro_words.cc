#include "tools/bench/micro_words.h"

#include <fmt/format.h>

#include <iterator>

namespace pmstore::tools {
namespace {

std::string plural(uint64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string rules_words(persist::Rules rules) {
  if (rules == persist::Rules::none()) return "no rules";
  if (rules == persist::Rules::all()) return "all rules";
  return "rules " + persist::rules_text(rules);
}

std::string ddio_words(const MicroPoint& point) {
  if (!point.ddio) return "DDIO as the machine is";
  return *point.ddio ? "DDIO on" : "DDIO off";
}

std::string strategy_words(persist::WriteStrategy strategy) {
  std::string words(persist::strategy_name(strategy));
  for (char& c : words) {
    if (c == '_') c = '-';
  }
  return words;
}

struct Words {
  std::string_view parameter;
  std::string (*of)(const MicroPoint& point);
  const char* axis;  // of those with numbers
};

constexpr Words kWords[] = {
    {"op", [](const MicroPoint& p) { return std::string(op_name(p.op)); }, ""},
    {"side", [](const MicroPoint& p) { return fmt::format("{}-sided", side_name(p.side)); }, ""},
    {"medium",
     [](const MicroPoint& p) {
       return std::string(p.medium == MicroMedium::kDram ? "DRAM" : "NVM");
     },
     ""},
    {"pattern", [](const MicroPoint& p) { return std::string(pattern_name(p.pattern)); }, ""},
    {"payload", [](const MicroPoint& p) { return fmt::format("{} B", p.payload_bytes); },
     "payload (bytes; K = 1,024)"},
    {"range",
     [](const MicroPoint& p) { return fmt::format("{}B range", short_bytes(p.range_bytes)); },
     "range of the target memory (bytes; K, M, G = powers of 1,024)"},
    {"clients", [](const MicroPoint& p) { return plural(p.clients, "client", "clients"); },
     "clients (number)"},
    {"connections",
     [](const MicroPoint& p) {
       return plural(p.connections, "connection of each client", "connections of each client");
     },
     "connections of each client (number)"},
    {"window", [](const MicroPoint& p) { return fmt::format("{} outstanding", p.window); },
     "requests outstanding on each connection (number)"},
    {"batch", [](const MicroPoint& p) { return fmt::format("batches of {}", p.batch); },
     "requests in a batch (number)"},
    {"server-threads",
     [](const MicroPoint& p) {
       return plural(p.server_threads, "server thread", "server threads");
     },
     "server threads (number)"},
    {"rules", [](const MicroPoint& p) { return rules_words(p.rules); }, ""},
    {"strategy", [](const MicroPoint& p) { return strategy_words(p.strategy); }, ""},
    {"persistent",
     [](const MicroPoint& p) {
       return std::string(p.persistent ? "persistent" : "not persistent");
     },
     ""},
    {"single-dimm",
     [](const MicroPoint& p) { return std::string(p.single_dimm ? "one DIMM" : "all DIMMs"); }, ""},
    {"ddio", [](const MicroPoint& p) { return ddio_words(p); }, ""},
};

const Words* find_words(std::string_view parameter) {
  for (const Words& words : kWords) {
    if (words.parameter == parameter) return &words;
  }
  return nullptr;
}

}  // namespace

std::string parameter_words(std::string_view parameter, const MicroPoint& point) {
  const Words* const words = find_words(parameter);
  return words == nullptr ? std::string(parameter) : words->of(point);
}

std::string parameter_axis(std::string_view parameter) {
  const Words* const words = find_words(parameter);
  return words == nullptr ? std::string(parameter) : words->axis;
}

std::string short_bytes(uint64_t bytes) {
  constexpr const char* kSuffixes[] = {"", "K", "M", "G", "T"};
  size_t suffix = 0;
  while (bytes >= 1024 && bytes % 1024 == 0 && suffix + 1 < std::size(kSuffixes)) {
    bytes /= 1024;
    ++suffix;
  }
  return fmt::format("{}{}", bytes, kSuffixes[suffix]);
}

}  // namespace pmstore::tools
