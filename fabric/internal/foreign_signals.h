// libfabric brings in libraries of other fabrics (psm, psm2) whose constructors take over SIGSEGV,
// SIGBUS, SIGILL, SIGABRT, SIGINT and SIGTERM: a crash then ends with exit status 1 and a file in
// the working directory instead of a core dump, and Ctrl-C ends with their exit status.
#pragma once

namespace pmstore::fabric::internal {

// Gives those signals their default action again where the handler is one of those libraries'; what
// the program itself has installed stays. Any thread.
void drop_foreign_signal_handlers();

}  // namespace pmstore::fabric::internal
