// Name, bounds and source of every field of model/rnic_parameters.h, for model/parameters.cc.
#pragma once

namespace pmstore::model::internal {

// visit(name, field, least, most, source), as in model/parameters.cc. P has the sections.
template <typename P, typename Visit>
void visit_rnic_rates(P& p, Visit&& visit) {
  visit("rnic.pipeline_ns", p.rnic.pipeline_ns, 0, 1e6, "fitted: WRITE round trip 2 us");
  visit("rnic.tx_ns", p.rnic.tx_ns, 0, 1e6,
        "published: 130 M WRITE/s by two ConnectX-4 (65 M/s each)");
  visit("rnic.rx_write_ns", p.rnic.rx_write_ns, 0, 1e6, "fitted: 16 B to DRAM, 25% lower after H6");
  visit("rnic.rx_write_line_ns", p.rnic.rx_write_line_ns, 0, 1e6,
        "fitted: 45 M/s one-sided padded to 64 B");
  visit("rnic.rx_read_ns", p.rnic.rx_read_ns, 0, 1e6,
        "published: 87 M READ/s by two ConnectX-4 (43.5 M/s each)");
  visit("rnic.rx_two_sided_ns", p.rnic.rx_two_sided_ns, 0, 1e6,
        "fitted: two-sided peak rate with DDIO, 54 M/s");
  visit("rnic.atomic_ns", p.rnic.atomic_ns, 0, 1e6,
        "published: 48 M ATOMIC/s by two ConnectX-4 (24 M/s each)");
  visit("rnic.atomic_slots", p.rnic.atomic_slots, 1, 1 << 20,
        "assumed: 4,096 locks, chosen by the low bits of the address");
}

template <typename P, typename Visit>
void visit_rnic_queues(P& p, Visit&& visit) {
  visit("rnic.inline_bytes", p.rnic.inline_bytes, 0, 1024,
        "assumed: what mlx5 grants with small WQEs");
  visit("rnic.blueflame_bytes", p.rnic.blueflame_bytes, 0, 4096,
        "published: rdma-core, mlx5: a post of one WQE that fits the BlueFlame register");
  visit("rnic.send_queue_wqes", p.rnic.send_queue_wqes, 32, 1 << 20, "assumed: as fabric/verbs");
  visit("rnic.receive_queue", p.rnic.receive_queue, 1, 1 << 20, "assumed: as fabric/verbs");
  visit("rnic.reads_per_qp", p.rnic.reads_per_qp, 1, 1024,
        "published: what mlx5 reports as max_qp_rd_atom");
  visit("rnic.rx_buffer_bytes", p.rnic.rx_buffer_bytes, 4096, 1 << 30,
        "assumed: order of a port's receive buffer; bounds the backlog only");
  visit("rnic.hold_ns", p.rnic.hold_ns, 0, 1e9,
        "assumed: 0, PCIe alone separates the acknowledgement from the landing");
  visit("rnic.receiver_not_ready_ns", p.rnic.receiver_not_ready_ns, 1, 1e9,
        "published: InfiniBand specification: RNR timers start at 10 us");
  visit("rnic.fetch_ns", p.rnic.fetch_ns, 0, 1e6,
        "derived: the host's part of a PCIe round trip when its cache has the line");
  visit("rnic.connect_ns", p.rnic.connect_ns, 0, 1e9,
        "assumed: order of a connection by the connection manager");
}

template <typename P, typename Visit>
void visit_rnic_cache(P& p, Visit&& visit) {
  visit("rnic.cache_bytes", p.rnic.cache_bytes, 0, 1 << 26, "published: about 2 MiB");
  visit("rnic.qp_bytes", p.rnic.qp_bytes, 8, 4096, "published: about 375 B");
  visit("rnic.wqe_bytes", p.rnic.wqe_bytes, 8, 4096,
        "published: rdma-core, mlx5: WQEs are made of blocks of 64 B");
  visit("rnic.translation_bytes", p.rnic.translation_bytes, 8, 4096,
        "assumed: an address of 8 B per page");
  visit("rnic.protection_bytes", p.rnic.protection_bytes, 8, 4096,
        "published: Linux, mlx5_ifc.h: a memory key has 64 B");
  visit("rnic.page_bytes", p.rnic.page_bytes, 4096, 1 << 30,
        "assumed: huge pages, 2 MiB; with 4 KiB all random writes get slower");
  visit("rnic.misses_at_once", p.rnic.misses_at_once, 1, 1024,
        "assumed: 10,000 QPs then make 11 to 14 M READ/s, where 10 were published");
}

template <typename P, typename Visit>
void visit_link(P& p, Visit&& visit) {
  visit("link.latency_ns", p.link.latency_ns, 0, 1e9, "fitted: WRITE round trip 2 us");
  visit("link.bytes_per_ns", p.link.bytes_per_ns, 1e-6, 1e3, "published: 100 Gb/s");
  visit("link.mtu_bytes", p.link.mtu_bytes, 256, 65536,
        "published: InfiniBand specification: the largest MTU");
  visit("link.header_bytes", p.link.header_bytes, 0, 4096,
        "derived: RoCEv2 with RETH, preamble and gap");
}

template <typename P, typename Visit>
void visit_core(P& p, Visit&& visit) {
  visit("core.doorbell_ns", p.core.doorbell_ns, 0, 1e6,
        "published: a doorbell costs hundreds of CPU cycles");
  visit("core.wqe_ns", p.core.wqe_ns, 0, 1e6, "assumed: about 50 cycles");
  visit("core.poll_ns", p.core.poll_ns, 0, 1e6,
        "assumed: 20 ns for the coroutine, as published, and as much for the CQE");
  visit("core.message_ns", p.core.message_ns, 0, 1e6, "fitted: RPC round trip 2.7 us");
}

template <typename P, typename Visit>
void visit_network(P& p, Visit&& visit) {
  visit_rnic_rates(p, visit);
  visit_rnic_queues(p, visit);
  visit_rnic_cache(p, visit);
  visit_link(p, visit);
  visit_core(p, visit);
}

}  // namespace pmstore::model::internal
