// See CMakeLists.txt: registered.
