"""What `jaxmb.maps` exports can be imported, and importing the package alone computes and loads nothing."""

import subprocess
import sys

import jaxmb.maps


def test_every_public_name_is_there():
    for name in jaxmb.maps.__all__:
        assert getattr(jaxmb.maps, name) is not None
    assert set(jaxmb.maps.__all__) <= set(dir(jaxmb.maps))


def test_the_package_imports_its_modules_late():
    code = """if True:
        import sys, jaxmb
        import jaxmb.maps
        assert not [name for name in sys.modules if name.startswith("jaxmb.maps.")]
        jaxmb.maps.Postures
        found = sorted(name for name in sys.modules if name.startswith("jaxmb.maps."))
        assert found == ["jaxmb.maps.position_solver", "jaxmb.maps.workspace_grid"]
    """
    subprocess.run([sys.executable, "-c", code], check=True)
