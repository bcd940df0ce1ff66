// See CMakeLists.txt: held.
