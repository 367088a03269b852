// Recordings from text (guard/document.h), with constants that are written as Python.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "recording/recording.h"
#include "unit/capture/python_objects.h"

namespace kintsugi::runtime::test {

inline recording::Recording recordingOf(const std::string& text,
                                        const std::vector<const char*>& constants = {}) {
  diag::Result<guard::Document> document = guard::parse(text);
  EXPECT_TRUE(document.ok()) << (document.ok() ? "" : document.error().format()) << "\n" << text;
  recording::Recording recording;
  recording.document = std::move(document).value();
  for (const char* constant : constants) recording.consts.push_back(capture::test::value(constant));
  recording.sourceHashes.resize(recording.document.sources.nodes.size());
  recording.metaLevels.resize(recording.document.trace.values.size());
  return recording;
}

}  // namespace kintsugi::runtime::test
