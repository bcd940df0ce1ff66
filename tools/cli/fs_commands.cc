// pmstore fs: the subcommands and their options; what they do is in fs_*.cc
#include "tools/cli/command_line.h"
#include "tools/cli/fs_session.h"

namespace pmstore::tools {
namespace {

using Body = base::Task<int> (*)(FileSystem&, const FsOptions&);

CLI::App* add(CLI::App& fs, const std::string& name, const std::string& about, Body body,
              const std::shared_ptr<FsOptions>& options, Invocation& invocation) {
  CLI::App* const command = fs.add_subcommand(name, about);
  command->callback([=, &invocation] {
    invocation.run = [=] { return with_file_system(*options, "fs " + name, body); };
  });
  options->session.add_to(*command);
  return command;
}

void add_paths(CLI::App& command, FsOptions& options, const std::string& about) {
  command.add_option("PATH", options.paths, about)->required()->check(a_path());
}

// At least one source, and where to.
void add_sources(CLI::App& command, FsOptions& options, const std::string& about) {
  command.add_option("FROM... TO", options.paths, about)
      ->required()
      ->expected(2, 1 << 20)
      ->check(a_path());
}

CLI::Validator octal_mode() {
  return CLI::Validator(
      [](std::string& text) {
        const bool good = !text.empty() && text.size() <= 5 &&
                          text.find_first_not_of("01234567") == std::string::npos &&
                          std::stoul(text, nullptr, 8) <= 07777;
        return good ? std::string() : "'" + text + "' is no mode; write it like 755 or 0644";
      },
      "MODE");
}

void add_show(CLI::App& fs, const std::shared_ptr<FsOptions>& options, Invocation& invocation) {
  CLI::App* command = add(fs, "ls", "list directories", list_files, options, invocation);
  command->add_option("PATH", options->paths, "which (default: /)")->check(a_path());
  command->add_flag("-l,--long", options->details, "with mode, links, owner, size and time");
  command->add_flag("-r,--recursive", options->recursive, "and all directories in them");
  command->footer("example: pmstore fs ls --uri tcp://127.0.0.1:7000 -l /photos");

  command = add(fs, "stat", "print what is known of files", show_status, options, invocation);
  add_paths(*command, *options, "of which files");
  command->add_flag("-L,--follow", options->follow, "of what a symlink points to");
  command->footer("example: pmstore fs stat --uri tcp://127.0.0.1:7000 /photos/cat.jpg");

  command = add(fs, "df", "print how much room there is", show_usage, options, invocation);
  command->footer("example: pmstore fs df --uri tcp://127.0.0.1:7000");

  command = add(fs, "du", "print how much room directories take", sum_usage, options, invocation);
  command->add_option("PATH", options->paths, "which (default: /)")->check(a_path());
  command->add_flag("-s,--summary", options->summary, "only the sum, not what is in them");
  command->footer(
      "Prints ALLOCATED<tab>SIZE<tab>PATH a line, in bytes; what lies in inodes is not "
      "allocated.\nexample: pmstore fs du --uri tcp://127.0.0.1:7000 /photos");

  command = add(fs, "find", "print the files of trees", find_files, options, invocation);
  command->add_option("PATH", options->paths, "where to begin (default: /)")->check(a_path());
  command->add_option("--name", options->name, "only names like this pattern of a shell");
  command->add_option("--type", options->type, "only files (f), directories (d), symlinks (l)...")
      ->check(one_of({"f", "d", "l", "p", "s", "c", "b"}));
  command->add_flag("-0,--print0", options->zero_ends,
                    "end each path with a zero byte and escape nothing, for xargs -0");
  command->footer(
      "What cannot be printed is \\xHH.\n"
      "example: pmstore fs find --uri tcp://127.0.0.1:7000 /photos --name '*.jpg'");
}

void add_change(CLI::App& fs, const std::shared_ptr<FsOptions>& options, Invocation& invocation) {
  CLI::App* command = add(fs, "mkdir", "make directories", make_directories, options, invocation);
  add_paths(*command, *options, "which");
  command->add_flag("-p,--parents", options->parents, "and those above it; may be there already");
  command->add_option("--mode", options->mode, "permissions, in octal (default: by the umask)")
      ->check(octal_mode());
  command->footer("example: pmstore fs mkdir --uri tcp://127.0.0.1:7000 -p /photos/2026");

  command = add(fs, "mv", "rename, or move into a directory", move_files, options, invocation);
  add_sources(*command, *options, "what, and where to");
  CLI::Option* const no_replace =
      command->add_flag("-n,--no-replace", options->no_replace, "fail when the target is there");
  command->add_flag("--exchange", options->exchange, "the two change places, atomically")
      ->excludes(no_replace);
  command->footer("example: pmstore fs mv --uri tcp://127.0.0.1:7000 /new.txt /text");

  command = add(fs, "ln", "make a link", link_files, options, invocation);
  command->add_option("TARGET PATH", options->paths, "what it links to, and its own path")
      ->required()
      ->expected(2)
      ->check(a_path());
  command->add_flag("-s,--symbolic", options->symbolic, "a symbolic link; TARGET is any text");
  command->footer("example: pmstore fs ln --uri tcp://127.0.0.1:7000 -s ../text /photos/text");

  command = add(fs, "rm", "remove files, or trees", remove_files, options, invocation);
  add_paths(*command, *options, "which");
  command->add_flag("-r,--recursive", options->recursive, "directories, with all that is in them");
  command->add_flag("-f,--force", options->force, "say nothing of what is not there");
  command->footer("example: pmstore fs rm --uri tcp://127.0.0.1:7000 -r /photos/old");
}

void add_copy(CLI::App& fs, const std::shared_ptr<FsOptions>& options, Invocation& invocation) {
  const auto add_copying = [&](const std::string& name, const std::string& about, Body body,
                               const std::string& paths) {
    CLI::App* const command = add(fs, name, about, body, options, invocation);
    add_sources(*command, *options, paths);
    command->add_flag("-r,--recursive", options->recursive,
                      "directories, with all that is in them; symlinks as they are");
    command->add_flag("-p,--preserve", options->preserve,
                      "keep mode, times, and as root the owner");
    return command;
  };
  add_copying("put", "copy files of this machine into the store", put_files,
              "files of this machine, or - for standard input; then the path in the store")
      ->footer(
          "A copy that fails leaves no part of the file.\n"
          "example: pmstore fs put --uri tcp://127.0.0.1:7000 -r ./photos /photos");
  add_copying("get", "copy files of the store to this machine", get_files,
              "paths in the store; then one of this machine, or - for standard output")
      ->footer(
          "A copy that fails leaves no part of the file.\n"
          "example: pmstore fs get --uri tcp://127.0.0.1:7000 -r /photos ./photos");
  add_copying("cp", "copy files inside the store", copy_files, "what, and where to")
      ->footer("example: pmstore fs cp --uri tcp://127.0.0.1:7000 /a.txt /b.txt");

  CLI::App* const command = add(fs, "cat", "print files", print_files, options, invocation);
  add_paths(*command, *options, "which");
  command->footer("example: pmstore fs cat --uri tcp://127.0.0.1:7000 /text/readme.txt");
}

void add_data(CLI::App& fs, const std::shared_ptr<FsOptions>& options, Invocation& invocation) {
  CLI::App* const data = fs.add_subcommand("data", "servers that have the data of files");
  data->require_subcommand(1);
  data->footer("example: pmstore fs data list --uri tcp://127.0.0.1:7000");

  CLI::App* command = add(*data, "list", "print the data servers, and what they have",
                          list_data_servers, options, invocation);
  command->footer(
      "Prints INDEX STATE USED of SIZE URI a line.\n"
      "example: pmstore fs data list --uri tcp://127.0.0.1:7000");

  command = add(*data, "add", "use one more data server", add_data_server, options, invocation);
  command
      ->add_option("DATA-URI", options->data_uri,
                   "where it listens, as the namespace server and all clients reach it")
      ->required();
  command->footer(
      "It is a pmstored that was started with --data-server on a pool that has --file-bytes.\n"
      "example: pmstore fs data add --uri tcp://127.0.0.1:7000 tcp://127.0.0.1:7001");

  command = add(*data, "drain", "move what a data server has to the others, and let it go",
                drain_data_server, options, invocation);
  command->add_option("INDEX", options->data_server, "its index in the list")->required();
  CLI::Option* const wait = command->add_flag("--wait", options->wait, "until nothing is left");
  command
      ->add_option("--patience", options->patience_s,
                   "seconds without any progress after which --wait fails")
      ->needs(wait)
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  command->add_flag("--undo", options->undo, "use it again, unless it is gone")->excludes(wait);
  command->footer(
      "Files stay in use meanwhile. Server 0, the namespace's own pool, stays and is empty. What\n"
      "cannot be moved is tried again for as long as the server is drained: data list says why.\n"
      "example: pmstore fs data drain --uri tcp://127.0.0.1:7000 --wait 1");
}

}  // namespace

void add_fs_commands(CLI::App& app, Invocation& invocation) {
  CLI::App* const fs = app.add_subcommand("fs", "files: list, copy, change, check, and mount");
  fs->require_subcommand(1);
  fs->footer(
      "Paths in the store are absolute; a / in front may be left out. Files that are made belong "
      "to "
      "the user who runs the command.\n"
      "example: pmstore fs put --uri tcp://127.0.0.1:7000 photo.jpg /photo.jpg");
  auto options = std::make_shared<FsOptions>();
  add_show(*fs, options, invocation);
  add_change(*fs, options, invocation);
  add_copy(*fs, options, invocation);
  add_data(*fs, options, invocation);

  CLI::App* const check = fs->add_subcommand("check", "check names, links, sizes and extents");
  options->session.add_to(*check);
  check->callback(
      [options, &invocation] { invocation.run = [options] { return check_files(*options); }; });
  check->add_flag("--repair", options->repair,
                  "mend what can be mended, and say what was lost; only with --uri local:POOL");
  check->footer(
      "A check may be done while the files are in use; a repair needs a pool that no server has. "
      "The last line is the verdict; damage makes the exit status 1.\n"
      "example: pmstore fs check --uri tcp://127.0.0.1:7000\n"
      "example: pmstore fs check --uri local:/mnt/pmem0/pool --repair");
  add_fs_mount(*fs, invocation);
}

}  // namespace pmstore::tools
