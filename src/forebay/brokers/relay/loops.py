"""goes_on: a loop of a relay that nothing ends but its cancellation: one turn that fails is told, and costs a
pause. A loop that ended in silence would cost every later hint."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from forebay.ports.clock import Clock

PAUSE_S: Final = 5.0  # after what nobody thought of: it may happen in each turn


async def goes_on(turn: Callable[[], Awaitable[None]], clock: Clock, what: str) -> None:
    """Take turn after turn until it is cancelled."""
    while True:
        try:
            await turn()
        except Exception as error:
            tell(what, error)
            await clock.sleep(PAUSE_S)


def tell(what: str, error: Exception) -> None:
    """Tell the loop's own handler of what nobody thought of."""
    told = {"message": f"a relay failed to {what}", "exception": error}
    asyncio.get_running_loop().call_exception_handler(told)
