#include "fabric/ofi/internal/provider.h"

#include <stdlib.h>

#include <cstring>

#include "fabric/ofi/internal/kept_signals.h"

namespace pmstore::fabric::ofi {

Error ofi_error(const std::string& what, ssize_t code, const std::string& remedy) {
  return make_error(
      ErrorCode::kIo,
      what + ": " + Libfabric::loaded().strerror(static_cast<int>(-code)) + "; " + remedy);
}

namespace {

InfoPtr hints() {
  InfoPtr hints(Libfabric::loaded().dupinfo(nullptr));  // an empty one
  if (!hints) return hints;
  hints->fabric_attr->prov_name = strdup("shm");
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_MSG | FI_RMA;
  // Remote addresses are offsets into the region: no pointer of ours leaves the process, and shm's
  // way around the target's checks (it needs FI_MR_VIRT_ADDR and no ordering) stays closed.
  hints->domain_attr->mr_mode = 0;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->tx_attr->msg_order =
      FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAW | FI_ORDER_SAS | FI_ORDER_SAW;
  // Half of what an endpoint's shared segment would take by default; Batches beyond wait in our
  // queue.
  hints->tx_attr->size = 256;
  hints->rx_attr->size = 256;
  return hints;
}

}  // namespace

Result<std::unique_ptr<Provider>> Provider::open() {
  // With CMA the peer's process would be read behind its back, also after it has closed its
  // endpoint, and it needs ptrace rights, which containers often lack. libfabric reads this once,
  // when it is first used.
  setenv("FI_SHM_DISABLE_CMA", "1", 1);

  PMSTORE_TRY(const Libfabric* const library, Libfabric::load());
  const KeptSignals kept;  // the first fi_getinfo() starts all providers
  InfoPtr wanted = hints();
  fi_info* found = nullptr;
  const int code = wanted ? library->getinfo(kApiVersion, nullptr, nullptr, 0, wanted.get(), &found)
                          : -FI_ENOMEM;
  if (code != 0) {
    return make_error(
        ErrorCode::kUnsupported,
        std::string("libfabric has no 'shm' provider with ordered RMA here (") +
            library->strerror(-code) +
            "); install the libfabric that pmstore was built with and unset FI_PROVIDER");
  }
  std::unique_ptr<Provider> provider(new Provider(InfoPtr(found)));
  const fi_info& info = provider->info();
  if ((info.domain_attr->mr_mode & ~FI_MR_LOCAL) != 0 || info.domain_attr->cq_data_size < 4) {
    return make_error(
        ErrorCode::kUnsupported,
        "libfabric's 'shm' provider wants memory registered in a way that is not implemented; use "
        "the libfabric 1.17 that this was tested with");
  }
  fid_fabric* fabric = nullptr;
  if (int r = library->fabric(info.fabric_attr, &fabric, nullptr); r != 0) {
    return ofi_error("cannot open a libfabric fabric", r, "see FI_LOG_LEVEL=warn");
  }
  provider->fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  if (int r = fi_domain(fabric, provider->info_.get(), &domain, nullptr); r != 0) {
    return ofi_error("cannot open a libfabric domain", r, "see FI_LOG_LEVEL=warn");
  }
  provider->domain_.reset(domain);
  return provider;
}

}  // namespace pmstore::fabric::ofi
