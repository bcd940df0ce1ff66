#include "model/parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <fstream>
#include <sstream>

namespace pmstore::model {
namespace {

// Calls visit(name, field, least, most, source) for every field.
template <typename P, typename Visit>
void visit_dimm(P& p, Visit&& visit) {
  visit("dimm.per_socket", p.dimm.per_socket, 1, 64, "published: six DIMMs on a socket");
  visit("dimm.interleave_bytes", p.dimm.interleave_bytes, 256, 1 << 30,
        "published: 4 KiB interleave");
  visit("dimm.media_write_ns", p.dimm.media_write_ns, 0.01, 1e6,
        "derived: 100 Gb/s written per socket = 52 M XPLines/s over six DIMMs");
  visit("dimm.media_read_ns", p.dimm.media_read_ns, 0.01, 1e6,
        "derived: 320 Gb/s read per socket = 156 M XPLines/s over six DIMMs");
  visit("dimm.read_write_turn_ns", p.dimm.read_write_turn_ns, 0, 1e6,
        "fitted: one-sided 16 B writes with H1, 30 M/s");
  visit("dimm.read_latency_ns", p.dimm.read_latency_ns, 0, 1e6,
        "published: 271 ns for a read by the CPU, less what the way to the DIMM takes");
  visit("dimm.combining_lines", p.dimm.combining_lines, 1, 1 << 20,
        "published: about 16 KiB of write combining per DIMM");
}

template <typename P, typename Visit>
void visit_all(P& p, Visit&& visit) {
  visit_dimm(p, visit);
}

std::string fields_of(const Parameters& parameters, const std::string& section) {
  std::string names;
  for (const ParameterInfo& info : describe(parameters)) {
    if (!info.name.starts_with(section + ".")) continue;
    if (!names.empty()) names += ", ";
    names += info.name.substr(section.size() + 1);
  }
  return names;
}

std::string sections_of(const Parameters& parameters) {
  std::vector<std::string> sections;
  for (const ParameterInfo& info : describe(parameters)) {
    const std::string section = info.name.substr(0, info.name.find('.'));
    if (sections.empty() || sections.back() != section) sections.push_back(section);
  }
  return fmt::format("{}", fmt::join(sections, ", "));
}

Status set_field(Parameters& parameters, const std::string& section, const std::string& field,
                 const toml::node& node, const std::string& origin) {
  const std::string name = section + "." + field;
  const auto value = node.value<double>();
  Status result =
      make_error(ErrorCode::kInvalidArgument,
                 fields_of(parameters, section).empty()
                     ? fmt::format("{}: there is no section [{}]; use one of {}", origin, section,
                                   sections_of(parameters))
                     : fmt::format("{}: there is no parameter {}; section [{}] has {}", origin,
                                   name, section, fields_of(parameters, section)));
  visit_all(parameters, [&](std::string_view known, double& place, double least, double most,
                            std::string_view) {
    if (known != name) return;
    if (!value || !(*value >= least && *value <= most)) {
      result = make_error(
          ErrorCode::kInvalidArgument,
          fmt::format("{}: {} must be a number from {} to {}", origin, name, least, most));
      return;
    }
    place = *value;
    result = {};
  });
  return result;
}

}  // namespace

std::vector<std::string> parameter_set_names() { return {"optane-cx5"}; }

Result<Parameters> named_parameters(std::string_view name) {
  Parameters parameters;
  parameters.name = name;
  if (name == "optane-cx5") return parameters;
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("there is no machine '{}' to model; use {}", name,
                                fmt::join(parameter_set_names(), ", ")));
}

Status override_parameters_text(Parameters& parameters, std::string_view text,
                                const std::string& origin) {
  Parameters changed = parameters;
  try {
    const toml::table file = toml::parse(text);
    for (const auto& [section, node] : file) {
      const toml::table* fields = node.as_table();
      if (fields == nullptr) {
        return make_error(ErrorCode::kInvalidArgument,
                          fmt::format("{}: '{}' is not in a section; write it under one of {}",
                                      origin, section.str(), sections_of(parameters)));
      }
      for (const auto& [field, value] : *fields) {
        PMSTORE_TRY_STATUS(set_field(changed, std::string(section.str()), std::string(field.str()),
                                     value, origin));
      }
    }
  } catch (const toml::parse_error& error) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}, line {}: {}", origin, error.source().begin.line, error.description()));
  }
  parameters = changed;
  return {};
}

Status override_parameters(Parameters& parameters, const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  if (!file || !(text << file.rdbuf())) {
    return make_error(ErrorCode::kIo, fmt::format("{} cannot be read; name a TOML file", path));
  }
  return override_parameters_text(parameters, text.str(), path);
}

std::vector<ParameterInfo> describe(const Parameters& parameters) {
  std::vector<ParameterInfo> all;
  visit_all(parameters, [&](std::string_view name, const double& value, double, double,
                            std::string_view source) {
    all.push_back({std::string(name), value, std::string(source)});
  });
  return all;
}

}  // namespace pmstore::model
