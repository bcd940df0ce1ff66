// pmstore doctor, the check-up of a machine. Adds itself to `app`, as the commands of commands.h.
#pragma once

namespace CLI {
class App;
}

namespace pmstore::tools {

struct Invocation;

void add_doctor_command(CLI::App& app, Invocation& invocation);

}  // namespace pmstore::tools
