// The subcommands of pmstore. Each adds itself to `app`; what the user chose ends up in
// `invocation`, which must outlive the parsing.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/session_options.h"

namespace pmstore::tools {

inline constexpr std::string_view kProgram = "pmstore";

void add_pool_commands(CLI::App& app, Invocation& invocation);
void add_kv_commands(CLI::App& app, Invocation& invocation);
// Adds `kv txn` to `kv`.
void add_kv_txn(CLI::App& kv, Invocation& invocation);
// Add themselves to `bench`.
void add_bench_kv(CLI::App& bench, Invocation& invocation);
void add_bench_smallbank(CLI::App& bench, Invocation& invocation);
void add_bench_micro(CLI::App& bench, Invocation& invocation);
void add_bench_persist(CLI::App& bench, Invocation& invocation);

}  // namespace pmstore::tools
