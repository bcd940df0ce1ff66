// Provider: libfabric's `shm` (FI_EP_RDM), opened once per device.
//
// Owns the fabric and the domain; endpoints, queues and regions are opened on them and must be
// closed first. One thread (FI_THREAD_DOMAIN). Set-up only: nothing here is on the data path.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <memory>
#include <string>

#include "base/result.h"
#include "fabric/ofi/internal/libfabric.h"

namespace pmstore::fabric::ofi {

// The interface that this code was written and tested against.
inline constexpr uint32_t kApiVersion = FI_VERSION(1, 17);

struct FidCloser {
  template <typename Fid>
  void operator()(Fid* fid) const {
    fi_close(&fid->fid);
  }
};
template <typename Fid>
using FidPtr = std::unique_ptr<Fid, FidCloser>;

struct InfoFree {
  void operator()(fi_info* info) const { Libfabric::loaded().freeinfo(info); }
};
using InfoPtr = std::unique_ptr<fi_info, InfoFree>;

// An Io error: "`what`: libfabric's text; `remedy`". `code` is negative, as libfabric returns it.
Error ofi_error(const std::string& what, ssize_t code, const std::string& remedy);

class Provider {
 public:
  // Unsupported when libfabric has no such provider here.
  static Result<std::unique_ptr<Provider>> open();

  const fi_info& info() const { return *info_; }
  fid_fabric* fabric() const { return fabric_.get(); }
  fid_domain* domain() const { return domain_.get(); }

 private:
  explicit Provider(InfoPtr info) : info_(std::move(info)) {}

  InfoPtr info_;
  FidPtr<fid_fabric> fabric_;
  FidPtr<fid_domain> domain_;
};

}  // namespace pmstore::fabric::ofi
