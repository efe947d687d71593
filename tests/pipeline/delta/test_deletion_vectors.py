import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from pipeline.delta.deletion_vectors import VectorFile, file_name, read_vector, vector_identity
from pipeline.delta.store import Store, open_store
from pipeline.errors import HeldError
from tests.example_count import examples

# from Delta's protocol, "Deletion Vectors"
BESIDE = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4}
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def inline(positions: list[int]) -> dict[str, object]:
    """A descriptor as Spark writes it into the log: z85 of the vector, filled up with zeros."""
    vector = struct.pack("<i", 1681511377) + BitMap64(positions).serialize()
    words = struct.unpack(f">{-(-len(vector) // 4)}I", vector + bytes(-len(vector) % 4))
    text = "".join(_Z85[word // 85**place % 85] for word in words for place in (4, 3, 2, 1, 0))
    return {
        "storageType": "i",
        "pathOrInlineDv": text,
        "sizeInBytes": len(vector),
        "cardinality": len(positions),
    }


INLINE = inline([3, 4, 7, 11, 18, 29])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


positions = st.sets(
    st.one_of(st.integers(0, 200), st.integers(0, 2**20), st.integers(2**32 - 2, 2**33)),
    min_size=1,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(50))
@given(st.lists(positions, min_size=1, max_size=4))
def test_vectors_of_one_file_are_read_back_as_they_were(store: Store, gone: list[set[int]]) -> None:
    file = VectorFile()
    descriptors = [file.add(BitMap64(one)) for one in gone]
    file.save(store)

    assert [set(read_vector(store, one)) for one in descriptors] == gone
    assert [one["cardinality"] for one in descriptors] == [len(one) for one in gone]
    assert len({vector_identity(one) for one in descriptors}) == len(gone)


def test_a_vector_in_the_log_itself_is_read(store: Store) -> None:
    assert list(read_vector(store, INLINE)) == [3, 4, 7, 11, 18, 29]


def test_the_name_in_deltas_own_specification_is_understood() -> None:
    assert file_name(BESIDE) == "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert vector_identity(BESIDE) == "uab^-aqEH.-t@S}K{vb[*k^@4"
    assert (vector_identity(None), file_name(INLINE)) == (None, None)


def test_a_vector_under_an_absolute_path_is_found(tmp_path: Path, store: Store) -> None:
    file = VectorFile()
    beside = file.add(BitMap64([4]))
    file.save(store)

    absolute = {**beside, "storageType": "p", "pathOrInlineDv": f"file:{tmp_path}/{file.name}"}

    assert list(read_vector(open_store("/"), absolute)) == [4]


def test_rule_1_vectors_lie_below_a_hidden_folder(store: Store) -> None:
    file = VectorFile()
    descriptor = file.add(BitMap64([1]))
    file.save(store)

    assert [entry.name for entry in store.names("_v")] == [file.name] == [file_name(descriptor)]


def test_a_turn_without_vectors_writes_no_file(store: Store) -> None:
    VectorFile().save(store)

    assert store.names("_v") == []


def test_rule_16_every_flipped_bit_is_noticed(store: Store, tmp_path: Path) -> None:
    file = VectorFile()
    descriptor = file.add(BitMap64([1, 2, 3, 70_000]))
    file.save(store)
    path = tmp_path / file.name
    whole = path.read_bytes()

    for at in range(8, 8 * len(whole)):  # the first byte is the file's, not the vector's
        damaged = bytearray(whole)
        damaged[at // 8] ^= 1 << at % 8
        path.write_bytes(damaged)
        with pytest.raises(HeldError, match=file.name):
            read_vector(store, descriptor)
    path.write_bytes(whole)
    assert len(read_vector(store, descriptor)) == 4


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param({"sizeInBytes": 30}, "another size than the log's", id="size"),
        pytest.param({"sizeInBytes": 3_000}, "bytes where 3008 were written", id="beyond the end"),
        pytest.param({"cardinality": 3}, "4 rows where the log says 3", id="cardinality"),
        pytest.param({"storageType": "x"}, "unknown kind 'x'", id="kind"),
    ],
)
def test_rule_16_a_vector_that_is_not_the_logs_is_refused(
    store: Store, change: dict[str, object], says: str
) -> None:
    file = VectorFile()
    descriptor = file.add(BitMap64([1, 2, 3, 70_000])) | change
    file.save(store)

    with pytest.raises(HeldError, match=says) as held:
        read_vector(store, descriptor)

    assert held.value.reason == "vector_damaged"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"sizeInBytes": 20}, id="cut"),
        pytest.param({"cardinality": 7}, id="cardinality"),
        pytest.param({"pathOrInlineDv": "00000" + str(INLINE["pathOrInlineDv"])[5:]}, id="magic"),
    ],
)
def test_rule_16_an_inline_vector_is_looked_at_as_closely(
    store: Store, change: dict[str, object]
) -> None:
    with pytest.raises(HeldError, match="vector_damaged"):
        read_vector(store, {**INLINE, **change})


def test_rule_23_a_vector_whose_file_is_gone_is_no_empty_one(store: Store) -> None:
    file = VectorFile()
    descriptor = file.add(BitMap64([1]))

    with pytest.raises(HeldError, match="the file is gone"):
        read_vector(store, descriptor)
