// TextTable: rows for people, columns aligned; numbers to the right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pmstore::tools {

class TextTable {
 public:
  enum class LastColumn : uint8_t { kRight, kLeft };
  // The first `left` columns are aligned to the left, the others to the right, the last one as
  // `last` says.
  explicit TextTable(size_t left, LastColumn last = LastColumn::kRight)
      : left_(left), last_(last) {}
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // All rows, each with a newline. Columns are as wide as their widest cell in bytes.
  std::string text() const;

 private:
  size_t left_;
  LastColumn last_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace pmstore::tools
