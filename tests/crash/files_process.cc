#include "tests/crash/files_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "fs/file_area.h"
#include "fs/internal/data_server_records.h"

namespace pmstore::crash {
namespace {

Error error_of(const fs::PosixError& error) {
  return make_error(ErrorCode::kDamaged, error.to_string());
}

}  // namespace

FilesProcess::~FilesProcess() {
  names_.reset();
  keeper_.reset();
  client_.reset();
  server_.reset();
}

Result<std::unique_ptr<FilesProcess>> FilesProcess::open(persist::Pool& pool, persist::Pool* other,
                                                         const Growth& growth) {
  std::unique_ptr<FilesProcess> self(new FilesProcess);
  PMSTORE_TRY_STATUS(self->start(pool, other, growth));
  return self;
}

Status FilesProcess::start(persist::Pool& pool, persist::Pool* other, const Growth& growth) {
  pool_ = &pool;
  PMSTORE_TRY(server_, run(Server::start(executor_, pool, {})));
  PMSTORE_TRY(area_, fs::FileArea::open(pool));
  start_ = area_->start();
  space_ = std::make_unique<LocalAreas>(executor_);
  space_->add(*area_);
  if (other != nullptr) {
    PMSTORE_TRY(const fs::FileArea second, fs::FileArea::open(*other));
    space_->add(second);
  }
  if (growth) {
    data_ = std::make_unique<fs::FileDataService>(space_->at(0));
    server_->host().add(*data_);
    keeper_ = std::make_unique<fs::internal::AreaKeeper>(executor_, pool, *area_, space_->at(0),
                                                         *data_, *growth);
  }
  const fabric::Uri wanted{fabric::Scheme::kLocal,
                           fmt::format("files-{}", reinterpret_cast<uintptr_t>(this)), 0};
  PMSTORE_TRY(address_, run(server_->listen(wanted)));
  // Nothing is random: the same run is the same everywhere.
  ClientOptions connecting;
  connecting.secret = ClientSecret::of_number(1 + area_->start());
  PMSTORE_TRY(client_, run(Client::connect(executor_, address_, connecting)));
  PMSTORE_TRY_STATUS(load_states());
  fs::NamespaceOptions options;
  options.now_ns = [] { return uint64_t{1}; };
  options.identity = 1;
  options.on_damage = [this](const std::string& line) {
    if (damage_.empty()) damage_ = line;
  };
  PMSTORE_TRY(names_, run(fs::Namespace::open(*client_, *space_, options)));
  // As FilesServer.
  if (keeper_) keeper_->begin();
  return {};
}

void FilesProcess::turn() {
  if (!executor_.run_once()) pass(1'000'000);
}

void FilesProcess::pass(uint64_t ns) {
  run([](Executor& executor, uint64_t for_ns) -> base::Task<void> {
    co_await executor.sleep_for(for_ns);
  }(executor_, ns));
}

void FilesProcess::heed(uint16_t server, fs::DataServerState state) {
  const bool drains = state == fs::DataServerState::kDraining;
  space_->set_draining(server, drains);
  if (drains) drained_ = server;
  if (!drains && drained_ == server) drained_.reset();
}

Status FilesProcess::load_states() {
  fs::internal::DataServerRecords records(*client_);
  PMSTORE_TRY(const auto loaded, run(records.load()));
  for (const fs::internal::DataServerEntry& entry : loaded.servers) {
    has_other_ = has_other_ || entry.index == kOther;
    heed(entry.index, entry.state);
  }
  return {};
}

Status FilesProcess::set_state(uint16_t server, fs::DataServerState state) {
  fs::internal::DataServerRecords records(*client_);
  fs::internal::DataServerEntry entry{server, state, 1, space_->at(server).total_bytes(),
                                      "local://other"};
  const bool is_new = server == kOther && !has_other_;
  PMSTORE_TRY_STATUS(run(is_new ? records.add(entry) : records.change(entry)));
  has_other_ = has_other_ || is_new;
  heed(server, state);
  return {};
}

base::Task<Result<std::string>> FilesProcess::content_of_file(fs::Attributes attributes,
                                                              std::string path) {
  uint64_t digest = 1;
  uint64_t bytes = 0;
  while (bytes < attributes.size) {
    const auto data = co_await names_->read(attributes.ino, bytes, fs::kMaxMessageData);
    if (!data) co_return error_of(data.error());
    digest = base::checksum64(*data, digest);
    bytes += data->size();
  }
  co_return fmt::format("{} mode {:o} links {} size {} data {:x}\n", path, attributes.mode,
                        attributes.links, attributes.size, digest);
}

base::Task<Result<std::string>> FilesProcess::content_of(fs::Ino directory, std::string path) {
  const auto itself = co_await names_->get_attributes(directory);
  if (!itself) co_return error_of(itself.error());
  std::string all = fmt::format("{}/ mode {:o} links {} size {}\n", path, itself->mode,
                                itself->links, itself->size);
  const fs::Caller root;
  uint64_t cookie = 0;
  while (true) {
    const auto page = co_await names_->read_directory(root, directory, cookie, 100, true);
    if (!page) co_return error_of(page.error());
    if (page->empty()) co_return all;
    for (const auto& listed : *page) {
      const std::string below = path + "/" + listed.entry.name;
      if (listed.entry.type == fs::FileType::kDirectory) {
        PMSTORE_CO_TRY(const std::string more, co_await content_of(listed.entry.ino, below));
        all += more;
      } else {
        PMSTORE_CO_TRY(const std::string more, co_await content_of_file(*listed.attributes, below));
        all += more;
      }
    }
    cookie = page->back().entry.cookie;
  }
}

Result<std::string> FilesProcess::content() { return run(content_of(fs::kRootIno, "")); }

Status FilesProcess::check_extents() const {
  std::vector<persist::Extent> all = pool_->info().extents;
  std::sort(all.begin(), all.end(),
            [](const persist::Extent& a, const persist::Extent& b) { return a.offset < b.offset; });
  uint64_t end = 0;
  size_t of_files = 0;
  for (const persist::Extent& extent : all) {
    if (extent.offset < end) {
      return make_error(ErrorCode::kDamaged,
                        fmt::format("two extents have the bytes at {}", extent.offset));
    }
    end = extent.offset + extent.bytes;
    of_files += extent.kind == persist::ExtentKind::kFileData ? 1 : 0;
  }
  const auto& sections = area_->sections();
  const bool is_each_there = std::all_of(sections.begin(), sections.end(), [&](const auto& one) {
    return std::any_of(all.begin(), all.end(), [&](const persist::Extent& each) {
      return each.offset == one.extent.offset && each.bytes == one.extent.bytes &&
             each.entry == one.extent.entry && each.generation == one.extent.generation;
    });
  });
  if (is_each_there && of_files == sections.size()) return {};
  return make_error(ErrorCode::kDamaged, "extents of file data are not those of the area");
}

Status FilesProcess::check_none_is_empty() const {
  for (const fs::AreaSection& section : area_->sections()) {
    if (section.first_unit == 0 || !space_->at(0).is_empty_section(section.first_unit)) continue;
    return make_error(ErrorCode::kDamaged,
                      fmt::format("the section at {} is empty and stays", section.begin()));
  }
  return {};
}

Status FilesProcess::check() {
  if (!damage_.empty()) return make_error(ErrorCode::kDamaged, "start: " + damage_);
  PMSTORE_TRY_STATUS(check_extents());
  for (int turn = 0, quiet = 0; quiet < 20 && turn < 10'000; ++turn) {
    quiet = executor_.run_once() ? 0 : quiet + 1;
  }
  PMSTORE_TRY(const fs::NamespaceFindings found,
              run(fs::check_namespace(*client_, {{0, 0, space_->at(0).end()}}, false)));
  if (found.found > 0) return make_error(ErrorCode::kDamaged, "check: " + found.damage.front());
  const auto usage = run(names_->usage());
  if (!usage) return error_of(usage.error());
  if (usage->quarantined_bytes != 0) {
    return make_error(ErrorCode::kDamaged, "a quarantine does not end");
  }
  if (usage->inodes != found.inodes) {
    return make_error(ErrorCode::kDamaged, fmt::format("{} inodes are counted, there are {}",
                                                       usage->inodes, found.inodes));
  }
  return check_free_units();
}

// Taking all that is free shows it.
Status FilesProcess::check_free_units() {
  std::vector<fs::AreaRange> taken;
  Status zero;
  for (uint16_t server = 0; server < space_->servers(); ++server) {
    while (auto range = space_->allocate(server, fs::kUnitBytes, fs::kUnitBytes)) {
      taken.push_back(*range);
      const std::span<const std::byte> bytes(
          space_->at(server).bytes_at(range->offset, range->bytes), range->bytes);
      if (std::any_of(bytes.begin(), bytes.end(), [](std::byte b) { return b != std::byte{0}; })) {
        zero = make_error(ErrorCode::kDamaged, fmt::format("the free unit at {} of {} is not zero",
                                                           range->offset, server));
      }
    }
  }
  for (const fs::AreaRange& range : taken) space_->give_back(range);
  return zero;
}

}  // namespace pmstore::crash
