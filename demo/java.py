"""The command that runs a class of a folder of jars, small and quiet enough for two cores."""

from pathlib import Path

from pipeline import jars


def command(
    main: str, *arguments: str, class_path: Path, heap: str, level: str = "info"
) -> tuple[str, ...]:
    """Run *main* with every jar of *class_path*; *level* is what slf4j-simple lets through."""
    return (
        jars.java(),
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError",  # a server that is dead should look dead
        "-XX:-UsePerfData",
        f"-Dorg.slf4j.simpleLogger.defaultLogLevel={level}",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSX",
        "-Duser.timezone=UTC",
        *("-cp", f"{class_path}/*"),
        main,
        *arguments,
    )
