#include "model/parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "model/internal/rnic_fields.h"

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
  visit("dimm.buffer_latency_ns", p.dimm.buffer_latency_ns, 0, 1e6,
        "derived: 169 ns sequential against 305 ns random, three of four in the buffer");
  visit("dimm.combining_lines", p.dimm.combining_lines, 1, 1 << 20,
        "published: about 16 KiB of write combining per DIMM");
  visit("dimm.media_queue", p.dimm.media_queue, 1, 1 << 20,
        "assumed: some, so that reads and merging go on while the media writes");
  visit("dimm.crowd_begin", p.dimm.crowd_begin, 0, 250, "published: 4 threads lose nothing");
  visit("dimm.crowd_full", p.dimm.crowd_full, 1, 250, "published: 20 threads on one DIMM");
  visit("dimm.crowd_loss", p.dimm.crowd_loss, 0, 0.99,
        "published: 37% less with 20 threads than with 4; empirical, the cause is unknown");
}

template <typename P, typename Visit>
void visit_memory(P& p, Visit&& visit) {
  visit("imc.write_queue", p.imc.write_queue, 1, 1 << 20,
        "assumed: some tens of lines; bulk writes with DDIO depend on it");
  visit("imc.request_ns", p.imc.request_ns, 0, 1e6,
        "derived: 64 bytes on a 2,666 MT/s bus of 8 bytes");
  visit("dram.channels", p.dram.channels, 1, 64,
        "assumed: six channels, as many as there are Optane DIMMs");
  visit("dram.line_ns", p.dram.line_ns, 0, 1e6, "derived: 64 bytes on a 2,666 MT/s bus of 8 bytes");
  visit("dram.latency_ns", p.dram.latency_ns, 0, 1e6,
        "derived: 82 ns for a read by the CPU, less llc.hit_ns");
  visit("llc.kib", p.llc.kib, 1, 1 << 20, "assumed: 24 cores with 1.375 MiB each");
  visit("llc.ways", p.llc.ways, 1, 12,
        "published: Intel's optimization manual, Skylake server: 11 ways");
  visit("llc.ddio_ways", p.llc.ddio_ways, 1, 12,
        "published: Intel's default for DDIO is two ways of the cache");
  visit("llc.hit_ns", p.llc.hit_ns, 0, 1e6, "assumed: a third of a read of DRAM, at most");
  visit("llc.second_oldest", p.llc.second_oldest, 0, 1,
        "fitted: write amplification of bulk one-sided writes with DDIO, about 2");
  visit("numa.latency_ns", p.numa.latency_ns, 0, 1e6, "assumed: no row depends on it");
  visit("numa.read_line_ns", p.numa.read_line_ns, 0, 1e6,
        "assumed: one link of 20 GB/s; no row depends on it");
  visit("numa.full_line_ns", p.numa.full_line_ns, 0, 1e6,
        "published: half of 100 Gb/s for writes to the other socket");
  visit("numa.owned_line_ns", p.numa.owned_line_ns, 0, 1e6,
        "fitted: one-sided 16 B writes, nothing applied, 15 M/s");
}

template <typename P, typename Visit>
void visit_processor(P& p, Visit&& visit) {
  visit("pcie.latency_ns", p.pcie.latency_ns, 0, 1e6,
        "fitted: one-sided round trip of 2 us, WRITE+READ of 3 us");
  visit("pcie.bytes_per_ns", p.pcie.bytes_per_ns, 0.01, 1e6,
        "published: PCIe 3.0 specification: 16 lanes of 8 GT/s with 128b/130b");
  visit("pcie.max_payload_bytes", p.pcie.max_payload_bytes, 64, 4096, "assumed: what servers set");
  visit("pcie.header_bytes", p.pcie.header_bytes, 0, 256,
        "published: PCIe 3.0 specification: a 64-bit memory request, 16 of header, 10 of framing, "
        "sequence and CRC");
  visit("pcie.posted_lines", p.pcie.posted_lines, 1, 1 << 20,
        "assumed: enough to keep six DIMMs busy; several rows depend on it");
  visit("cpu.cores_per_socket", p.cpu.cores_per_socket, 1, 120, "assumed: 24 cores");
  visit("cpu.private_hit_ns", p.cpu.private_hit_ns, 0, 1e6, "assumed: a hit in the first level");
  visit("cpu.store_ns", p.cpu.store_ns, 0, 1e6, "assumed: a few cycles");
  visit("cpu.fill_buffers", p.cpu.fill_buffers, 1, 1 << 16,
        "assumed: 12 line fill buffers, as Skylake is said to have");
  visit("cpu.write_back_ns", p.cpu.write_back_ns, 0, 1e6,
        "derived: 62 ns for a store, clwb and sfence");
  visit("cpu.bypassed_ns", p.cpu.bypassed_ns, 0, 1e6,
        "fitted: two-sided peak with DDIO off, 23 M/s; empirical");
  visit("cpu.streaming_ns", p.cpu.streaming_ns, 0, 1e6,
        "derived: 90 ns for a streaming store and sfence");
}

template <typename P, typename Visit>
void visit_all(P& p, Visit&& visit) {
  visit_dimm(p, visit);
  visit_memory(p, visit);
  visit_processor(p, visit);
  internal::visit_network(p, visit);
}

// Counts and sizes are whole numbers; times, rates and shares need not be.
bool is_whole(std::string_view name) {
  return !name.ends_with("_ns") && name != "dimm.crowd_loss" && name != "llc.second_oldest";
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
  visit_all(parameters, [&](std::string_view known, double& parameter, double least, double most,
                            std::string_view) {
    if (known != name) return;
    if (!value || !(*value >= least && *value <= most)) {
      result = make_error(
          ErrorCode::kInvalidArgument,
          fmt::format("{}: {} must be a number from {} to {}", origin, name, least, most));
      return;
    }
    if (is_whole(name) && *value != std::floor(*value)) {
      result = make_error(ErrorCode::kInvalidArgument,
                          fmt::format("{}: {} = {} must be a whole number from {} to {}", origin,
                                      name, *value, least, most));
      return;
    }
    parameter = *value;
    result = {};
  });
  return result;
}

// What single bounds do not say.
Status check_together(const Parameters& p, const std::string& origin) {
  const auto wrong = [&](std::string what) {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", origin, what));
  };
  if (std::fmod(p.dimm.interleave_bytes, 256) != 0) {
    return wrong(fmt::format("dimm.interleave_bytes = {} must be a multiple of 256, like 4096",
                             p.dimm.interleave_bytes));
  }
  if (p.dimm.crowd_full <= p.dimm.crowd_begin) {
    return wrong(fmt::format("dimm.crowd_full = {} must be more than dimm.crowd_begin = {}",
                             p.dimm.crowd_full, p.dimm.crowd_begin));
  }
  if (p.llc.ddio_ways > p.llc.ways) {
    return wrong(fmt::format("llc.ddio_ways = {} must be at most llc.ways = {}", p.llc.ddio_ways,
                             p.llc.ways));
  }
  return {};
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
  PMSTORE_TRY_STATUS(check_together(changed, origin));
  parameters = changed;
  return {};
}

Status override_parameters(Parameters& parameters, const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  // An empty file changes nothing; peek() notices what cannot be read, a folder for instance.
  if (file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (!file.is_open() || file.bad() || !text) {
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
