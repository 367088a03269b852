// An extension module that runs these tests: `python -c "import torch, _runtime_units as u;
// u.run(['--gtest_brief=1'])"`.
#include <gtest/gtest.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

namespace {

int run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "runtime_units");
  std::vector<char*> words;
  for (std::string& argument : arguments) words.push_back(argument.data());
  int count = static_cast<int>(words.size());
  testing::InitGoogleTest(&count, words.data());
  return RUN_ALL_TESTS();
}

}  // namespace

NB_MODULE(_runtime_units, m) { m.def("run", &run, nanobind::arg("arguments") = std::vector<std::string>()); }
