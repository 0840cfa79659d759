"""Files changed at random: bytes, entries of JSON, cells of CSV, and archives, with their checksums right."""

import copy
import io
import json
import pickle
import re
import zipfile

import numpy as np

MARK = "executed"


class Bomb:
    """A pickle that leaves a mark where it is loaded."""

    def __reduce__(self):
        return (open, (MARK, "w"))


ODD = [
    None, True, False, 0, 1, -1, 2, 7, 0.5, -0.0, 1e-300, 1e300, 10**6, 2**31 - 1, 2**31, 2**63, 2**64, 10**12, 10**25,
    10**400, float("nan"), float("inf"), -float("inf"), "", "0", "\0", "x" * 5000, "../../x", "hostile:Task-v0",
    "hostile", "a\nb", "\ud800", [], [[]], [[[[1]]]], [0], [1] * 300, [10**6, 10**6], [2**31 - 1], [1e400], {},
    {"a": {"b": []}}, {"": None}, [None], ["hostile:x"], "sac", "mnm_approx", "Pendulum-v1", "NoSuchTask-v0",
    "CartPole-v1",
]  # fmt: skip
"""Values that an entry of a file may be replaced by."""


def mutated_bytes(content, rng):
    """A few bytes changed, cut out, doubled or put in."""
    content = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 5])):
        place = rng.randrange(len(content) + 1)
        match rng.randrange(4):
            case 0:
                content[place : place + 1] = bytes([rng.randrange(256)])
            case 1:
                del content[place : place + rng.choice([1, 3, 50, len(content)])]
            case 2:
                content[place:place] = rng.randbytes(rng.choice([1, 4, 30]))
            case 3:
                content[place:place] = content[place : place + rng.choice([1, 8, 200])]
    return bytes(content)


def mutated_json(value, rng):
    """An object with an entry, however deep, replaced, removed, added or doubled."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        place = value
        while True:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            if not keys:
                break
            key = rng.choice(list(keys))
            if isinstance(place[key], dict | list) and place[key] and rng.random() < 0.75:
                place = place[key]
                continue
            if rng.random() < 0.15:
                del place[key]
            elif rng.random() < 0.1 and isinstance(place, dict):
                place[rng.choice(["x", "", "termination", "arrays", "y" * 300])] = copy.deepcopy(rng.choice(ODD))
            else:
                place[key] = copy.deepcopy(rng.choice(ODD))
            break
    return value


def written_json(value, rng):
    text = json.dumps(value)
    match rng.randrange(20):
        case 0:
            text = text.replace("}", "," + "[" * 100_000, 1)
        case 1:
            text = re.sub(r"\d+", lambda _: "9" * 5000, text, count=1)
        case 2:
            text = text[: rng.randrange(len(text))]
    return text.encode("utf-8", errors="surrogatepass")


def mutated_csv(content, rng):
    """A cell replaced, a row cut, a column doubled."""
    rows = [line.split(",") for line in content.decode().splitlines()]
    for _ in range(rng.choice([1, 1, 3])):
        row = rng.choice(rows)
        match rng.randrange(5):
            case 0 | 1 | 2:
                odd = rng.choice(
                    ["", "nan", "inf", "-1", "1e400", "1.5", "x", '"', "\0", "9" * 400, "step", "z" * 200_000]
                )
                row[rng.randrange(len(row))] = odd
            case 3:
                del row[rng.randrange(len(row)) :]
                row = row or rows.remove(row)
            case 4:
                for each in rows:
                    each.append(each[-1] if each else "")
        rows = [row for row in rows if row] or [["step"]]
    return "\n".join([*(",".join(row) for row in rows), ""]).encode()


def mutated_npz(content, rng):
    """An archive with its header or an array changed, each with a checksum that is right."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(entries))
    kind = rng.randrange(8) if "header.npy" not in entries or rng.random() < 0.5 else 8
    match kind:
        case 0:
            entries[name] = npy(odd_array(rng))
        case 1:
            del entries[name]
        case 2:
            entries[rng.choice(["array_999.npy", "x", "../../x.npy", "header"])] = entries[name]
        case 3 | 4:  # what the array's own header claims
            new = rng.choice([
                b"(10000000000000000000000000,)", b"(-1, -4)", b"(0, 99999999999999999999)", b"(1000000000,)", b"()",
                b"[[1]]", b"(3, 4, 5)", b"('x',)", b"(" * 300,
            ])  # fmt: skip
            if kind == 4:
                entries[name] = re.sub(
                    rb"'descr': '[^']*'", b"'descr': '" + odd_dtype(rng) + b"'", entries[name], count=1
                )
            else:
                entries[name] = re.sub(rb"\([^)]*\)", new, entries[name], count=1)
        case 5:
            entries[name] = mutated_bytes(entries[name], rng)
        case 6 | 7:
            pass  # packed in another way, or with other sizes
        case 8:
            header = json.loads(np.load(io.BytesIO(entries["header.npy"])).tobytes())
            entries["header.npy"] = npy(np.frombuffer(written_json(mutated_json(header, rng), rng), np.uint8))
    packing = zipfile.ZIP_STORED
    if kind == 6:
        packing = rng.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
        entries[name] = npy(np.zeros(rng.choice([3, 10**6])))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", packing) as archive:
        for each, data in entries.items():
            archive.writestr(each, data)
    written = bytearray(file.getvalue())
    if kind == 7:  # sizes, packing or flags in the directory of the archive
        place = written.rfind(b"PK\x01\x02", 0, len(written) - rng.randrange(1, 40))
        field = place + rng.choice([8, 10, 20, 24, 42])
        written[field : field + 4] = rng.choice(
            [b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x01\0\x08\0"]
        )
    return bytes(written)


def odd_dtype(rng):
    return rng.choice(
        [b"|O", b"<f8", b">f4", b"|S9", b"<M8[s]", b"|V8", b"<U4", b"<c16", b"|b1", b"<f2", b"<i8", b"zz"]
    )


def odd_array(rng):
    return rng.choice([
        np.array([Bomb()], dtype=object), np.zeros(0), np.zeros((0, 3), np.float32), np.full(3, np.nan),
        np.array(1e300), np.zeros((2, 2, 2)), np.arange(4), np.array(["text"]), np.array(2**31 - 1, np.int32),
        np.array(-1, np.int32),
        np.ones(3, bool), np.array([(1, 2.0)], dtype=[("a", int), ("b", float)]), np.full((3, 2, 3), 1 / 3),
    ])  # fmt: skip


def npy(array):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=True)
    return file.getvalue()


def pickled():
    return pickle.dumps(Bomb())
