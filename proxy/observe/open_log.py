"""Opens the access log as the configuration says, after what an earlier run left is in order."""

import importlib.metadata

from proxy.config.sections import AccessLog as Section
from proxy.observe.access_log import AccessLog, new_boot_id
from proxy.observe.addresses import as_they_are, hashed, read_key
from proxy.observe.log_files import LogFiles
from proxy.observe.log_lines import Writer
from proxy.observe.log_troubles import operator_notices
from proxy.observe.log_writer import LogWriter, Rotation
from proxy.observe.losses import Losses
from proxy.observe.rescue import rescue
from proxy.observe.retention import Keep


def open_access_log(section: Section, proxy_id: str) -> AccessLog:
    """The log of a new run.

    Raises:
        OSError: If its folder cannot be made, read or written.
        AddressKeyError: If the key for addresses cannot be used.
    """
    shown = as_they_are if section.address_key is None else hashed(read_key(section.address_key))
    writer = Writer(proxy_id, new_boot_id(), importlib.metadata.version("pulsar-sluice"), shown)
    if section.dir is None:
        return AccessLog(writer, None)
    keep = Keep(section.retain_age, section.retain_size)
    rotation = Rotation(section.rotate_size, section.rotate_age, section.fsync, keep)
    section.dir.mkdir(parents=True, exist_ok=True)
    losses = Losses(writer.boot_id, rescue(section.dir, proxy_id))
    disk = LogWriter(section.dir, (proxy_id, writer.boot_id), rotation, losses, operator_notices())
    return AccessLog(writer, LogFiles(disk, section.queue))
