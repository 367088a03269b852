#include "codegen/perf_map.h"

#include <fcntl.h>
#include <llvm/Object/ObjectFile.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

namespace kintsugi::codegen {

namespace {

size_t codeSize(const std::string& object) {
  auto file = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(object, "kernel"));
  if (!file) {
    llvm::consumeError(file.takeError());
    return 0;
  }
  size_t size = 0;
  for (const llvm::object::SectionRef& section : (*file)->sections()) {
    size += section.isText() ? section.getSize() : 0;
  }
  return size;
}

// The first line says what kind of kernel it is. From the other lines, only the names of operations are
// taken.
std::string oneLine(const std::string& structure) {
  std::istringstream lines(structure);
  std::string out = "kintsugi:", line;
  std::getline(lines, line);
  out += line;
  while (std::getline(lines, line)) {
    if (const size_t at = line.find(" = "); at != std::string::npos) {
      const std::string op = line.substr(at + 3);
      out += " " + op.substr(0, op.find(' '));
    }
  }
  return out;
}

}  // namespace

void nameForPerf(const void* code, const std::string& object, const std::string& structure) {
  static const bool wanted = std::getenv("KINTSUGI_PERF_MAP") != nullptr;
  if (!wanted) {
    return;
  }
  std::ostringstream line;
  line << std::hex << reinterpret_cast<uintptr_t>(code) << " " << codeSize(object) << " "
       << oneLine(structure) << "\n";
  const std::string path = "/tmp/perf-" + std::to_string(getpid()) + ".map";
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (file >= 0) {
    const std::string text = line.str();
    [[maybe_unused]] const ssize_t written = write(file, text.data(), text.size());
    close(file);
  }
}

}  // namespace kintsugi::codegen
