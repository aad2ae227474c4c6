"""goes_on: a loop that nothing ends but its cancellation.

One that ended in silence would cost all that it does, for as long as the process lives.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

PAUSE_S: Final = 5.0  # it may happen in each turn


async def goes_on(turn: Callable[[], Awaitable[None]], what: str) -> None:
    """Take turn after turn until it is cancelled. One that fails in a way nobody thought of is told,
    with `what` it should do ("send hints"), and costs a pause."""
    while True:
        try:
            await turn()
        except Exception as error:
            tell(what, error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_S):
                    await asyncio.Event().wait()


def tell(what: str, error: Exception) -> None:
    """Tell the loop's own handler of what nobody thought of."""
    told = {"message": f"failed to {what}", "exception": error}
    asyncio.get_running_loop().call_exception_handler(told)
