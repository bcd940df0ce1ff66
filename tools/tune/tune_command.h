// pmstore tune counters | advise. Adds itself to `app`, as the commands of commands.h.
#pragma once

namespace CLI {
class App;
}

namespace pmstore::tools {

struct Invocation;

void add_tune_commands(CLI::App& app, Invocation& invocation);
// Their parts.
void add_tune_counters(CLI::App& tune, Invocation& invocation);
void add_tune_advise(CLI::App& tune, Invocation& invocation);

}  // namespace pmstore::tools
