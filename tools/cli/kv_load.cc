// pmstore kv load
#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "pmstore/batch_writer.h"
#include "tools/cli/bytes_text.h"
#include "tools/cli/command_line.h"
#include "tools/cli/kv_session.h"

namespace pmstore::tools {
namespace {

// The records of a file, a line each.
class RecordLines {
 public:
  explicit RecordLines(const std::string& file)
      : file_(file == "-" ? stdin : std::fopen(file.c_str(), "rb")), opened_(file_ != stdin) {}
  RecordLines(const RecordLines&) = delete;
  RecordLines& operator=(const RecordLines&) = delete;
  ~RecordLines() {
    std::free(line_);
    if (opened_ && file_ != nullptr) std::fclose(file_);
  }

  bool is_open() const { return file_ != nullptr; }
  // The next record is in key() and value(). NotFound: there is none. InvalidArgument: the line is
  // no record. Io.
  Status next() {
    errno = 0;
    const ssize_t bytes = ::getline(&line_, &room_, file_);
    if (bytes < 0) {
      if (std::feof(file_) != 0) return make_error(ErrorCode::kNotFound);
      return make_error(ErrorCode::kIo, std::strerror(errno));
    }
    ++number_;
    std::string_view line(line_, static_cast<size_t>(bytes));
    if (line.ends_with('\n')) line.remove_suffix(1);
    const size_t tab = line.find('\t');
    if (tab == std::string_view::npos) return wrong("it has no tab between key and value");
    if (const char* why = read_printable(line.substr(0, tab), key_)) return wrong(why);
    if (const char* why = read_printable(line.substr(tab + 1), value_)) return wrong(why);
    const Status sizes = check_sizes(key_, value_);
    return sizes ? Status() : wrong(why_text(sizes.error()));
  }
  const std::string& key() const { return key_; }
  const std::string& value() const { return value_; }

 private:
  Status wrong(std::string_view why) const {
    return make_error(ErrorCode::kInvalidArgument, fmt::format("line {}: {}", number_, why));
  }

  std::FILE* const file_;
  const bool opened_;
  char* line_ = nullptr;  // of getline()
  size_t room_ = 0;
  uint64_t number_ = 0;
  std::string key_;
  std::string value_;
};

base::Task<Result<TableId>> table_to_load(Client& client, const KvOptions& options) {
  auto table = co_await client.open_table(options.table);
  if (table || table.code() != ErrorCode::kUnknownTable) co_return table;
  const TableKind kind = options.ordered ? TableKind::kOrdered : TableKind::kHash;
  co_return co_await client.create_table(options.table, kind);
}

base::Task<Status> load_all(RecordLines& records, BatchWriter& writer) {
  ProgressLine progress;
  uint64_t shown = 0;
  for (;;) {
    Status record = records.next();
    if (!record && record.code() == ErrorCode::kNotFound) break;
    // What stands in front of a wrong line is written.
    if (!record) {
      Status before = co_await writer.flush();
      co_return before ? std::move(record) : std::move(before);
    }
    Status put = co_await writer.put(records.key(), records.value());
    if (!put) co_return std::move(put);
    if (writer.transactions() == shown || !progress.shown()) continue;
    shown = writer.transactions();
    progress.update(fmt::format("{} records", writer.written()));
  }
  co_return co_await writer.flush();
}

base::Task<int> load(Client& client, const KvOptions& options) {
  const std::string what = "kv load into table '" + options.table + "'";
  RecordLines records(options.file);
  if (!records.is_open()) {
    co_return fail_at(kProgram, "kv load", options.file,
                      make_error(ErrorCode::kIo, std::strerror(errno)));
  }
  const auto table = co_await table_to_load(client, options);
  if (!table) co_return fail(kProgram, what, table.error());
  BatchWriter writer(client, *table);
  const auto began = std::chrono::steady_clock::now();
  const Status done = co_await load_all(records, writer);
  if (!done) {
    co_return fail(kProgram, what,
                   fmt::format("{}; the first {} records are written", why_text(done.error()),
                               writer.written()));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (options.session.json) {
    print_json({{"records", writer.written()},
                {"transactions", writer.transactions()},
                {"seconds", took.count()}});
  } else {
    print_text(fmt::format("wrote {} record{} in {} transaction{}\n", writer.written(),
                           writer.written() == 1 ? "" : "s", writer.transactions(),
                           writer.transactions() == 1 ? "" : "s"));
  }
  co_return kDone;
}

}  // namespace

void add_kv_load(CLI::App& kv, Invocation& invocation) {
  auto options = std::make_shared<KvOptions>();
  CLI::App* const command = kv.add_subcommand("load", "write many records, as kv scan prints them");
  command->callback([=, &invocation] {
    invocation.run = [=] { return with_client(*options, "kv load", load); };
  });
  options->session.add_to(*command);
  command->add_option("--table", options->table, "made when it is not there")
      ->capture_default_str();
  command->add_flag("--ordered", options->ordered, "a table that is made is an ordered one");
  command->add_option("FILE", options->file, "the records; - is standard input (default)");
  command->footer(
      "A line has KEY<tab>VALUE, with \\xHH \\\\ \\n \\t \\r for other bytes. A record that is "
      "there "
      "gets the\n"
      "new value. Each transaction takes as many records as the redo log has room for. Behind an\n"
      "error the first records are written, as many as it says; loading all again does no harm.\n"
      "example: pmstore kv load --uri tcp://127.0.0.1:7000 --table accounts accounts.txt\n"
      "         pmstore kv scan --uri tcp://paris:7000 | pmstore kv load --uri "
      "local:/dev/shm/copy");
}

}  // namespace pmstore::tools
