// Nobody dies, or only who is said to be gone: what a replicated log refuses (too few members that
// would stay, members that cannot be asked, another log of that name), decisions that were left
// half recorded, and producers that take the log from each other, or open it while a member is
// added, at every distance. All is checked in the life itself; its trace is empty.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tests/crash/life.h"

namespace pmstore::crash {

std::unique_ptr<Life> replica_decisions_life(const std::string& scenario, uint64_t seed);

}  // namespace pmstore::crash
