// SIGBUS: what a program gets that touches memory of a pool which cannot be had: the file system of
// a sparse pool is full, its file was cut short, or the medium lost data.
#pragma once

namespace pmstore::persist {

// From now on such a program ends with status 1 and one line on standard error that names the pool,
// the byte in it, the reason and what to do. Nothing can be put in order then: it ends like by a
// power cut, and what was acknowledged is there at the next opening. `program` is the first word of
// that line; it must live as long as the program. For main(): a library installs no signal
// handlers.
void explain_bus_errors(const char* program);

}  // namespace pmstore::persist
