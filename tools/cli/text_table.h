// TextTable: rows for people, columns aligned; numbers to the right.
#pragma once

#include <string>
#include <vector>

namespace pmstore::tools {

class TextTable {
 public:
  // The first `left` columns are aligned to the left, the others to the right.
  explicit TextTable(size_t left) : left_(left) {}
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // All rows, each with a newline. Columns are as wide as their widest cell in bytes.
  std::string text() const;

 private:
  size_t left_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace pmstore::tools
