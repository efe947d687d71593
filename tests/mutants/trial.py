"""Tries whether a module's tests notice its mutants, each in a fork after the collection of tests.

A mutant inside a function is put into the living module as that function's code, so nothing is
imported anew, and only the tests that call this function without a mutant are run. The first are
those that noticed an earlier mutant, then the quickest. One outside of all functions is what the
import finds, and all tests are run.
"""

import ast
import gc
import importlib.abc
import importlib.util
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, settings

from tests.mutants.operators import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "mutants" / str(os.getpid())  # of one run: its trials come in turns
LEAST = 2.0  # seconds of CPU that a mutant gets, however quick the tests are
MOST = 1800.0  # seconds for the tests without a mutant, also on a machine that does much else
IDLE = 600.0  # seconds that a mutant gets at least: what hangs takes no CPU, nor does what waits
TIMES = 5  # what is so much slower than without a mutant is noticed
OF_ONE = 10.0  # seconds of CPU that each test gets at least, with what it sets up for others
MARKS = "not spark and not stack and not long"
QUICK = (
    *("-q", "-x", "-s", "-p", "no:cacheprovider", "-p", "no:randomly"),
    *("-m", MARKS),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant."""

    name: str
    line: int
    killed: bool


def tried(
    target: str,
    tests: Sequence[str],
    tell: Callable[[Outcome], None],
    sample: int | None = None,
) -> None:
    """Try every mutant of the file *target*, or *sample* of them, in a process of its own.

    Raises:
        SystemExit: the tests fail without any mutant.
    """
    every = list(mutants((ROOT / target).read_text("utf-8")))
    if sample is not None and sample < len(every):
        every = random.Random(target).sample(every, sample)
    if outside := [one for one in every if not one.function]:
        sound = _fork(lambda: _whole(tests), _Limit(MOST, MOST))
        if sound.noticed:
            why = f"fail, or take {MOST:.0f} s, without any mutant: run them with -m '{MARKS}'"
            raise SystemExit(f"{target}: its tests {why}: {' '.join(tests)}")
        for one in outside:
            run = partial(_imported, target, one, tests)
            tell(Outcome(one.name, one.line, _fork(run, _limit(sound.took)).noticed))
    living = _Living(target, [one for one in every if one.function], tell)
    if _whole(tests, [living]) or living.unfound:
        raise SystemExit(f"{target}: these could not be tried: {living.unfound}")
    shutil.rmtree(FOLDER, ignore_errors=True)


def _whole(tests: Sequence[str], plugins: Sequence[object] = ()) -> bool:
    """Whether one of the tests fails."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    arguments = [*QUICK, f"--basetemp={FOLDER / 'tests'}", *tests]
    return pytest.main(arguments, plugins=[_Brief(), *plugins]) != pytest.ExitCode.OK


def _imported(target: str, one: Mutant, tests: Sequence[str]) -> bool:
    sys.meta_path.insert(0, _Finder(target, one.tree()))
    return _whole(tests)


class _Brief:
    """Few examples, always the same, none kept and none made smaller."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Before any test is imported."""
        settings.register_profile(
            "brief",
            settings.get_profile("patient"),
            max_examples=20,
            database=None,
            derandomize=True,
            phases=(Phase.explicit, Phase.generate),
        )
        settings.load_profile("brief")


@dataclass(eq=False)
class _Living:
    """Tries mutants on the module that the collected tests have imported."""

    target: str
    mutants: Sequence[Mutant]
    tell: Callable[[Outcome], None]
    unfound: list[str] = field(default_factory=list)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of running the tests once."""
        module = sys.modules[_module(self.target)]
        before = dict(_codes(compile((ROOT / self.target).read_text("utf-8"), "<before>", "exec")))
        functions = {
            (code.co_qualname, code.co_firstlineno): one
            for one in _functions(module)
            for code in [one.__code__]
        }
        gc.freeze()  # or each fork would copy what it never changes
        callers = _find_callers(session, str(module.__file__))
        every = list(session.items)
        noticers: dict[int, None] = {}  # tests that noticed a mutant, the last one last
        for one in self.mutants:
            if one.function not in {name for name, _ in functions}:
                self.unfound.append(one.name)
                continue
            near = callers.get(one.function, {})
            again = [number for number in reversed(noticers) if number in near]
            session.items = [every[number] for number in dict.fromkeys((*again, *near))]
            limits = {every[number].nodeid: _limit(took, OF_ONE) for number, took in near.items()}
            run = partial(_bent_fails, session, one, functions, before, _Paced(limits))
            killed = bool(near) and _fork(run, _Limit(MOST, MOST)).noticed
            self.tell(Outcome(one.name, one.line, killed))
            for number in near:
                if killed and every[number].nodeid == _Paced.last():
                    noticers.pop(number, None)
                    noticers[number] = None
        return True


@dataclass(eq=False)
class _Paced:
    """Ends a fork whose test takes too long, and keeps the name of the last one: that noticed.

    A limit for each test finds an endless loop as soon as one test is in it.
    """

    limits: Mapping[str, "_Limit"]
    FILE: ClassVar = FOLDER / "noticed"

    @classmethod
    def last(cls) -> str:
        """The test that ran last: the one that failed or took too long."""
        return cls.FILE.read_text() if cls.FILE.exists() else ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Set its own limit."""
        self.FILE.write_text(nodeid)
        self.limits[nodeid].start()


_Callers = Mapping[int, "_Limit"]
"""Numbers of the tests that call a function, the quickest first, and what each takes."""


def _find_callers(session: pytest.Session, file: str) -> dict[str, _Callers]:
    """Run the tests without a mutant, and find which of them call each function of *file*."""
    found = FOLDER / "callers.json"

    def run() -> bool:
        calls = _Calls(file)
        session.config.pluginmanager.register(calls)
        failed = _fails(session)
        tests = {name: [*ids] for name, ids in calls.tests.items()}
        found.write_text(json.dumps([calls.seconds, tests]))
        return failed

    found.unlink(missing_ok=True)
    if _fork(run, _Limit(MOST, MOST)).noticed:
        raise SystemExit(f"{file}: its tests fail, or take {MOST:.0f} s, when calls are counted")
    seconds, tests = json.loads(found.read_text())
    number = {one.nodeid: n for n, one in enumerate(session.items)}
    return {
        name: {
            number[one]: _Limit(*seconds[one])
            for one in sorted(ids, key=lambda one: seconds[one][0])
        }
        for name, ids in tests.items()
    }


@dataclass(eq=False)
class _Calls:
    """Which tests call which functions of a file, and what each test takes: CPU and seconds.

    What a fixture of several tests calls counts for each later test that may use this fixture.
    """

    file: str
    tests: dict[str, dict[str, None]] = field(default_factory=dict)
    seconds: dict[str, tuple[float, float]] = field(default_factory=dict)
    _now: str = ""
    _scope: str = "function"
    _of_module: set[str] = field(default_factory=set)
    _of_session: set[str] = field(default_factory=set)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, bool, bool]:
        """Count what a test calls."""
        if item.nodeid.partition("::")[0] != self._now.partition("::")[0]:
            self._of_module.clear()
        self._now = item.nodeid
        for name in self._of_module | self._of_session:
            self._count(name)
        cpu, clock = time.process_time(), time.monotonic()
        threading.setprofile(self._enter)
        sys.setprofile(self._enter)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            self.seconds[item.nodeid] = (time.process_time() - cpu, time.monotonic() - clock)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, request: pytest.FixtureRequest) -> Generator[None, Any, Any]:
        """Remember what is called for several tests."""
        before, self._scope = self._scope, request.scope
        try:
            return (yield)
        finally:
            self._scope = before

    def _enter(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename == self.file:
            self._count(frame.f_code.co_qualname.partition(".<locals>")[0])

    def _count(self, name: str) -> None:
        self.tests.setdefault(name, {})[self._now] = None
        if self._scope != "function":
            wide = self._scope in ("session", "package")
            (self._of_session if wide else self._of_module).add(name)


def _bent_fails(
    session: pytest.Session,
    one: Mutant,
    functions: Mapping[tuple[str, int], FunctionType],
    before: Mapping[tuple[str, int], CodeType],
    paced: _Paced,
) -> bool:
    for place, code in _codes(compile(one.tree(), "<before>", "exec")):
        if place in functions and code != before.get(place):
            functions[place].__code__ = code
    session.config.pluginmanager.register(paced)
    return _fails(session)


def _fails(session: pytest.Session) -> bool:
    from _pytest.main import pytest_runtestloop  # noqa: PLC0415  - what pytest itself would do

    try:
        pytest_runtestloop(session)
    except (session.Failed, session.Interrupted):
        return True
    return session.testsfailed > 0


@dataclass(frozen=True, slots=True)
class _Limit:
    """How many seconds of CPU, and how many seconds, a run may take."""

    cpu: float
    seconds: float

    def start(self) -> None:
        """End this process when it has taken so long from now on."""
        signal.setitimer(signal.ITIMER_PROF, self.cpu)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)


@dataclass(frozen=True, slots=True)
class _Run:
    """Whether it failed, or died, or took too long; and what it took."""

    noticed: bool
    took: _Limit


def _limit(sound: _Limit, least: float = LEAST) -> _Limit:
    return _Limit(max(least, TIMES * sound.cpu), max(IDLE, TIMES * sound.seconds))


def _fork(run: Callable[[], bool], limit: _Limit) -> _Run:
    """What *run* answers in a process of its own, that ends when the limit is reached."""
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        limit.start()
        noticed = True
        try:
            noticed = run()
        finally:
            os._exit(int(noticed))
    _, status, used = os.wait4(child, 0)
    took = _Limit(used.ru_utime + used.ru_stime, time.monotonic() - began)
    return _Run(os.waitstatus_to_exitcode(status) != 0, took)


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """The functions of a module and of its classes, by name and first line."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield (each.co_qualname, each.co_firstlineno), each
            if not each.co_flags & 0x2:  # a class: a function has locals of its own
                yield from _codes(each)


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    for value in vars(module).values():
        yield from _within(value, module.__name__)


def _within(value: Any, module: str) -> Iterator[FunctionType]:
    if isinstance(value, type):
        if value.__module__ == module:
            for each in vars(value).values():
                yield from _within(each, module)
    elif isinstance(value, property):
        yield from (one for one in (value.fget, value.fset) if isinstance(one, FunctionType))
    elif isinstance(value, FunctionType) and hasattr(value, "__wrapped__"):
        yield from _within(value.__wrapped__, module)
    elif isinstance(value, FunctionType):
        if value.__module__ == module:
            yield value
    else:
        inner = getattr(value, "__func__", None) or getattr(value, "__wrapped__", None)
        inner = inner or getattr(value, "func", None)
        if isinstance(inner, FunctionType):
            yield from _within(inner, module)


@dataclass(eq=False)
class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The import of one module finds another tree."""

    target: str
    tree: ast.Module

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        """The module's own."""
        if name != _module(self.target):
            return None
        return importlib.util.spec_from_loader(name, self, origin=str(ROOT / self.target))

    def exec_module(self, module: ModuleType) -> None:
        """Run the mutant."""
        module.__file__ = str(ROOT / self.target)
        exec(compile(self.tree, module.__file__, "exec"), module.__dict__)  # noqa: S102


def _module(target: str) -> str:
    return target.removesuffix(".py").replace("/", ".")
