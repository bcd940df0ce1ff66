// ModelDevice: the fabric provider of a modelled host, for one of its cores.
//
// It decorates a device of the local provider: peers are found by name, local:NAME, among the
// modelled hosts of one Cluster. Connecting takes rnic.connect_ns. Made by a HostCore; must be
// destroyed before its Cluster. Threads: the executor's.
#pragma once

#include <cstdint>
#include <memory>

#include "fabric/device.h"
#include "fabric/local/local_device.h"

namespace pmstore::model {

class Cluster;
class Core;
class Host;
class ModelConnection;
class ModelDevice;
class Rnic;

// Memory that a modelled RNIC may access. It is DRAM of its core's socket, unless its owner has
// placed it (Host::place_nvm) before it was registered.
class ModelRegion final : public fabric::MemoryRegion {
 public:
  ModelRegion(ModelDevice& device, std::unique_ptr<fabric::MemoryRegion> inner,
              fabric::Access access);
  ~ModelRegion() override;
  const ModelDevice& device() const { return device_; }

 private:
  ModelDevice& device_;
  std::unique_ptr<fabric::MemoryRegion> inner_;
};

class ModelDevice final : public fabric::Device {
 public:
  ModelDevice(Cluster& cluster, Host& host, Core& core, Rnic& rnic);
  ~ModelDevice() override;

  Result<std::unique_ptr<fabric::MemoryRegion>> register_memory(std::span<std::byte> memory,
                                                                fabric::Access access) override;
  base::Task<Result<std::unique_ptr<fabric::Connection>>> connect(
      fabric::Uri uri, fabric::ConnectOptions options) override;
  Result<std::unique_ptr<fabric::Listener>> listen(const fabric::Uri& uri,
                                                   fabric::Acceptor& acceptor) override;
  base::Task<Result<std::unique_ptr<fabric::Connection>>> loopback() override;

  Cluster& cluster() { return cluster_; }
  Host& host() { return host_; }
  Core& core() { return core_; }
  Rnic& rnic() { return rnic_; }
  uint32_t number() const { return number_; }  // unique in the cluster
  const fabric::LocalDevice* inner() const { return inner_.get(); }

  // The modelled end around a local one; null when its peer is no modelled device of this cluster.
  std::unique_ptr<ModelConnection> adopt(std::unique_ptr<fabric::Connection> local);

 private:
  Cluster& cluster_;
  Host& host_;
  Core& core_;
  Rnic& rnic_;
  std::unique_ptr<fabric::LocalDevice> inner_;
  uint32_t number_;
};

}  // namespace pmstore::model
