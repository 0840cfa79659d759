"""Programs that are kept from one process to the next."""

from dataclasses import dataclass
from functools import partial
from threading import current_thread

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnm import compiled
from mnm.agents import ALGORITHMS
from mnm.compiled import UnnamedError, described, program
from mnm.networks import MLP

TRACED = []


@dataclass(frozen=True)
class Settings:
    rate: float


@program(static=("settings", "count"), donate=("network",))
def grown(settings, network, rows, *, count):
    """Something with settings, a PyTree that is donated, and a result of another structure."""
    TRACED.append(settings)
    moved = jax.tree.map(lambda weight: weight + count * settings.rate * weight, network)
    return moved, {"mean": moved(rows).mean(), "key": jax.random.key(3)}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache of this test's own, in which the functions of this file are kept as the package's are."""
    monkeypatch.setattr(compiled, "PACKAGE", __name__.partition(".")[0])
    monkeypatch.setattr(compiled, "LIBRARIES", (*compiled.LIBRARIES, "mnm"))
    monkeypatch.setattr(compiled, "SETTLED", -1e9)  # the sources of a new clone are young
    monkeypatch.setattr(compiled, "version", lambda library: library)
    before = {name: getattr(jax.config, name) for name in ("jax_compilation_cache_dir", "jax_enable_compilation_cache")}
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "cache"))
    jax.config.update("jax_enable_compilation_cache", True)
    grown.forget()
    surroundings = compiled._sources, compiled._machine  # a test may put other functions there
    for one in surroundings:
        one.cache_clear()
    TRACED.clear()
    yield tmp_path / "cache"
    for one in surroundings:
        one.cache_clear()
    for name, value in before.items():
        jax.config.update(name, value)


def network():
    return MLP(jax.random.key(0), (3, 4, 1), layer_norm=True)


def kept(folder):
    """The files of calls, which name programs."""
    return sorted(folder.glob("*.grown-*"))


def programs(folder):
    return sorted(folder.glob("program-*"))


def run(rate=0.5, rows=2, count=2):
    return grown(Settings(rate), network(), jnp.ones((rows, 3)), count=count)


def leaves(result):
    return [np.asarray(leaf) for leaf in jax.tree.leaves((result[0], result[1]["mean"]))]


@pytest.mark.slow
def test_a_second_start_traces_nothing_and_gives_the_same_bits(folder):
    first = run()
    assert len(TRACED) == 1
    run()
    grown.forget()
    again = run()
    assert len(TRACED) == 1
    assert len(kept(folder)) == 1
    assert jax.tree.structure(again) == jax.tree.structure(first)
    plain = grown.jitted(Settings(0.5), network(), jnp.ones((2, 3)), count=2)
    for one, two, three in zip(leaves(first), leaves(again), leaves(plain), strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)
    np.testing.assert_array_equal(*(jax.random.key_data(result[1]["key"]) for result in (first, again)))


def test_what_is_donated_is_gone(folder):
    given, rows = network(), jnp.ones((2, 3))
    grown(Settings(0.5), given, rows, count=1)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(given))
    assert not rows.is_deleted()


@pytest.mark.slow
def test_other_settings_shapes_or_sources_are_other_programs(folder, monkeypatch):
    run()
    run(rate=0.25)
    run(rows=5)
    run(count=3)
    assert len(kept(folder)) == 4
    assert len(programs(folder)) == 4
    monkeypatch.setattr(compiled, "_sources", lambda: "another version")
    grown.forget()
    run()
    assert len(kept(folder)) == len(TRACED) == 5
    assert len(programs(folder)) == 4  # other sources, the same program
    monkeypatch.setattr(compiled, "_machine", lambda: "another machine")
    grown.forget()
    run()
    assert len(kept(folder)) == len(TRACED) == 6
    assert len(programs(folder)) == 5


@pytest.mark.slow
@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\x80\x04K\x01."])
@pytest.mark.parametrize("files", [kept, programs])
def test_a_damaged_file_is_made_again(folder, files, damage):
    first = run()
    (path,) = files(folder)
    path.write_bytes(damage)
    grown.forget()
    for _ in range(3):  # made, read, read
        np.testing.assert_array_equal(leaves(run())[-1], leaves(first)[-1])
        grown.forget()
    assert len(TRACED) == 2
    assert path.read_bytes() != damage


# JAX warns of its own files there, if it has any to read or write: what it compiled for an earlier test it has not.
@pytest.mark.filterwarnings("ignore:Error (reading|writing) persistent compilation cache")
def test_a_folder_that_cannot_be_written_is_no_error(folder):
    folder.write_bytes(b"a file")
    assert np.isfinite(leaves(run())[-1])


@pytest.mark.slow
def test_inside_of_another_program_it_is_a_function(folder):
    run()
    result = jax.jit(lambda network: grown(Settings(0.5), network, jnp.ones((2, 3)), count=2)[1]["mean"])(network())
    np.testing.assert_allclose(result, leaves(run())[-1], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "rate"), [("jax_disable_jit", 0.1), ("jax_debug_nans", 0.2)])
def test_who_looks_into_programs_gets_them_traced(folder, setting, rate):
    run(rate)
    jax.config.update(setting, True)
    try:
        run(rate)
    finally:
        jax.config.update(setting, False)
    assert len(TRACED) == 2


def test_a_prepared_program_is_read_once_and_not_compiled(folder, monkeypatch):
    read = []
    real = compiled._read
    monkeypatch.setattr(compiled, "_read", lambda path: read.append(current_thread().name) or real(path))
    arguments = Settings(0.5), network(), jnp.ones((2, 3))
    grown.prepare(*arguments, count=2)  # nothing is kept yet
    first = run()
    assert len(TRACED) == 1
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(arguments[1]))
    grown.forget()
    read.clear()
    grown.prepare(*arguments, count=2)
    np.testing.assert_array_equal(leaves(run())[-1], leaves(first)[-1])
    grown.prepare(*arguments, count=2)  # it is there
    assert len(TRACED) == 1
    assert len(read) == 1
    assert current_thread().name not in read


def test_shapes_are_those_of_the_result(folder):
    for _ in range(2):
        shapes = grown.shapes(Settings(0.5), network(), jnp.ones((2, 3)), count=2)
        assert jax.tree.map(jax.typeof, run()) == jax.tree.map(jax.typeof, shapes)
        grown.forget()
    assert len(TRACED) == 1


def test_what_others_wrote_is_not_kept():
    """A function's name says nothing of its code, unless it is this package's, whose sources are known."""
    for algorithm in ALGORITHMS.values():
        assert algorithm.name in described(algorithm)
    with pytest.raises(UnnamedError):
        described(test_what_others_wrote_is_not_kept)
    with pytest.raises(UnnamedError):
        described((1, lambda: 2))
    with pytest.raises(UnnamedError):
        described(partial(described, 1))
    with pytest.raises(UnnamedError):
        described(Settings(0.5))


class Own(MLP):
    """A network with methods of its own."""


@pytest.mark.slow
def test_a_class_of_others_in_the_arguments_is_not_kept(folder, monkeypatch):
    compiled.check_nodes(jax.tree.structure((network(), {"a": [None]})))
    own = jax.tree.structure([Own(jax.random.key(0), (3, 1))])
    monkeypatch.setattr(compiled, "PACKAGE", "mnm")
    with pytest.raises(UnnamedError):
        compiled.check_nodes(own)


def test_sources_that_have_just_been_changed_are_not_trusted(folder, monkeypatch):
    monkeypatch.setattr(compiled, "SETTLED", 0.0)
    monkeypatch.setattr(compiled, "IMPORTED", 0.0)
    assert np.isfinite(leaves(run())[-1])
    assert not folder.exists() or not kept(folder)


def test_texts_of_settings_tell_them_apart():
    presets = [preset for algorithm in ALGORITHMS.values() for preset in algorithm.presets.values()]
    assert len({described(preset) for preset in presets}) == len(set(presets)) > 20
