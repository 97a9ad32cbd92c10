"""The registry that every format file adds itself to."""

from traces.formats.base import TraceFormat
from traces.registry import Registry

FORMATS: Registry[type[TraceFormat]] = Registry("trace format")
