#include "tools/plot.h"

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

namespace pmstore::tools {
namespace {

// In gnuplot's single quotes, a quote is written twice; nothing else is special.
std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    out += c;
    if (c == '\'') out += c;
  }
  return out + "'";
}

std::string bars_script(const Plot& plot) {
  std::string text =
      "set style fill solid 0.8\nset boxwidth 0.7\nset yrange [0:*]\n"
      "set xtics rotate by -30 noenhanced\nset grid ytics\n"
      "plot $bars using 1:2:xtic(3) with boxes notitle, "
      "$bars using 1:2:(sprintf('%.3g', $2)) with labels offset 0,0.6 notitle\n";
  std::string data = "$bars << EOD\n";
  for (size_t i = 0; i < plot.bars.size(); ++i) {
    // The data block is split at blanks, so labels are in double quotes.
    data += fmt::format("{} {:.9g} \"{}\"\n", i, plot.bars[i], plot.labels[i]);
  }
  return data + "EOD\n" + text;
}

std::string curves_script(const Plot& plot) {
  std::string data;
  std::string command = "set logscale x 2\nset yrange [0:*]\nset grid\nset key noenhanced\nplot ";
  for (size_t i = 0; i < plot.curves.size(); ++i) {
    const PlotSeries& series = plot.curves[i];
    data += fmt::format("$s{} << EOD\n", i);
    for (size_t k = 0; k < series.x.size(); ++k) {
      data += fmt::format("{:.9g} {:.9g}\n", series.x[k], series.y[k]);
    }
    data += "EOD\n";
    command += fmt::format("{}$s{} using 1:2 with linespoints title {}", i == 0 ? "" : ", ", i,
                           quoted(series.name));
  }
  return data + command + "\n";
}

// What gnuplot has said, as one line: the last one that is not blank or points to a place.
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

std::string gnuplot_script(const Plot& plot, const std::string& path) {
  return fmt::format(
      "set terminal png size 1000,600\nset output {}\nset title {} noenhanced\n"
      "set xlabel {} noenhanced\nset ylabel {} noenhanced\n{}",
      quoted(path), quoted(plot.title), quoted(plot.x_label), quoted(plot.y_label),
      plot.curves.empty() ? bars_script(plot) : curves_script(plot));
}

Status check_plot(const std::string& path) {
  if (!path.ends_with(".png")) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("--plot {}: the picture is a PNG; use a name that ends in .png", path));
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
