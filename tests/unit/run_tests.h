// What an extension module of tests does: runs its GoogleTests inside a Python.
//
// Example: NB_MODULE(_runtime_units, m) { kintsugi::test::addRun(m, "runtime_units"); }
#pragma once

#include <gtest/gtest.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

namespace kintsugi::test {

// `program` stands in the place of the program's name, before the arguments.
inline int runTests(const char* program, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), program);
  std::vector<char*> words;
  for (std::string& argument : arguments) words.push_back(argument.data());
  int count = static_cast<int>(words.size());
  testing::InitGoogleTest(&count, words.data());
  return RUN_ALL_TESTS();
}

// Gives the module its function run(arguments).
inline void addRun(nanobind::module_& m, const char* program) {
  m.def(
      "run",
      [program](std::vector<std::string> arguments) { return runTests(program, std::move(arguments)); },
      nanobind::arg("arguments") = std::vector<std::string>());
}

}  // namespace kintsugi::test
