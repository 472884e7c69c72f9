"""Scenes with consumers behind one Sluice, all at once; what Sluice says meanwhile, and when all have gone."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Generic, TypeVar

from loadgen.real.standalone import Broker
from tests.real.flows import Played
from tests.real.pulsar_rest import PulsarRest
from tests.real.sluice_process import SluiceProcess
from tests.real.stages import Stage
from tests.real.stream_watch import StreamWatch
from tests.real.traffic import quiet_client

Scene = TypeVar("Scene")


class Performance(Generic[Scene]):
    """All the scenes of a module.

    Attributes:
        begun: When each scene began, by its name.
        watch: What Sluice said meanwhile.
        left: What Sluice said of streams when all clients had gone, and the bytes that it held then.

    Args:
        sluice: Behind which they play.
        broker: Behind Sluice.
        namespace: Where their topics are.
        scenes: Each is opened with a stage, which fills its backlog, and then gives what plays.
    """

    def __init__(
        self,
        sluice: SluiceProcess,
        broker: Broker,
        namespace: str,
        scenes: Mapping[str, Callable[[Stage], Callable[[], Scene]]],
    ) -> None:
        rest = PulsarRest(broker.admin_url)
        rest.ensure_namespace(namespace)
        self.watch = StreamWatch(sluice)
        with ExitStack() as at_the_end:
            at_broker = quiet_client(broker.service_url)
            at_the_end.callback(at_broker.close)
            with ExitStack() as clients, self.watch:
                stage = Stage(sluice, at_broker, rest, clients)
                opened = {name: open_scene(stage) for name, open_scene in scenes.items()}
                self._played = Played(opened)
            self.left = self.watch.left()
        self.begun = self._played.begun

    def __getitem__(self, name: str) -> Scene:
        """What the scene made, or its error."""
        return self._played[name]
