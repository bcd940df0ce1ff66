// See CMakeLists.txt: forgotten.
