// Models: C functions that compute. What they give follows from their arguments, so it is a constant where
// these are pinned, and is computed again in each run where they are numbers of the run.
#include "capture/calls/model.h"
#include "capture/calls/table.h"

namespace kintsugi::capture {

namespace {

constexpr ModelRow kRows[] = {
    {"builtins.slice.indices", knownModel, gives("tuple")},
    {"builtins.abs", arithmeticModel, gives(kOfOperands)},
    {"builtins.round", arithmeticModel, gives(kOfOperands).raises("RuntimeError")},
    {"builtins.divmod", arithmeticModel, gives(kOfOperands).raises("ValueError")},
    {"builtins.pow", arithmeticModel, gives(kOfOperands).raises("ValueError")},
    {"builtins.ord", foldModel, gives("int").runsNoPython()},
    {"builtins.chr", foldModel, gives("str").raises("OverflowError ValueError")},
    {"builtins.hash", identityModel, gives("int")},
    {"builtins.bin", foldModel, gives("str")},
    {"builtins.hex", foldModel, gives("str")},
    {"builtins.complex", foldModel, gives("complex").raises("ValueError")},
    {"builtins.complex.conjugate", foldModel, gives("complex").runsNoPython()},
    {"builtins.bytes", foldModel, gives("bytes").raises("OverflowError ValueError")},
    {"math.*", foldModel,
     gives("bool float int numpy.float64 str torch.Tensor tuple")
         .raises("OverflowError ValueError ZeroDivisionError")},
    {"_operator.concat", foldModel, gives(kOfOperands)},
    {"_operator.contains", foldModel, gives("bool").raises("RuntimeError ValueError")},
    {"_operator.countOf", foldModel, gives("int").raises("RuntimeError ValueError")},
    {"_operator.index", foldModel, gives("int")},
    {"_operator.indexOf", foldModel, gives("int").raises("RuntimeError ValueError")},
    {"_operator.is_", identityModel, gives("bool").runsNoPython()},
    {"_operator.is_not", identityModel, gives("bool").runsNoPython()},
    {"_operator.length_hint", foldModel, gives("int")},
    {"_operator.not_", foldModel, gives("bool").raises("RuntimeError ValueError")},
    {"_operator.truth", foldModel, gives("bool").raises("RuntimeError ValueError")},
    {"_operator._compare_digest", foldModel, gives("bool")},
    {"_operator.abs", arithmeticModel, gives(kOfOperands)},
    {"_operator.add", arithmeticModel, gives(kOfOperands)},
    {"_operator.and_", arithmeticModel, gives(kOfOperands).raises("NotImplementedError RuntimeError")},
    {"_operator.eq", arithmeticModel, gives(kOfOperands)},
    {"_operator.floordiv", arithmeticModel,
     gives(kOfOperands).raises("NotImplementedError ValueError ZeroDivisionError")},
    {"_operator.ge", arithmeticModel, gives(kOfOperands).raises("RuntimeError ValueError")},
    {"_operator.getitem", arithmeticModel, gives(kAnItem).raises("IndexError KeyError")},
    {"_operator.gt", arithmeticModel, gives(kOfOperands).raises("NotImplementedError ValueError")},
    {"_operator.inv", arithmeticModel, gives(kOfOperands)},
    {"_operator.invert", arithmeticModel, gives(kOfOperands)},
    {"_operator.le", arithmeticModel, gives(kOfOperands)},
    {"_operator.lshift", arithmeticModel, gives(kOfOperands).raises("NotImplementedError ValueError")},
    {"_operator.lt", arithmeticModel, gives(kOfOperands).raises("ValueError")},
    {"_operator.matmul", arithmeticModel, gives(kOfOperands).raises("RuntimeError ValueError")},
    {"_operator.mod", arithmeticModel, gives(kOfOperands).raises("NotImplementedError")},
    {"_operator.mul", arithmeticModel, gives(kOfOperands).raises("RuntimeError ValueError")},
    {"_operator.ne", arithmeticModel, gives(kOfOperands).raises("RuntimeError ValueError")},
    {"_operator.neg", arithmeticModel, gives(kOfOperands)},
    {"_operator.or_", arithmeticModel,
     gives(kOfOperands).raises("NotImplementedError RuntimeError ValueError")},
    {"_operator.pos", arithmeticModel, gives(kOfOperands)},
    {"_operator.pow", arithmeticModel,
     gives(kOfOperands).raises("RuntimeError ValueError ZeroDivisionError")},
    {"_operator.rshift", arithmeticModel, gives(kOfOperands).raises("NotImplementedError")},
    {"_operator.sub", arithmeticModel, gives(kOfOperands).raises("ValueError")},
    {"_operator.truediv", arithmeticModel, gives(kOfOperands).raises("ValueError")},
    {"_operator.xor", arithmeticModel, gives(kOfOperands).raises("NotImplementedError RuntimeError")},
    {"_operator.iadd", operatorModel, gives(kOfOperands).raises("AttributeError RuntimeError")},
    {"_operator.iand", operatorModel,
     gives(kOfOperands).raises("IndexError NotImplementedError RuntimeError")},
    {"_operator.ifloordiv", operatorModel,
     gives(kOfOperands).raises("RuntimeError ValueError ZeroDivisionError decimal.DivisionByZero")},
    {"_operator.ilshift", operatorModel, gives(kOfOperands).raises("NotImplementedError RuntimeError")},
    {"_operator.imatmul", operatorModel, gives(kOfOperands).raises("RuntimeError ValueError")},
    {"_operator.imod", operatorModel, gives(kOfOperands).raises("RuntimeError ZeroDivisionError")},
    {"_operator.imul", operatorModel, gives(kOfOperands).raises("RuntimeError")},
    {"_operator.ior", operatorModel,
     gives(kOfOperands).raises("AttributeError NotImplementedError RuntimeError ValueError")},
    {"_operator.ipow", operatorModel, gives(kOfOperands).raises("RuntimeError")},
    {"_operator.irshift", operatorModel,
     gives(kOfOperands).raises("NotImplementedError RuntimeError ValueError")},
    {"_operator.isub", operatorModel, gives(kOfOperands).raises("AttributeError RuntimeError ValueError")},
    {"_operator.itruediv", operatorModel,
     gives(kOfOperands).raises("RuntimeError ValueError decimal.DivisionByZero")},
    {"_operator.ixor", operatorModel, gives(kOfOperands).raises("NotImplementedError RuntimeError")},
    {"_operator.setitem", operatorModel, gives("None").raises("IndexError KeyError RuntimeError")},
    {"_operator.delitem", operatorModel, gives("None").raises("KeyError ValueError")},
    {"_operator.call", operatorModel, gives(kOfFunction).raises(kFromFunction)},
    {"builtins.str.__iter__", knownModel, gives("str_ascii_iterator str_iterator").runsNoPython()},
    {"builtins.bytes.__iter__", knownModel, gives("bytes_iterator").runsNoPython()},
    {"builtins.str.format", formatModel, gives("argument str").raises("IndexError")},
    {"builtins.str.format_map", formatModel, gives("argument str").raises("ValueError")},
    {"builtins.str.*", foldModel,
     gives("NotImplementedType argument bool bytes int list str str_ascii_iterator str_iterator tuple")
         .raises("IndexError LookupError RuntimeError ValueError")},
    {"builtins.int.*", foldModel,
     gives("NotImplementedType bool bytes float int str tuple")
         .raises("OverflowError ValueError ZeroDivisionError")},
    {"builtins.float.*", foldModel, gives("NotImplementedType bool float int str tuple")},
    {"builtins.bytes.*", foldModel,
     gives("NotImplementedType bool bytes bytes_iterator int list str tuple")
         .raises("AttributeError IndexError LookupError RuntimeError ValueError")},
};

}  // namespace

void registerFoldedModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
