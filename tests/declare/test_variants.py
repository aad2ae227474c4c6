"""variants= of a task: what may be declared, and one clear sentence for everything else."""

import pytest

import forebay
from forebay.core.variants import LadderPolicy, Rung
from forebay.errors import AppError


class Small:
    def predict(self, items: list[str]) -> list[int]:
        return [0 for _ in items]


class Tiny:
    def predict(self, items: list[str], context: forebay.Context) -> list[int]:
        return [context.level for _ in items]


class Untyped:
    def predict(self, items):
        return items


class Slow:
    async def predict(self, items: list[str]) -> list[int]:
        return [0 for _ in items]


class Parts:
    def predict(self, items: list[str]):
        yield 0, 0


class Other:
    def predict(self, items: list[bytes]) -> list[int]:
        return [0 for _ in items]


class Texts:
    def predict(self, items: list[str]) -> list[str]:
        return items


def short(text: str) -> int:
    return 0


def declared(variants, **more):
    """Return the task Large with these variants."""
    app = forebay.App()

    @app.task(batch_max=4, variants=variants, **more)
    class Large:
        def predict(self, items: list[str]) -> list[int]:
            return [len(item) for item in items]

    return app.tasks["Large"]


def test_classes_are_variants_with_marks_that_every_one_has():
    task = declared([Small, Tiny])
    assert task.spec.ladder == LadderPolicy(
        rungs=(
            Rung(name="Small", enter=0.75, leave=0.5),
            Rung(name="Tiny", enter=0.75, leave=0.5),
        ),
        stay_s=1.0,
    )
    assert [way.target for way in task.variants] == [Small, Tiny]


def test_a_task_without_variants_has_no_ladder():
    assert declared(None).spec.ladder is None


def test_a_variant_says_its_name_its_quality_and_when_it_runs():
    task = declared(
        [
            forebay.Variant(Small, name="small", quality=0.97, enter=0.8, leave=0.3),
            forebay.Variant(Untyped, enter=0.9),
            forebay.Variant(Tiny, quality=0.9),
        ],
        variants_stay="250ms",
    )
    assert task.spec.ladder.stay_s == 0.25
    assert task.spec.ladder.rungs == (
        Rung(name="small", quality=0.97, enter=0.8, leave=0.3),
        Rung(name="Untyped", enter=0.9, leave=0.6),
        Rung(name="Tiny", quality=0.9, enter=0.9, leave=0.6),
    )


def test_a_function_has_functions_and_its_own_handler_may_read_its_level():
    app = forebay.App()

    @app.task(variants=[short, forebay.Variant(name="half", quality=0.5)])
    def long(text: str, context: forebay.Context) -> int:
        return context.level

    task = app.tasks["long"]
    assert [rung.name for rung in task.spec.ladder.rungs] == ["short", "half"]
    assert [way.target for way in task.variants] == [short, None]


def test_a_variant_without_a_name_and_a_target_is_called_by_its_level():
    app = forebay.App()

    @app.task(variants=[forebay.Variant(), forebay.Variant()])
    def f(text: str, context: forebay.Context) -> int:
        return context.level

    assert [rung.name for rung in app.tasks["f"].spec.ladder.rungs] == ["level_1", "level_2"]


def test_a_fallback_runs_its_guests_by_itself_not_by_its_variants():
    from forebay.core.guard import guest_of

    app = forebay.App()

    @app.task(variants=[short])
    def stand_in(text: str) -> int:
        return 1

    assert guest_of(app.tasks["stand_in"].spec, app.tasks["stand_in"].spec).ladder is None


MANY = "a list of 1 to 14 classes, functions or forebay.Variant, from the best to the cheapest"


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        ([], f"task Large: variants must be {MANY}, not []"),
        (Small, f"task Large: variants must be {MANY}, not <class"),
        ([Small] * 15, f"task Large: variants must be {MANY}, not [<class"),
        (["Small"], f"task Large: variants must be {MANY}, not 'Small'"),
        ([Small, Small], "task Large: variant Small: named twice; give one of them another name="),
        ([short], "task Large: variant short: must be a class with predict, as the task is"),
        ([Slow], "task Large: variant Slow: must be async exactly when the task is"),
        ([Parts], "task Large: variant Parts: must be a generator exactly when the task is"),
        ([Other], "task Large: variant Other: takes bytes, and the task takes str"),
        ([Texts], "task Large: variant Texts: returns str, and the task returns int"),
        (
            [forebay.Variant()],
            "task Large: variant level_1: it has no target of its own, and the task takes no Context to read"
            " its level from",
        ),
        ([object], "task Large: variant object: the class needs a method predict(self, items)"),
        (
            [forebay.Variant(Small, name="")],
            "task Large: variant 1: name must be a text of 1 to 100 printable characters, not ''",
        ),
        (
            [forebay.Variant(Small, quality=1.1)],
            "task Large: variant Small: quality must be a number above 0 and at most 1, that of the one before,"
            " not 1.1",
        ),
        (
            [forebay.Variant(Small, quality=0.8), Untyped, forebay.Variant(Tiny, quality=0.9)],
            "task Large: variant Tiny: quality must be a number above 0 and at most 0.8, that of the one before,"
            " not 0.9",
        ),
        (
            [forebay.Variant(Small, enter=1.2)],
            "task Large: variant Small: enter must be a share above 0, at most 1, not 1.2",
        ),
        (
            [forebay.Variant(Small, enter=True)],
            "task Large: variant Small: enter must be a share above 0, at most 1, not True",
        ),
        (
            [forebay.Variant(Small, enter=0.9), forebay.Variant(Tiny, enter=0.8)],
            "task Large: variant Tiny: enter must be a share of at least 0.9, as before it, and at most 1, not 0.8",
        ),
        (
            [forebay.Variant(Small, enter=0.5, leave=0.5)],
            "task Large: variant Small: leave must be a share from 0 to less than enter (0.5), not 0.5",
        ),
    ],
)
def test_a_mistake_is_one_sentence_that_names_the_variant_the_rule_and_the_value(variants, message):
    with pytest.raises(AppError) as seen:
        declared(variants)
    assert str(seen.value).startswith(message) and "\n" not in str(seen.value)


def test_the_stay_is_a_duration_above_zero():
    with pytest.raises(AppError, match="task Large: variants_stay must be a duration above 0"):
        declared([Small], variants_stay=0)


def test_a_class_is_no_variant_of_a_function():
    app = forebay.App()
    with pytest.raises(AppError, match="task f: variant Small: must be a plain function, as the task is"):

        @app.task(variants=[Small])
        def f(text: str) -> int:
            return 0
