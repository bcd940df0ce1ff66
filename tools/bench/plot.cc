#include "tools/bench/plot.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include "tools/cli/bytes_text.h"

namespace pmstore::tools {
namespace {

// gnuplot's message as one line: the last line that is neither blank nor a position mark.
std::string last_line(std::string_view output) {
  std::string last;
  while (!output.empty()) {
    const size_t end = std::min(output.find('\n'), output.size());
    const std::string_view line = output.substr(0, end);
    output.remove_prefix(std::min(end + 1, output.size()));
    const size_t first = line.find_first_not_of(" \t^");
    if (first != std::string_view::npos) last = line.substr(first);
  }
  // "\"script\" line 3: " is about a file that is gone.
  const size_t where = last.find("\" line ");
  const size_t colon = where == std::string::npos ? where : last.find(": ", where);
  return colon == std::string::npos ? last : last.substr(colon + 2);
}

Error io(std::string what) { return make_error(ErrorCode::kIo, std::move(what)); }

}  // namespace

Status check_plot_size(const Plot& plot) {
  const size_t panels = plot.panels.size();
  size_t curves = 0;
  for (const PlotPanel& panel : plot.panels) {
    curves = std::max({curves, panel.series.size(), panel.labels.size()});
  }
  if (panels <= kMostPlotPanels && curves <= kMostPlotCurves) return {};
  return make_error(
      ErrorCode::kInvalidArgument,
      fmt::format("--plot: {} panels with up to {} lines or bars each: a picture has room for {} "
                  "with {}; give fewer values",
                  panels, curves, kMostPlotPanels, kMostPlotCurves));
}

Status check_plot(const std::string& path) {
  if (!path.ends_with(".png") && !path.ends_with(".svg")) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("--plot {}: the ending says what the picture is; use a name that ends in .png "
                    "or .svg",
                    printable(path)));
  }
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (access(folder.c_str(), W_OK) != 0) {
    return io(fmt::format("--plot {}: {}; name a file in a folder that is there and can be written",
                          path, std::strerror(errno)));
  }
  const char* const folders = std::getenv("PATH");
  std::string_view rest = folders == nullptr ? "/usr/bin:/bin" : folders;
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    const std::string program = std::string(rest.substr(0, colon)) + "/gnuplot";
    if (access(program.c_str(), X_OK) == 0) return {};
    rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
  }
  return make_error(ErrorCode::kNotFound,
                    "--plot needs gnuplot, which is not installed: install gnuplot-nox, for "
                    "instance by tools/install-deps --bench");
}

Status draw(const Plot& plot, const std::string& path) {
  PMSTORE_TRY_STATUS(check_plot(path));
  PMSTORE_TRY_STATUS(check_plot_size(plot));
  // The script comes from a file: a pipe in each direction could block.
  std::string script_path = "/tmp/pmstore-plot-XXXXXX";
  const int fd = mkstemp(script_path.data());
  if (fd < 0) return io(fmt::format("/tmp: {}", std::strerror(errno)));
  const std::string script = gnuplot_script(plot, path);
  const bool written = write(fd, script.data(), script.size()) == ssize_t(script.size());
  close(fd);
  std::string output;
  int status = -1;
  if (written) {
    const std::string command = "gnuplot " + script_path + " 2>&1";
    if (FILE* const pipe = popen(command.c_str(), "r")) {
      std::array<char, 512> part;
      while (fgets(part.data(), part.size(), pipe) != nullptr) output += part.data();
      status = pclose(pipe);
    }
  }
  unlink(script_path.c_str());
  struct stat made;
  if (status == 0 && stat(path.c_str(), &made) == 0 && made.st_size > 0) return {};
  return io(fmt::format("{}: gnuplot has failed: {}", path,
                        output.empty() ? "no output" : last_line(output)));
}

}  // namespace pmstore::tools
