// pmstore fs mount
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/fs_session.h"
#include "tools/mount/mount_program.h"

namespace pmstore::tools {
namespace {

struct MountArguments {
  std::string uri;
  std::string directory;
  std::vector<std::string> options;
  std::string assume_domain;
  double timeout_seconds = 5;
  bool foreground = false;

  // Several -o are one, as for mount(8).
  std::string all_options() const {
    std::string all;
    for (const std::string& one : options) all.append(all.empty() ? "" : ",").append(one);
    return all;
  }
};

int mount(const MountArguments& arguments) {
  MountProgram program;
  program.uri = *fabric::parse_uri(arguments.uri);
  program.directory = arguments.directory;
  program.mount = *parse_mount_options(arguments.all_options());
  program.foreground = arguments.foreground;
  program.files.caller = caller_of_process();
  program.files.atime = program.mount.atime;
  program.files.sync = program.mount.sync;
  program.files.atomic_writes = program.mount.atomic;
  program.files.call_timeout_ns = static_cast<uint64_t>(arguments.timeout_seconds * 1e9);
  program.files.connect_timeout_ns = program.files.call_timeout_ns;
  if (!arguments.assume_domain.empty()) {
    program.files.assume_domain = *persist::parse_domain(arguments.assume_domain);
  }
  // Hard: longer than any machine runs.
  constexpr uint64_t kForEverNs = uint64_t{100} * 365 * 24 * 3600 * 1'000'000'000;
  program.files.reconnect_timeout_ns =
      program.mount.hard ? kForEverNs : static_cast<uint64_t>(program.mount.soft_seconds * 1e9);
  return run_mount(program);
}

}  // namespace

void add_fs_mount(CLI::App& fs, Invocation& invocation) {
  auto arguments = std::make_shared<MountArguments>();
  CLI::App* const command =
      fs.add_subcommand("mount", "make the files a directory of this machine");
  command->add_option("URI", arguments->uri, "the store, as for --uri of other commands")
      ->required()
      ->check(parsed_by(fabric::parse_uri, "URI"));
  command->add_option("DIR", arguments->directory, "where")->required()->check(a_path());
  command
      ->add_option("-o,--options", arguments->options,
                   "options of mount(8), with commas between: ro, nosuid, nodev, noexec, "
                   "allow_other, default_permissions; hard (default) or soft, timeo=SECONDS, "
                   "sync=always (default) or sync=fsync, atomic, single, attr_timeout=SECONDS, "
                   "entry_timeout=SECONDS; may be given several times")
      ->take_all()
      ->allow_extra_args(false)
      ->check(parsed_by(parse_mount_options, "OPTIONS"));
  command->add_flag("-f,--foreground", arguments->foreground,
                    "stay in the foreground, and say when it can be used");
  command
      ->add_option("--assume-domain", arguments->assume_domain,
                   "with local:PATH, treat the pool's memory as this persistence domain instead of "
                   "the detected one: none, adr, eadr")
      ->check(parsed_by(persist::parse_domain, "DOMAIN"));
  command
      ->add_option("--timeout", arguments->timeout_seconds,
                   "seconds to wait for a connection or an answer (default 5)")
      ->check(in_range(0.001, 3600.0));
  command->footer(
      "Goes into the background when the files can be used. `fusermount3 -u DIR`, `umount DIR` or "
      "SIGTERM end it in order.\n"
      "When the server is away, calls wait for it (hard) or fail with EIO after timeo seconds, 10 "
      "by default (soft).\nsingle: nothing else changes the files meanwhile, so the kernel may "
      "keep "
      "them in memory.\nsync=fsync: what overwrites data is durable after fsync, fdatasync or "
      "close, "
      "not after each write.\natomic: each write() of up to 1 MiB happens as a whole or not at "
      "all, "
      "also when the power fails.\nexample: pmstore fs mount tcp://127.0.0.1:7000 /mnt/files");
  command->callback([arguments, &invocation] {
    if (!arguments->assume_domain.empty() &&
        fabric::parse_uri(arguments->uri)->scheme != fabric::Scheme::kLocal) {
      throw CLI::ValidationError("--assume-domain",
                                 "only with local:PATH; a server's domain is given to pmstored");
    }
    invocation.run = [arguments] { return mount(*arguments); };
  });
}

}  // namespace pmstore::tools
