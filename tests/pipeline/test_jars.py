import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import ConfigError, UnreachableError
from pipeline.spark import jars
from pipeline.spark.jars import Jar

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize(
    ("coordinate", "file"),
    [
        pytest.param("org.x:thing:1.0", "thing-1.0.jar", id="a plain jar"),
        pytest.param(
            "org.x:thing:1.0:tar.gz:plugin", "thing-1.0-plugin.tar.gz", id="with a classifier"
        ),
    ],
)
def test_a_coordinate_names_its_file(coordinate: str, file: str) -> None:
    assert Jar("spark", coordinate, EMPTY).file == file


def test_every_locked_jar_has_its_folder_coordinate_and_hash() -> None:
    locked = jars.locked_jars()

    assert {jar.folder for jar in locked} == {
        *("spark", "kafka", "connect", "mysql", "postgres", "mirror", "registry", "converter")
    }
    assert {len(jar.sha256) for jar in locked} == {64}
    assert len({(jar.folder, jar.file) for jar in locked}) == len(locked)


def test_what_is_there_is_not_fetched_and_what_is_no_longer_locked_goes(tmp_path: Path) -> None:
    lock = write_lock(tmp_path, f"spark org.x:thing:1.0 {EMPTY}\n")
    home = tmp_path / "jars"
    (home / "spark").mkdir(parents=True)
    (home / "spark" / "thing-1.0.jar").touch()
    (home / "spark" / "thing-0.9.jar").touch()

    assert jars.fetch_jars(home=home, lock=lock) == 0
    assert [path.name for path in (home / "spark").iterdir()] == ["thing-1.0.jar"]


def test_a_file_with_another_hash_is_refused_and_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_java(tmp_path, monkeypatch, 'echo harm > "$(dirname "${@: -1}")/thing-1.0.jar"')
    lock = write_lock(tmp_path, f"spark org.x:thing:1.0 {EMPTY}\n")

    with pytest.raises(UnreachableError, match=r"org\.x:thing:1\.0 has SHA-256 .* jars\.lock says"):
        jars.fetch_jars(home=tmp_path / "jars", lock=lock)

    assert list((tmp_path / "jars" / "spark").iterdir()) == []


def test_a_file_that_cannot_be_had_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_java(tmp_path, monkeypatch, "echo no route to it")
    lock = write_lock(tmp_path, f"spark org.x:thing:1.0 {EMPTY}\n")

    with pytest.raises(UnreachableError, match=r"cannot fetch org\.x:thing:1\.0: no route to it"):
        jars.fetch_jars(home=tmp_path / "jars", lock=lock)


def test_f183_progress_is_reported_while_jars_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, told = tmp_path / "jars", tmp_path / "told"
    script = f"""
        place=$(dirname "${{@: -1}}"); mkdir -p "$place/cache/org.x/thing/jars"
        touch "$place/thing-1.0.jar" "$place/cache/org.x/thing/jars/thing-1.0.jar"
        until grep -q '1 of 1,' {told}; do read -r -t 0.02 < <(:) || true; done
    """
    pretend_java(tmp_path, monkeypatch, script)
    monkeypatch.setattr(jars, "PACE", 0.05)
    lock = write_lock(tmp_path, f"spark org.x:thing:1.0 {EMPTY}\n")
    told.touch()

    def report(line: str) -> None:
        with told.open("a") as stream:
            stream.write(f"{line}\n")

    assert jars.fetch_jars(home=home, lock=lock, report=report) == 1

    lines = told.read_text().splitlines()
    assert lines[0] == f"jars: fetched 0 of 1 into {home}"
    assert any(line.startswith("jars: fetched 1 of 1, ") for line in lines)
    assert lines[-1].startswith("jars: fetched 1 of 1 in ")


def test_without_java_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(ConfigError, match="install a Java 17 runtime"):
        jars.find_java()


def test_a_folder_that_was_never_fetched_names_the_command() -> None:
    with pytest.raises(ConfigError, match="run `make setup`"):
        jars.jar_files("nothing")


@pytest.mark.parametrize(
    ("script", "lacks"),
    [
        pytest.param("echo 'openjdk version \"17.0.15\" 2025-04-15' >&2", [], id="17"),
        pytest.param("echo 'openjdk version \"21\" 2023-09-19' >&2", [], id="21"),
        pytest.param(
            "echo 'java version \"1.8.0_392\"' >&2",
            ["java is Java 8, Spark needs Java 17; install a Java 17 runtime, or set JAVA_HOME"],
            id="8",
        ),
        pytest.param(
            "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2",
            ["java is Java 11, Spark needs Java 17; install a Java 17 runtime, or set JAVA_HOME"],
            id="11",
        ),
        pytest.param(
            "echo no such VM >&2; exit 1",
            [
                "java does not print its version: 'no such VM'; "
                "install a Java 17 runtime, or set JAVA_HOME"
            ],
            id="broken",
        ),
    ],
)
def test_f180_a_java_that_spark_does_not_run_on_is_named_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, lacks: list[str]
) -> None:
    pretend_java(tmp_path, monkeypatch, script)

    assert [lack.removeprefix(f"{tmp_path}/bin/") for lack in jars.missing_jars()] == lacks


def test_f180_java_and_jars_that_are_missing_are_both_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(jars, "JARS", tmp_path / "jars")
    count = sum(jar.folder == jars.SPARK for jar in jars.locked_jars())

    assert jars.missing_jars() == [
        f"no Java found in JAVA_HOME, {tmp_path}; install a Java 17 runtime, or set JAVA_HOME",
        f"{count} jars are not in {tmp_path}/jars/spark; run `make setup`",
    ]


def test_f180_jars_are_fetched_from_the_repository_that_is_named(tmp_path: Path) -> None:
    content, folder = b"only this repository has it", tmp_path / "maven/org/x/thing/1.0"
    folder.mkdir(parents=True)
    (folder / "thing-1.0.jar").write_bytes(content)
    lock = write_lock(tmp_path, f"spark org.x:thing:1.0 {hashlib.sha256(content).hexdigest()}\n")
    home = tmp_path / "jars"

    repository = (tmp_path / "maven").as_uri()
    assert jars.fetch_jars(home=home, lock=lock, repository=repository) == 1
    assert (home / "spark" / "thing-1.0.jar").read_bytes() == content


def test_f180_a_repository_that_has_no_such_jar_is_told(tmp_path: Path) -> None:
    (tmp_path / "maven").mkdir()
    lock = write_lock(tmp_path, f"spark org.x:thing:1.0 {EMPTY}\n")

    with pytest.raises(UnreachableError, match=r"cannot fetch org\.x:thing:1\.0"):
        jars.fetch_jars(home=tmp_path / "jars", lock=lock, repository=(tmp_path / "maven").as_uri())


def test_f180_a_repository_that_is_no_url_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'maven' is no URL of a Maven repository; write https"):
        jars.fetch_jars(home=tmp_path, repository="maven")


def test_f180_the_environment_names_the_folder_of_jars(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from pipeline.spark import jars; print(jars.JARS)"],
        env={**os.environ, "SLUICE_JARS": str(tmp_path)},
        cwd=jars.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == str(tmp_path)


def pretend_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Stand in for Java with a script that has Ivy's arguments; the last one says where to."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/bash\n{script}\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))


def write_lock(tmp_path: Path, text: str) -> Path:
    lock = tmp_path / "jars.lock"
    lock.write_text(text)
    return lock


def test_a_repository_with_a_login_is_told_without_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        jars.fetch_jars(home=tmp_path, repository="ftp://bob:hunter2@nexus/repo")

    assert str(refused.value).startswith("'ftp://(hidden)@nexus/repo' is no URL")


def test_what_ivy_says_is_told_without_the_login(tmp_path: Path) -> None:
    lock = write_lock(tmp_path, f"spark org.x:thing:1.0 {EMPTY}\n")

    with pytest.raises(UnreachableError) as failed:
        jars.fetch_jars(
            home=tmp_path / "jars", lock=lock, repository="http://bob:hunter2@127.0.0.1:9/maven"
        )

    assert "127.0.0.1:9/maven" in str(failed.value)
    assert "hunter2" not in str(failed.value)
