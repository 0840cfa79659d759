"""Files that can come from anybody: refused with what is wrong, before anything is made of them."""

import io
import os
import zipfile

import numpy as np
import pytest

from mnm.files import DamagedFileError, parse_object, read_npz, read_text
from mutations import Bomb, npy


def archive(path, entries, packing=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", packing) as file:
        for name, data in entries.items():
            file.writestr(name, data)
    return path


def claiming(shape, rows=3):
    """An array in NumPy's format whose header claims another shape."""
    data = npy(np.zeros(rows))
    claimed = f"({rows},)".encode()
    assert data.count(claimed) == 1
    return data.replace(claimed, shape.encode())


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_come_back(save, tmp_path):
    arrays = {
        "a": np.arange(6.0).reshape(2, 3),
        "b": np.asfortranarray(np.eye(3)),
        "c": np.array(3),
        "d": np.zeros((0, 4)),
    }
    save(tmp_path / "a.npz", **arrays)
    found = read_npz(tmp_path / "a.npz", packed=True)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].shape == array.shape


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"a.npy": claiming("(10000000000000000000000000,)")}, "claims the shape"),
        ({"a.npy": claiming("(1000000000,)")}, r"claims the shape \(1000000000,\) of float64, but has \d+ bytes"),
        ({"a.npy": claiming("(-1, -3)")}, "claims the shape"),
        ({"a.npy": claiming("(0, 99999999999)", rows=0)}, "claims the shape"),
        ({"a.npy": npy(np.array([Bomb()], dtype=object))}, "of object, not of real numbers"),
        ({"a.npy": npy(np.array(["a"]))}, "not of real numbers"),
        ({"a.npy": b"nothing"}, "magic string"),
        ({"a.npy": npy(np.zeros(3)), "a": npy(np.zeros(3))}, "the same name"),
    ],
)
def test_arrays_that_are_not_what_they_claim(entries, message, tmp_path):
    with pytest.raises(DamagedFileError, match=message):
        read_npz(archive(tmp_path / "a.npz", entries))


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    """A gigabyte and more of zeros in a few megabytes; here its directory says so of a few bytes."""
    path = archive(tmp_path / "a.npz", {"a.npy": npy(np.zeros(100_000))}, zipfile.ZIP_DEFLATED)
    content = bytearray(path.read_bytes())
    place = content.rfind(b"PK\x01\x02") + 24
    content[place : place + 4] = (2**31).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"it claims to hold 2,147,483,648 bytes, in a file of \d{3,4}$"):
        read_npz(path, packed=True)


@pytest.mark.parametrize("packing", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_our_own_files_are_never_packed(packing, tmp_path):
    path = archive(tmp_path / "a.npz", {"a.npy": npy(np.zeros(9))}, packing)
    with pytest.raises(DamagedFileError, match="packed or encrypted in a way that is not read"):
        read_npz(path)


@pytest.mark.parametrize("read", [read_npz, read_text])
def test_what_is_no_regular_file_is_not_waited_for(read, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DamagedFileError, match="not a regular file"):
        read(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("[]", "no JSON object"),
        ('{"a": ' + 5_000 * "9" + "}", "not JSON"),
        ("{", "not JSON"),
    ],
)
def test_json_that_cannot_be_read(text, message):
    with pytest.raises(DamagedFileError, match=message):
        parse_object(text)


def test_the_checksum_of_every_array_is_compared(tmp_path):
    file = io.BytesIO()
    np.savez(file, a=np.arange(100.0))
    content = bytearray(file.getvalue())
    content[len(content) // 2] ^= 1
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DamagedFileError, match="Bad CRC-32"):
        read_npz(tmp_path / "a.npz")
