// The subcommands of pmstore. Each adds itself to `app`; what the user chose ends up in
// `invocation`, which must outlive the parsing.
#pragma once

#include <string_view>

namespace CLI {
class App;
}

namespace pmstore::tools {

struct Invocation;

inline constexpr std::string_view kProgram = "pmstore";

void add_pool_commands(CLI::App& app, Invocation& invocation);
// Adds itself to `pool`.
void add_pool_convert(CLI::App& pool, Invocation& invocation);
void add_pool_limit(CLI::App& pool, Invocation& invocation);
void add_kv_commands(CLI::App& app, Invocation& invocation);
void add_table_commands(CLI::App& app, Invocation& invocation);
void add_log_commands(CLI::App& app, Invocation& invocation);
void add_fs_commands(CLI::App& app, Invocation& invocation);
// Adds itself to `fs`.
void add_fs_mount(CLI::App& fs, Invocation& invocation);
// Add themselves to `kv`.
void add_kv_load(CLI::App& kv, Invocation& invocation);
void add_kv_scan(CLI::App& kv, Invocation& invocation);
void add_kv_erase_range(CLI::App& kv, Invocation& invocation);
void add_kv_txn(CLI::App& kv, Invocation& invocation);
// Add themselves to `bench`.
void add_bench_fs(CLI::App& bench, Invocation& invocation);
void add_bench_kv(CLI::App& bench, Invocation& invocation);
void add_bench_log(CLI::App& bench, Invocation& invocation);
void add_bench_smallbank(CLI::App& bench, Invocation& invocation);
void add_bench_ycsb(CLI::App& bench, Invocation& invocation);
void add_bench_micro(CLI::App& bench, Invocation& invocation);
void add_bench_msync(CLI::App& bench, Invocation& invocation);
void add_bench_persist(CLI::App& bench, Invocation& invocation);

// Of a running server.
void add_stat_command(CLI::App& app, Invocation& invocation);
void add_session_commands(CLI::App& app, Invocation& invocation);
void add_tx_commands(CLI::App& app, Invocation& invocation);

void add_ddio_commands(CLI::App& app, Invocation& invocation);

}  // namespace pmstore::tools
