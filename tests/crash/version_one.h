// A log area of version 1, which knows no identities: as that version leaves it, and the parts that
// it may still see. Written byte for byte, without the product's checksums of slots.
#pragma once

#include "base/result.h"
#include "persist/pool.h"

namespace pmstore::log {

// Rewrites the pool's log area as version 1 would have made it. None of its logs may have an
// identity, and no program may have it open.
void make_version_one(persist::Pool& pool);
// Damaged: a program of version 1 would open the area, and take a log's slot for damaged. Nothing
// to say where there is no area.
Status check_version_one(persist::Pool& pool);

}  // namespace pmstore::log
