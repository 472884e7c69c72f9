"""The state that a run leaves to the next one: policies set at run time, and the balances of limits."""

import asyncio
import logging
import time
from collections.abc import Iterable
from pathlib import Path

import structlog

from limiter.limiter import Limiter
from limiter.restart import FirstBalances
from proxy.config.model import Config
from proxy.counters import Counters
from proxy.limit_state import NO_ROOM, LimitState, StateError, retire
from proxy.policies.room import TenantShare
from proxy.policies.store import Store, StoreError, left_over
from proxy.runtime import StartError


class KeptState:
    """The policy store and the file of balances of one run.

    Args:
        config: The configuration.
        run: A name of this run that no other one has.
        counters: Say which balances were found.
        is_takeover: The run before still has its balances, and drains.

    Raises:
        StartError: If either cannot be used.

    Attributes:
        store: The policy store.
    """

    def __init__(self, config: Config, run: str, counters: Counters, *, is_takeover: bool) -> None:
        self._config = config
        self._counters = counters
        self.store = _open_store(config)
        self._balances = None if config.drain.state is None else _take_balances(config, config.drain.state, run)
        if not is_takeover:
            self._report_found()

    @property
    def first_balances(self) -> FirstBalances | None:
        """The balances with which this run begins; None: all buckets are full."""
        return None if self._balances is None else self._balances.first

    def take_left(self) -> None:
        """Begin with what the run before has left in the file: it has ended before the two could share its limits.

        It may be called in a thread.
        """
        if self._balances is not None:
            self._balances.take_again()
            self._report_found()

    def serve(self) -> None:
        """Note that this run serves from now on, and has balances of its own to leave."""
        if self._balances is not None:
            self._balances.serve()

    def leave_balances(self, limiters: Iterable[Limiter], *, is_awaited: bool = False) -> None:
        """Leave the balances to the next run; or those that were found, if this run never served.

        It may be called in a thread.

        Args:
            limiters: All limiters.
            is_awaited: The next run has begun, and serves only when it has seen the end of this one.
        """
        if self._balances is None:
            return
        try:
            count = self._balances.end(limiters, is_awaited=is_awaited)
        except (OSError, StateError) as error:
            structlog.get_logger().error(
                "balances of limits are not kept: the next run begins with empty buckets",
                state=str(self._config.drain.state),
                error=getattr(error, "strerror", None) or str(error),
            )
            return
        if count is not None:
            structlog.get_logger().info("balances of limits are kept for the next run", limiters=count)

    async def lend(self) -> None:
        """Lend the policy store to the process that takes over."""
        await asyncio.to_thread(self.store.lend)

    async def take_back(self, *, is_as_lent: bool) -> bool:
        """Use the policy store again: the process that was to take over has ended.

        Args:
            is_as_lent: That process has changed no policy.

        Returns:
            Whether the store can be used.
        """
        is_back = True
        try:
            await asyncio.to_thread(self.store.take_back, is_as_lent=is_as_lent)
        except StoreError as error:
            is_back = False
            structlog.get_logger().error(
                "policies cannot be changed until a restart: the store cannot be opened after a takeover that failed",
                error=str(error),
            )
        return is_back

    async def take_back_balances(self) -> None:
        """Use the file of balances again: the process that has taken over leaves none."""
        if self._balances is not None:
            try:
                await asyncio.to_thread(self._balances.take_back)
            except OSError as error:
                structlog.get_logger().error("the next run begins with empty buckets", error=error.strerror)

    def lost_at_end(self) -> list[str]:
        """Return the state that will be lost when this process ends, each part with the key that keeps it."""
        config = self._config
        lost = [] if config.drain.state else ["balances of limits: the next start fills all buckets (drain.state)"]
        if config.policies.store is None and config.policy_topic is None:
            lost.append("limits and blocks set at run time (policies.store)")
        return lost

    def _report_found(self) -> None:
        if self._balances is not None:
            self._counters.limit_state[self._balances.found] = 1
            _log_found(self._balances, self._config.drain.state)


def _open_store(config: Config) -> Store:
    path = config.policies.store
    try:
        share = TenantShare(config.policies.tenant_policies, config.policies.tenant_bytes)
        is_alone = config.policy_topic is None and config.processes == 1
        store = Store(path, config.policies.audit_changes, share, is_alone=is_alone)
    except StoreError as error:
        raise StartError(str(error)) from None
    if path is not None and store.is_new:
        structlog.get_logger().info("policies: a new store was made; nothing is set at run time", store=str(path))
    if path is not None and config.processes == 1:  # else the parent looks
        for warning in left_over(path, 1):
            structlog.get_logger().warning("policies: a store of another process", detail=warning)
    return store


def _take_balances(config: Config, folder: Path, run: str) -> LimitState:
    shared = () if config.fleet is None else config.fleet.shared_levels
    try:
        if config.processes == 1:  # else the parent does
            retire_others(config, folder)
        return LimitState(folder, config.proxy_id, run, shared, time.monotonic_ns, config.processes)
    except OSError as error:
        remedy = "make room there" if error.errno in NO_ROOM else "chown or chmod it, or mount it writable"
        raise StartError(
            f"drain.state: {folder}: cannot be read and written by this user ({error.strerror}): {remedy}"
        ) from None


def retire_others(config: Config, folder: Path) -> None:
    """Remove the balances of another number of processes, see `limit_state.retire`.

    Raises:
        OSError: If the folder cannot be used.
    """
    removed = retire(folder, config.proxy_id, config.processes)
    if removed:
        structlog.get_logger().warning(
            "balances of another number of processes are removed", state=str(folder), files=", ".join(removed)
        )


def _log_found(balances: LimitState, folder: Path | None) -> None:
    log = structlog.get_logger()
    if balances.found == "loaded":
        log.info("limits go on with the balances of the run before", balances=balances.detail)
    else:
        log.log(
            logging.INFO if balances.found == "missing" else logging.WARNING,
            "limits begin with empty buckets, which fill from now on",
            state=str(folder),
            reason=balances.detail,
        )
