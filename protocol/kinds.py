"""The types of the commands that are told apart by their heads alone.

Source: BaseCommand.Type of PulsarApi.proto.
"""

from typing import Final

SEND: Final = 6
SEND_RECEIPT: Final = 7
MESSAGE: Final = 9
ACK: Final = 10
ACK_RESPONSE: Final = 38
