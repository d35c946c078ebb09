"""CRC-32C, computed by the package `crc32c`.

Its extension module is loaded, without the package around it: that one asks `importlib.metadata` for its own version,
which loads Python's libraries for mail and zip files, a tenth of what a broker needs to start.
"""

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Any

__all__ = ["crc32c"]


def _extension() -> Any:
    package = PathFinder.find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    found = None if places is None else PathFinder.find_spec("crc32c._crc32c", places)
    if found is None or found.loader is None:
        import crc32c  # arranged in another way; it says so itself if it is not there

        return crc32c
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from crc32c import crc32c
else:
    crc32c = _extension().crc32c
