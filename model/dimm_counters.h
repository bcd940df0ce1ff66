// DimmCounters: what an Optane DIMM counts, as the hardware's tools name it. Plain data.
#pragma once

#include <cstdint>

namespace pmstore::model {

// Requests are of 64 B at the controller, media traffic is in XPLines of 256 B.
struct DimmCounters {
  uint64_t read_requests = 0;   // NReadReq
  uint64_t write_requests = 0;  // NWriteReq
  uint64_t media_reads = 0;     // NMediaRead
  uint64_t media_writes = 0;    // NMediaWrite

  // Bytes written to the media for each byte that was asked to be written; 0 without writes.
  double write_amplification() const {
    if (write_requests == 0) return 0;
    return static_cast<double>(media_writes) * 256 / (static_cast<double>(write_requests) * 64);
  }
  DimmCounters& operator+=(const DimmCounters& other) {
    read_requests += other.read_requests;
    write_requests += other.write_requests;
    media_reads += other.media_reads;
    media_writes += other.media_writes;
    return *this;
  }
  DimmCounters operator-(const DimmCounters& other) const {
    return {read_requests - other.read_requests, write_requests - other.write_requests,
            media_reads - other.media_reads, media_writes - other.media_writes};
  }
};

}  // namespace pmstore::model
