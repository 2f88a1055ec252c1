"""Which version of the library is this?"""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("redisworld")
except PackageNotFoundError:  # a checkout on the path, never installed
    VERSION = ""
