// A new folder for the stores that a program compares, which is gone at the end.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/compare/ordered_engine.h"

namespace pmstore::compare {

class Folder {
 public:
  Folder(const std::string& dir, const std::string& name) : path_(dir + "/" + name + "-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) give_up(dir, "cannot make a folder there");
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace pmstore::compare
