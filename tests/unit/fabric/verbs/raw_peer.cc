#include "tests/unit/fabric/verbs/raw_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cstring>

namespace pmstore::fabric::verbs {

namespace {

sockaddr_in address_of(const std::string& host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}

rdma_conn_param parameters(std::span<const std::byte> private_data) {
  rdma_conn_param param{};
  param.private_data = private_data.data();
  param.private_data_len = static_cast<uint8_t>(private_data.size());
  param.responder_resources = 4;
  param.initiator_depth = 4;
  param.retry_count = 7;
  param.rnr_retry_count = 7;
  return param;
}

}  // namespace

RawPeer::RawPeer() : channel_(rdma_create_event_channel()), memory_(8192) {
  rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP);
}

RawPeer::~RawPeer() {
  for (rdma_cm_id* id : {accepted_, id_}) {
    if (id == nullptr) continue;
    if (id->qp != nullptr) rdma_destroy_qp(id);
  }
  if (region_ != nullptr) ibv_dereg_mr(region_);
  if (accepted_ != nullptr) rdma_destroy_id(accepted_);
  rdma_destroy_id(id_);
  rdma_destroy_event_channel(channel_);
}

bool RawPeer::event_comes() {
  constexpr int kSliceMs = 50;
  constexpr int kSlices = 60'000 / kSliceMs;
  for (int slice = 0; slice < kSlices && !given_up_; ++slice) {
    pollfd waiting{channel_->fd, POLLIN, 0};
    if (::poll(&waiting, 1, kSliceMs) > 0) return true;
  }
  return false;
}

bool RawPeer::wait_for(rdma_cm_event_type wanted) {
  rdma_cm_event* event = nullptr;
  if (!event_comes() || rdma_get_cm_event(channel_, &event) != 0) return false;
  last_event_ = event->event;
  peer_private_data_.clear();
  if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) accepted_ = event->id;
  if (event->param.conn.private_data != nullptr) {
    const auto* data = static_cast<const std::byte*>(event->param.conn.private_data);
    peer_private_data_.assign(data, data + event->param.conn.private_data_len);
  }
  rdma_ack_cm_event(event);
  return last_event_ == wanted;
}

void RawPeer::make_queue_pair(rdma_cm_id* id) {
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.cap = {.max_send_wr = 4,
              .max_recv_wr = 4,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  rdma_create_qp(id, nullptr, &init);
  region_ = ibv_reg_mr(id->pd, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE);
  ibv_sge piece{reinterpret_cast<uint64_t>(memory_.data()), 4200, region_->lkey};
  ibv_recv_wr wr{};
  wr.sg_list = &piece;
  wr.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  ibv_post_recv(id->qp, &wr, &refused);
}

bool RawPeer::resolve(const std::string& host, uint16_t port) {
  sockaddr_in address = address_of(host, port);
  if (rdma_resolve_addr(id_, nullptr, reinterpret_cast<sockaddr*>(&address), 60'000) != 0 ||
      !wait_for(RDMA_CM_EVENT_ADDR_RESOLVED) || rdma_resolve_route(id_, 60'000) != 0) {
    return false;
  }
  return wait_for(RDMA_CM_EVENT_ROUTE_RESOLVED);
}

bool RawPeer::connect(std::span<const std::byte> private_data) {
  make_queue_pair(id_);
  rdma_conn_param param = parameters(private_data);
  return rdma_connect(id_, &param) == 0 && wait_for(RDMA_CM_EVENT_ESTABLISHED);
}

bool RawPeer::send(std::span<const std::byte> message) {
  std::copy(message.begin(), message.end(), memory_.begin() + 4200);
  ibv_sge piece{reinterpret_cast<uint64_t>(memory_.data() + 4200),
                static_cast<uint32_t>(message.size()), region_->lkey};
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  ibv_send_wr* refused = nullptr;
  if (ibv_post_send(id_->qp, &wr, &refused) != 0) return false;
  ibv_wc wc{};
  while (ibv_poll_cq(id_->send_cq, 1, &wc) == 0) {
  }
  return wc.status == IBV_WC_SUCCESS;
}

uint16_t RawPeer::listen(const std::string& host) {
  sockaddr_in address = address_of(host, 0);
  if (rdma_bind_addr(id_, reinterpret_cast<sockaddr*>(&address)) != 0) return 0;
  if (rdma_listen(id_, 1) != 0) return 0;
  return ntohs(rdma_get_src_port(id_));
}

bool RawPeer::accept_one(std::span<const std::byte> private_data) {
  if (!wait_for(RDMA_CM_EVENT_CONNECT_REQUEST)) return false;
  make_queue_pair(accepted_);
  rdma_conn_param param = parameters(private_data);
  return rdma_accept(accepted_, &param) == 0 && wait_for(RDMA_CM_EVENT_ESTABLISHED);
}

}  // namespace pmstore::fabric::verbs
