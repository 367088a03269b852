#include "capture/tables/attribute_log.h"
#include "capture/tables/class_versions.h"
#include "pyapi/object_layout.h"
#include "pyapi/types.h"
#include "unit/capture/python_objects.h"

namespace kintsugi::capture {
namespace {

using test::run;
using test::typeNamed;
using test::value;

TEST(AttributeLog, KnowsWhatEarlierRecordingsHaveFound) {
  run("class Counter:\n  calls = 0\n  size = 1");
  PyTypeObject* type = typeNamed("Counter");
  const pyapi::Ref<> calls = value("'calls'"), size = value("'size'");
  OpenAttributes before;
  before.add(type, calls.get());
  AttributeLog log(&before);
  EXPECT_TRUE(log.isOpen(type, calls.get()));
  EXPECT_FALSE(log.isOpen(type, size.get()));
  EXPECT_TRUE(log.hasOpen(type));
  EXPECT_TRUE(log.isAnythingOpen());
  log.open(type, size.get());
  EXPECT_TRUE(log.allOpen().contains(type, size.get()));
  EXPECT_TRUE(log.allOpen().contains(type, calls.get()));
  EXPECT_FALSE(AttributeLog(nullptr).isAnythingOpen());
}

TEST(AttributeLog, FindsAClosedNameByItsText) {
  run("class Closed: pass");
  PyTypeObject* type = typeNamed("Closed");
  AttributeLog log(nullptr);
  log.close(type, value("'a name ' + 'of its own'").get());  // which nobody else holds
  EXPECT_TRUE(log.isClosed(type, value("'a name of' + ' its own'").get()));
  EXPECT_FALSE(log.isClosed(type, value("'another'").get()));
  EXPECT_FALSE(log.isClosed(typeNamed("Counter"), value("'a name of its own'").get()));
}

TEST(AttributeLog, ClosesAClassOnlyWhereNothingIsWritten) {
  run("class Free: pass\nclass Written: pass");
  AttributeLog log(nullptr);
  EXPECT_TRUE(log.closeAll(typeNamed("Free")));
  EXPECT_TRUE(log.isClosed(typeNamed("Free"), value("'anything'").get()));
  log.noteWritten(typeNamed("Written"), value("'calls'").get());
  EXPECT_FALSE(log.closeAll(typeNamed("Written")));
}

struct Fixture {
  guard::Document document;
  ConstantPool constants;
  AttributeLog log{nullptr};
  ClassVersions versions{document, constants, log};

  void guardVersion(PyTypeObject* type) {
    pyapi::ensureTypeVersion(type);
    guard::Guard row;
    row.kind = guard::GuardKind::kTypeVersion;
    row.key = constants.add(reinterpret_cast<PyObject*>(type)).id;
    row.number = static_cast<int64_t>(*pyapi::typeVersionWord(type));
    document.guards.guards.push_back(row);
  }
  bool holds(PyTypeObject* type) const {
    return document.guards.guards[0].number == static_cast<int64_t>(*pyapi::typeVersionWord(type));
  }
};

TEST(ClassVersions, FollowAWriteToAnOpenAttribute) {
  run("class Tally:\n  calls = 0\n  other = 0");
  PyTypeObject* type = typeNamed("Tally");
  Fixture f;
  f.log.open(type, value("'calls'").get());
  f.guardVersion(type);
  f.versions.expectWrites();
  EXPECT_TRUE(f.versions.areExpected());
  run("Tally.calls += 1");
  pyapi::ensureTypeVersion(type);
  EXPECT_FALSE(f.holds(type));
  f.versions.renew();
  EXPECT_TRUE(f.holds(type));
  EXPECT_FALSE(f.versions.areExpected());
}

TEST(ClassVersions, LeaveAGuardOfWhichMoreHasChanged) {
  PyTypeObject* type = typeNamed("Tally");
  Fixture f;
  f.log.open(type, value("'calls'").get());
  f.guardVersion(type);
  f.versions.expectWrites();
  run("Tally.calls += 1\nTally.other += 1");
  f.versions.renew();
  pyapi::ensureTypeVersion(type);
  EXPECT_FALSE(f.holds(type));
}

TEST(ClassVersions, ExpectNothingWhereNothingIsOpen) {
  Fixture f;
  f.guardVersion(typeNamed("Tally"));
  f.versions.expectWrites();
  EXPECT_FALSE(f.versions.areExpected());
}

}  // namespace
}  // namespace kintsugi::capture
