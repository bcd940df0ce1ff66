// The limits of the modelled machine: the link of the server, and the media of its DIMMs.
#pragma once

#include <optional>

#include "model/parameters.h"
#include "tools/bench/micro_place.h"

namespace pmstore::tools {

// The lower of both. The media count only where caches and buffers cannot hide them: for reads and
// writes of nvm at random addresses of a range that is many times the last-level cache.
std::optional<MicroLimit> modelled_limit(const model::Parameters& parameters,
                                         const MicroPoint& point);

}  // namespace pmstore::tools
