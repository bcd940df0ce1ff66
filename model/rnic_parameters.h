// The parameters of the network side: RNIC, link, and what the code under test costs the core that
// runs it. model/internal/rnic_fields.h has bounds and sources. Units as in model/parameters.h.
#pragma once

namespace pmstore::model {

struct RnicParameters {
  // Latency of one message through the RNIC, each pass.
  double pipeline_ns = 60;
  // What one message keeps the sending side busy for.
  double tx_ns = 15.4;
  // What one message keeps the receiving side busy for.
  double rx_write_ns = 16.7;       // one-sided, below 64 B
  double rx_write_line_ns = 22.2;  // one-sided, from 64 B on
  double rx_read_ns = 23;
  double rx_two_sided_ns = 18.5;  // WRITE with immediate
  double atomic_ns = 41.7;        // of the atomics unit
  double atomic_slots = 4096;  // words whose addresses agree in this many slots exclude each other
  double inline_bytes = 188;   // payload that the CPU puts into the WQE
  double blueflame_bytes = 256;     // a lone WQE up to this size needs no fetch
  double send_queue_wqes = 1024;    // per QP
  double receive_queue = 1024;      // immediates that wait for the target's CPU, per QP
  double reads_per_qp = 16;         // outstanding READs and atomics
  double rx_buffer_bytes = 131072;  // requests that have not gone to PCIe; full: the wire waits
  // How long an acknowledged WRITE may stay in that buffer before it is posted on PCIe, unless a
  // later READ, atomic or immediate of its QP pushes it out.
  double hold_ns = 0;
  double receiver_not_ready_ns = 10000;  // a full receive queue is tried again after this
  double fetch_ns = 60;  // of a WQE or a cache entry, in the host, beyond PCIe: it is in its cache
  double connect_ns = 100000;  // of a connection through the connection manager
  // The cache on the chip.
  double cache_bytes = 2097152;
  double qp_bytes = 375;
  double wqe_bytes = 64;
  double translation_bytes = 8;  // per page
  double protection_bytes = 64;  // per region
  double page_bytes = 2097152;
  double misses_at_once = 8;  // that are fetched from the host at the same time
};

struct LinkParameters {
  double latency_ns = 260;     // one way: both transceivers, cables and one switch
  double bytes_per_ns = 12.5;  // each way
  double mtu_bytes = 4096;
  double header_bytes = 98;  // per packet; an acknowledgement is one header
};

// What the CPU is charged for, beyond its accesses to memory that somebody watches.
struct CoreParameters {
  double doorbell_ns = 80;  // the MMIO write of a post
  double wqe_ns = 20;       // building one WQE
  double poll_ns = 40;      // taking one CQE and resuming who waits for it
  double message_ns = 230;  // handling one message: decoding, looking up, building the answer
};

}  // namespace pmstore::model
