#include "capture/recipes.h"

#include "unit/capture/fakes.h"

namespace kintsugi::capture {
namespace {

using ir::Operand;
using ir::OperandKind;
using ir::RecipeKind;
using test::run;
using test::value;

struct Fixture {
  test::FakeConstants constants;
  VirtualTable virtuals;
  test::FakeObjects objects{virtuals};
  ir::Trace trace;
  ExceptionLog exceptions;
  Recipes recipes{constants, objects, trace, exceptions, virtuals};

  // A virtual object whose parts have these shadows. The fixture does not hold the object, the table does.
  Shadow make(VirtualKind kind, PyObject* object, Shadows parts = {}) {
    const Shadow shadow = virtuals.add(kind, object);
    virtuals[shadow].parts = std::move(parts);
    return shadow;
  }
  Shadow make(VirtualKind kind, const char* expression, Shadows parts = {}) {
    return make(kind, value(expression).get(), std::move(parts));
  }
  Operand operand(Shadow shadow) {
    Operand out;
    EXPECT_TRUE(recipes.operandOf(shadow, shadow.isVirtual() ? virtuals[shadow].object.get() : Py_None, out));
    return out;
  }
  bool canMake(Shadow shadow) {
    Operand out;
    return recipes.operandOf(shadow, virtuals[shadow].object.get(), out);
  }
  const ir::Recipe& recipeOf(Shadow shadow) {
    const Operand made = operand(shadow);
    EXPECT_EQ(made.kind, OperandKind::kRecipe);
    return trace.recipes.at(made.id);
  }
  PyObject* constantAt(const Operand& part) {
    EXPECT_EQ(part.kind, OperandKind::kConst);
    return constants.pool.at(part.id);
  }
};

TEST(Recipes, NameSourcesValuesAndConstantsAsTheyAre) {
  Fixture f;
  EXPECT_EQ(f.operand(Shadow::null()).kind, OperandKind::kNull);
  EXPECT_EQ(f.operand(Shadow::source(3)).id, 3U);
  EXPECT_EQ(f.operand(Shadow::value(4)).kind, OperandKind::kValue);
  EXPECT_EQ(f.constantAt(f.operand(Shadow::constant())), Py_None);
  EXPECT_TRUE(f.trace.recipes.empty());
}

TEST(Recipes, OfOneObjectAreOneRecipe) {
  Fixture f;
  const Shadow list = f.make(VirtualKind::kList, "[1]", {Shadow::value(0)});
  const Shadow pair = f.virtuals.add(
      VirtualKind::kTuple,
      pyapi::steal(PyTuple_Pack(2, f.virtuals[list].object.get(), f.virtuals[list].object.get())).get());
  f.virtuals[pair].parts = {list, list};
  const ir::Recipe& recipe = f.recipeOf(pair);
  EXPECT_EQ(recipe.kind, RecipeKind::kTuple);
  ASSERT_EQ(recipe.parts.size(), 2U);
  EXPECT_EQ(recipe.parts[0].id, recipe.parts[1].id);
  EXPECT_EQ(f.trace.recipes.size(), 2U);
}

TEST(Recipes, AreMadeAgainAfterAChange) {
  Fixture f;
  const Shadow list = f.make(VirtualKind::kList, "[1]", {Shadow::value(0)});
  const uint32_t first = f.operand(list).id;
  EXPECT_EQ(f.operand(list).id, first);
  f.virtuals[list].parts[0] = Shadow::value(7);
  f.virtuals.noteChange(list);
  const uint32_t second = f.operand(list).id;
  EXPECT_NE(second, first);
  EXPECT_EQ(f.trace.recipes[first].parts[0].id, 0U);  // snapshots that name it were made before the change
  EXPECT_EQ(f.trace.recipes[second].parts[0].id, 7U);
}

// The lists in `(changed, kept)`.
TEST(Recipes, StayWhereWhatTheyHoldHasNotChanged) {
  Fixture f;
  const Shadow changed = f.make(VirtualKind::kList, "[1]", {Shadow::value(0)});
  const Shadow kept = f.make(VirtualKind::kList, "[2]", {Shadow::value(1)});
  const pyapi::Ref<> both =
      pyapi::steal(PyTuple_Pack(2, f.virtuals[changed].object.get(), f.virtuals[kept].object.get()));
  const Shadow pair = f.make(VirtualKind::kTuple, both.get(), {changed, kept});
  const uint32_t first = f.operand(pair).id, other = f.operand(kept).id;
  f.virtuals.noteChange(kept);  // but it is described as before
  EXPECT_EQ(f.operand(pair).id, first);
  f.virtuals[changed].parts[0] = Shadow::value(7);
  f.virtuals.noteChange(changed);
  EXPECT_FALSE(f.recipes.isCurrent({pair.virtualId(), first}));
  const uint32_t second = f.operand(pair).id;
  EXPECT_NE(second, first);
  EXPECT_TRUE(f.recipes.isCurrent({pair.virtualId(), second}));
  EXPECT_FALSE(f.recipes.isCurrent({pair.virtualId(), first}));
  EXPECT_EQ(f.operand(kept).id, other);
  EXPECT_EQ(f.trace.recipes[second].parts[1].id, other);
  f.virtuals.noteChange();  // anything may have changed: described again, with the same result
  EXPECT_EQ(f.operand(pair).id, second);
  f.virtuals[changed].value = 9;  // it was built
  f.virtuals.noteChange(changed);
  EXPECT_EQ(f.recipeOf(pair).parts[0].kind, OperandKind::kValue);
}

TEST(Recipes, NameAnObjectThatWasBuiltByItsValue) {
  Fixture f;
  const Shadow list = f.make(VirtualKind::kList, "[1]", {Shadow::value(0)});
  f.virtuals[list].value = 9;
  EXPECT_EQ(f.operand(list).kind, OperandKind::kValue);
  EXPECT_EQ(f.operand(list).id, 9U);
}

TEST(Recipes, OfADictHaveItsKeysInOrder) {
  Fixture f;
  const Shadow dict = f.make(VirtualKind::kDict, "{'b': 1, 'a': 2}");
  f.virtuals.setEntry(f.virtuals[dict], value("'a'").get(), Shadow::value(0));
  f.virtuals.setEntry(f.virtuals[dict], value("'b'").get(), Shadow::value(1));
  const ir::Recipe& recipe = f.recipeOf(dict);
  EXPECT_EQ(recipe.kind, RecipeKind::kDict);
  ASSERT_EQ(recipe.parts.size(), 4U);
  EXPECT_EQ(PyUnicode_CompareWithASCIIString(f.constantAt(recipe.parts[0]), "b"), 0);
  EXPECT_EQ(recipe.parts[1].id, 1U);
  EXPECT_EQ(recipe.parts[3].id, 0U);
}

TEST(Recipes, RefuseAContainerThatTheTraceDoesNotFollow) {
  Fixture f;
  EXPECT_FALSE(f.canMake(f.make(VirtualKind::kDict, "{'a': 1}")));  // an entry without a shadow
  EXPECT_FALSE(f.canMake(f.make(VirtualKind::kList, "[1, 2]", {Shadow::value(0)})));
  EXPECT_FALSE(f.canMake(f.make(VirtualKind::kOpaque, "object()")));
  EXPECT_TRUE(f.trace.recipes.empty());
}

TEST(Recipes, RefuseAListInItself) {
  run("loop = []\nloop.append(loop)");
  Fixture f;
  const Shadow list = f.make(VirtualKind::kList, "loop");
  f.virtuals[list].parts = {list};
  EXPECT_FALSE(f.canMake(list));
  EXPECT_FALSE(f.virtuals[list].building);
  run("loop.clear()");
}

// def outer():
//   def inner(): return inner
TEST(Recipes, OfARecursiveFunctionNameItsCell) {
  run("def outer():\n  def inner(): return inner\n  return inner\ninner = outer()");
  Fixture f;
  const Shadow cell = f.make(VirtualKind::kCell, "inner.__closure__[0]");
  const Shadow function = f.make(VirtualKind::kFunction, "inner", {{}, {}, cell});
  f.virtuals[function].partObjects.resize(2);
  f.virtuals[cell].parts = {function};
  EXPECT_FALSE(f.canMake(function));  // a frame's cells come before what is in its variables
  const Operand made = f.operand(cell);
  const ir::Recipe& content = f.trace.recipes.at(made.id);
  EXPECT_EQ(content.kind, RecipeKind::kCell);
  const ir::Recipe& recipe = f.trace.recipes.at(content.parts[0].id);
  EXPECT_EQ(recipe.kind, RecipeKind::kFunction);
  const ir::Recipe& closure = f.trace.recipes.at(recipe.parts[6].id);
  EXPECT_EQ(closure.parts[0].kind, OperandKind::kRecipe);
  EXPECT_EQ(closure.parts[0].id, made.id);
  EXPECT_TRUE(f.canMake(function));
}

TEST(Recipes, OfIteratorsSayWhereTheRealOnesAre) {
  run("from operator import pos as ended\n"  // in the place of the polyfill
      "items = [1, 2, 3]; plain = iter(items); next(plain); next(plain)\n"
      "keys = iter({1: 2}); next(keys)\n"
      "other = iter({1: 2}); next(other)\n"
      "turned = reversed(items); next(turned)\n"
      "changed = {1: 2}; stale = iter(changed); changed[3] = 4\n"
      "over = iter([]); next(over, None)\n"
      "short = [1, 2]; beyond = iter(short); next(beyond); next(beyond); short.clear()");
  Fixture f;
  const auto iterator = [&](const char* expression, const char* container, bool sized = false) {
    const Shadow shadow = f.make(VirtualKind::kIterator, expression, {Shadow::source(5)});
    f.virtuals[shadow].partObjects.push_back(value(container));
    f.virtuals[shadow].sized = sized;
    return f.recipeOf(shadow);
  };
  const ir::Recipe plain = iterator("plain", "items");
  EXPECT_EQ(plain.kind, RecipeKind::kSequenceIterator);
  EXPECT_EQ(plain.parts[1].i, 2);
  const ir::Recipe keys = iterator("keys", "{1: 2}");
  EXPECT_EQ(keys.kind, RecipeKind::kIterator);
  EXPECT_EQ(f.constantAt(keys.parts[0]), PyDict_GetItemString(PyEval_GetBuiltins(), "iter"));
  EXPECT_EQ(keys.parts[1].i, 1);
  const ir::Recipe sized = iterator("other", "{1: 2}", true);  // the size of an older dict is part of it
  ASSERT_EQ(sized.parts.size(), 6U);
  EXPECT_EQ(sized.parts[1].i, pyapi::kPlaced);
  EXPECT_EQ(sized.parts[5].i, 1);
  const ir::Recipe turned = iterator("turned", "items");
  EXPECT_EQ(f.constantAt(turned.parts[0]), reinterpret_cast<PyObject*>(&PyReversed_Type));
  EXPECT_EQ(turned.parts[1].i, pyapi::kPlaced);
  EXPECT_EQ(turned.parts[3].i, 1);
  const ir::Recipe stale = iterator("stale", "changed");
  ASSERT_EQ(stale.parts.size(), 6U);
  EXPECT_EQ(stale.parts[3].i, 0);
  EXPECT_EQ(stale.parts[4].i, 1);  // item left
  EXPECT_EQ(stale.parts[5].i, 1);  // the size that it expects
  const ir::Recipe over = iterator("over", "[]");
  EXPECT_EQ(f.constantAt(over.parts[0]), value("ended").get());
  EXPECT_EQ(iterator("beyond", "short").parts[1].i, 2);
}

TEST(Recipes, OfExceptionsAskForTheContextThatTheCallerHandles) {
  Fixture f;
  const Shadow error = f.make(VirtualKind::kException, "ValueError('no')", {Shadow::constant()});
  f.virtuals[error].partObjects.push_back(value("'no'"));
  EXPECT_EQ(f.recipeOf(error).parts[3].kind, OperandKind::kNull);
  f.virtuals[error].index = Recipes::kContextOutside;
  f.virtuals.noteChange();
  const ir::Recipe recipe = f.recipeOf(error);
  EXPECT_EQ(recipe.kind, RecipeKind::kException);
  EXPECT_EQ(f.constants.pool.at(recipe.type), PyExc_ValueError);
  EXPECT_EQ(recipe.parts[0].i, 1);
  const ir::Recipe& asked = f.trace.recipes.at(recipe.parts[3].id);
  EXPECT_EQ(asked.kind, RecipeKind::kCall);
  EXPECT_EQ(f.constantAt(asked.parts[0]), PySys_GetObject("exception"));
}

TEST(Recipes, RefuseAnExceptionWithACauseThatTheTraceDoesNotKnow) {
  run("error = KeyError()\nerror.__cause__ = IndexError()");
  Fixture f;
  const Shadow error = f.make(VirtualKind::kException, "error");
  EXPECT_FALSE(f.canMake(error));
  f.objects.known = {{value("error.__cause__").get(), Shadow::source(6)}};
  const ir::Recipe recipe = f.recipeOf(error);
  EXPECT_EQ(recipe.parts[1].kind, OperandKind::kSource);
  EXPECT_EQ(recipe.parts[1].id, 6U);
}

TEST(Recipes, OfARunningGeneratorAreKnownAsSuch) {
  run("def running():\n  grab()\n  yield\nrunning_one = running()");
  Fixture f;
  const Shadow generator = f.make(VirtualKind::kGenerator, "running_one", {Shadow::source(0)});
  f.virtuals[generator].partObjects.push_back(value("running"));
  const Shadow pair =
      f.make(VirtualKind::kTuple, pyapi::steal(PyTuple_Pack(1, f.virtuals[generator].object.get())).get(),
             {generator});
  EXPECT_FALSE(f.canMake(pair));  // it waits, and the trace has not kept its frame
  test::inFrame("next(running_one)", [&](ShadowFrame&) {
    const Operand made = f.operand(pair);
    EXPECT_EQ(f.recipeOf(generator).parts[1].i, ir::kRunning);
    EXPECT_TRUE(f.recipes.isRunning(made.id));  // it holds one that runs
  });
  run("running_one.close()");
  f.virtuals.noteChange();
  EXPECT_EQ(f.recipeOf(generator).parts[1].i, ir::kFinished);
  EXPECT_FALSE(f.recipes.isRunning(f.operand(generator).id));
}

TEST(Recipes, CountTheirParts) {
  Fixture f;
  f.operand(f.make(VirtualKind::kList, "[1, 2, 3]", {Shadow::value(0), Shadow::value(1), Shadow::value(2)}));
  EXPECT_EQ(f.recipes.partCount(), 3U);
}

}  // namespace
}  // namespace kintsugi::capture
