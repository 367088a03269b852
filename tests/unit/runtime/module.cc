// An extension module that runs these tests: `python -c "import torch, _runtime_units as u;
// u.run(['--gtest_brief=1'])"`.
#include "unit/run_tests.h"

NB_MODULE(_runtime_units, m) { kintsugi::test::addRun(m, "runtime_units"); }
