// An extension module that runs these tests: `python -c "import _recorder_units as u;
// u.run(['--gtest_brief=1'])"`.
#include "unit/run_tests.h"

NB_MODULE(_recorder_units, m) { kintsugi::test::addRun(m, "recorder_units"); }
