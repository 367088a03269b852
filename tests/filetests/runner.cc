#include "filetests/runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <vector>

namespace kintsugi::filetests {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTestMark = "; test:";
constexpr std::string_view kExpectMark = "; expect:\n";
constexpr std::string_view kCheckMark = "; check:\n";
constexpr std::string_view kNotMark = "not: ";

std::span<const ModeRow> gModes;

struct FileText {
  std::string mode;
  std::string argument;
  std::string input;  // comments included, so that positions in errors are those of the file
  std::string expected;
  bool hasExpected = false;
  bool checksLines = false;  // else the whole text
};

std::string readFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

FileText split(const std::string& text) {
  FileText file;
  const size_t checks = text.rfind("\n" + std::string(kCheckMark));
  file.checksLines = checks != std::string::npos;
  const std::string_view kind = file.checksLines ? kCheckMark : kExpectMark;
  const size_t mark = file.checksLines ? checks : text.rfind("\n" + std::string(kExpectMark));
  file.hasExpected = mark != std::string::npos;
  file.input = text.substr(0, file.hasExpected ? mark + 1 : text.size());
  file.expected = file.hasExpected ? text.substr(mark + 1 + kind.size()) : "";
  if (text.starts_with(kTestMark)) {
    std::string test = text.substr(kTestMark.size(), text.find('\n') - kTestMark.size());
    std::erase(test, ' ');
    const size_t equals = test.find('=');
    file.mode = test.substr(0, equals);
    file.argument = equals == std::string::npos ? "" : test.substr(equals + 1);
  }
  return file;
}

// Empty, or the line of the expectation that is not there, or is there and must not be.
std::string missingLine(const std::string& expected, const std::string& actual) {
  std::stringstream lines(expected), from(actual);
  std::vector<std::string> never;
  const auto takeUpTo = [&](const std::string& wanted) {
    for (std::string line; std::getline(from, line);) {
      if (!wanted.empty() && line.find(wanted) != std::string::npos) {
        return std::string();
      }
      for (const std::string& text : never) {
        if (line.find(text) != std::string::npos) {
          return "not: " + text;
        }
      }
    }
    return wanted;
  };
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kNotMark)) {
      never.push_back(line.substr(kNotMark.size()));
    } else if (const std::string problem = takeUpTo(line); !problem.empty()) {
      return problem;
    } else {
      never.clear();
    }
  }
  return never.empty() ? std::string() : takeUpTo("");
}

bool blessing() {
  const char* value = std::getenv("KINTSUGI_BLESS");
  return value != nullptr && std::string_view(value) == "1";
}

void runFile(const fs::path& path) {
  const FileText file = split(readFile(path));
  const auto row =
      std::find_if(gModes.begin(), gModes.end(), [&](const ModeRow& mode) { return mode.name == file.mode; });
  ASSERT_NE(row, gModes.end()) << path << ": the first line has to name a test: `; test: roundtrip`";
  const std::string actual = row->run(file.argument, file.input);
  ASSERT_FALSE(actual.starts_with("!")) << path << "\n" << actual;
  if (file.checksLines) {
    EXPECT_EQ(missingLine(file.expected, actual), "") << path << "\n" << actual;
    return;
  }
  if (actual == file.expected) {
    return;
  }
  if (blessing()) {
    std::ofstream(path, std::ios::binary) << file.input << kExpectMark << actual;
    std::cout << "blessed " << path.string() << "\n";
    return;
  }
  EXPECT_EQ(file.expected, actual) << path << (file.hasExpected ? "" : "\nThe file has no expectation yet.")
                                   << "\nKINTSUGI_BLESS=1 rewrites it (make bless).";
}

class FileTest : public testing::Test {
 public:
  explicit FileTest(fs::path path) : path_(std::move(path)) {}
  void TestBody() override { runFile(path_); }

 private:
  fs::path path_;
};

size_t registerTests(const fs::path& root, std::span<const std::string_view> skipped) {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
    const std::string folder = entry.path().parent_path().filename().string();
    if (entry.path().extension() == ".ktir" &&
        std::find(skipped.begin(), skipped.end(), folder) == skipped.end()) {
      paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    const std::string suite = fs::relative(path.parent_path(), root).generic_string();
    testing::RegisterTest(suite.c_str(), path.stem().string().c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [path]() -> testing::Test* { return new FileTest(path); });
  }
  return paths.size();
}

}  // namespace

std::string unexpected(const std::string& what) { return "! " + what + "\n"; }

std::string syntaxError(const diag::Diagnostic& diagnostic) {
  return diagnostic.args[0] + ":" + diagnostic.args[1] + ": " + diagnostic.args[2] + "\n";
}

int runFileTests(int argc, char** argv, const char* root, std::span<const ModeRow> modes,
                 std::span<const std::string_view> skipped) {
  testing::InitGoogleTest(&argc, argv);
  gModes = modes;
  const fs::path folder = argc > 1 ? argv[1] : root;
  if (!fs::is_directory(folder) || registerTests(folder, skipped) == 0) {
    std::cerr << "no file tests under " << folder << "\n";
    return 1;
  }
  return RUN_ALL_TESTS();
}

}  // namespace kintsugi::filetests
